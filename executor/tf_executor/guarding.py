"""What the guardian's process does, which `guardian` starts: it waits, and kills. Imports little, to be small."""

from __future__ import annotations

import os
import sys
import time

_SIGKILL = 9  # the module signal would double what we load
_LOOKS, _PAUSE = 100, 0.05  # seconds: what is killed takes a moment to go, and may have forked before


def main() -> None:
    """Wait until standard input ends; then kill whatever has all of our arguments as entries of its environment."""
    while os.read(0, 1):
        pass
    wanted = set(map(os.fsencode, sys.argv[1:]))
    for _ in range(_LOOKS):
        found = [pid for pid in _others() if wanted and wanted <= _environment(pid)]  # nothing fits everybody
        if not found:
            return
        for pid in found:
            _kill(pid)
        time.sleep(_PAUSE)


def _others() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208 - pathlib is not loaded


def _environment(pid: int) -> set[bytes]:
    """Empty for what has gone meanwhile, or is another user's."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:  # noqa: PTH123
            return set(file.read().split(b"\0"))
    except OSError:
        return set()


def _kill(pid: int) -> None:
    try:
        os.kill(pid, _SIGKILL)
    except ProcessLookupError:
        return
