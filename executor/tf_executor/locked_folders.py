"""Folders that are there for as long as the process that made them.

Each has a lock, which the kernel drops when the process ends, however it does: then others can tell that nobody is
left who would remove it. systemd-tmpfiles leaves alone what is locked, however old it is (tmpfiles.d(5), Age).
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from contextlib import suppress
from pathlib import Path

from tf_executor.guarding import remove


def make(where: Path, prefix: str) -> tuple[Path, int]:
    """A new folder of mode 0700 in `where`, and the descriptor that holds its lock. Raise OSError.

    It has another name until it is locked: nobody takes it for one that was left.
    """
    draft = Path(tempfile.mkdtemp(prefix=f".{prefix}", dir=str(where)))
    try:
        lock = os.open(draft, os.O_RDONLY | os.O_CLOEXEC)
        fcntl.flock(lock, fcntl.LOCK_EX)
        return draft.rename(draft.with_name(draft.name[1:])), lock
    except OSError:
        draft.rmdir()
        raise


def sweep(where: Path, prefix: str) -> None:
    """Remove the folders there whose processes have gone, as far as they are ours to remove."""
    for folder in where.glob(f"{prefix}*"):
        with suppress(OSError):
            lock = os.open(folder, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_DIRECTORY)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                remove(str(folder))
            finally:
                os.close(lock)
