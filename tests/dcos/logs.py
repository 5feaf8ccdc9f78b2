"""A task's files as in DC/OS: GET /system/v1/logs/v2/task/<id>/file/<name>."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

_AGAIN = 0.5  # seconds between two looks at a file that is followed
_BLOCK = 1 << 16


class NoSuchFileError(Exception):
    """The file does not exist (404)."""


def file_of(sandbox: Path | None, name: str) -> Path:
    """Raise NoSuchFileError for an unknown task or file, or outside of the sandbox."""
    if sandbox is None:
        raise NoSuchFileError("No such task")
    path = sandbox / name
    if not path.is_file() or not path.resolve().is_relative_to(sandbox.resolve()):
        raise NoSuchFileError(f"No file {name} in the task's sandbox")
    return path


def tail(path: Path, cursor: str, skip: int) -> tuple[bytes, int]:
    """Part at `cursor` (BEG, END, bytes) and `skip` (lines, negative: back), and end."""
    content = path.read_bytes()
    if cursor == "END":
        lines = content.splitlines(keepends=True)
        return b"".join(lines[skip:]) if skip < 0 else b"", len(content)
    start = int(cursor) if cursor.isdecimal() else 0
    return b"".join(content[start:].splitlines(keepends=True)[max(skip, 0) :]), len(content)


async def follow(path: Path, first: bytes, offset: int) -> AsyncIterator[bytes]:
    """Server-sent events, one for each line, for as long as somebody listens."""
    rest = first
    while True:
        *lines, rest = rest.split(b"\n")
        for line in lines:
            yield b"data: " + line + b"\n\n"
        await asyncio.sleep(_AGAIN)  # a file cannot be awaited with what the standard library has
        with path.open("rb") as file:
            file.seek(offset)
            new = file.read(_BLOCK)
        offset += len(new)
        rest += new
