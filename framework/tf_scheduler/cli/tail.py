"""The last lines of a file that somebody else is writing."""

from __future__ import annotations

from pathlib import Path

_BLOCK = 8192


def last_lines(path: Path, count: int) -> list[str]:
    """Up to `count` last lines, each without control characters; none when there is no file yet."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - _BLOCK))
            text = file.read().decode(errors="replace")
    except OSError:
        return []
    return [_printable(line) for line in text.splitlines()[-count:]]


def _printable(line: str) -> str:
    """Programs draw progress bars with carriage returns and escapes: they would upset our own screen."""
    return "".join(char for char in line.rsplit("\r", 1)[-1] if char.isprintable() or char == "\t")
