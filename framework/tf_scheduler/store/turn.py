"""Whose turn it is in a folder with state files. Alone: who only waits, or lets others wait, needs no store."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def turn(folder: Path) -> Iterator[bool]:
    """Let one process at a time open a file in the folder: SQLite does not wait when several make it use its log.

    Gives whether others wait indeed: where folders cannot be locked, two first starts at once may see StoreUnavailable;
    no state is at risk.
    """
    descriptor, held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY), False
    try:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            held = True
        yield held
    finally:
        os.close(descriptor)
