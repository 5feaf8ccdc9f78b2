"""Whose turn it is in a folder with state files. Alone: who only waits, or lets others wait, needs no store."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def turn(folder: Path) -> Iterator[None]:
    """Let one process at a time open a file in the folder: SQLite does not wait when several make it use its log."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        # Where folders cannot be locked, two first starts at once may see StoreUnavailable; no state is at risk.
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
