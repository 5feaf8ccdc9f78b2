"""Files that are in memory only (tmpfs), for one user, for as long as this process lives.

Each executor has a folder of its own there; the next one on this host removes what an executor that was killed has left
(`locked_folders`). In the working directory lies a link, which the agent's file API does not follow out of there.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Mapping, Optional, Tuple

from tf_executor import locked_folders
from tf_executor.guarding import remove

#: POSIX shared memory: a tmpfs on every Linux, also in containers.
MEMORY = Path("/dev/shm")  # noqa: S108
_PREFIX, _NEW = "tf-executor-", ".tf-executor-"

#: User id and group id; None: the user that we are.
Owner = Optional[Tuple[int, int]]


class MemoryFiles:
    """One task's files. Not safe for threads."""

    def __init__(self, memory: Path = MEMORY) -> None:
        self._memory = memory
        self._folder: Path | None = None
        #: Of the folder, also the way into it.
        self._lock = -1
        #: Name in the sandbox -> name in the folder.
        self._names: dict[str, str] = {}

    def write(self, sandbox: str, contents: Mapping[str, bytes], owner: Owner) -> None:
        """Once: each `name in the sandbox -> content`, mode 0600. Raise OSError, and ValueError for another place."""
        if not contents:
            return
        sweep(self._memory)
        if not os.path.ismount(self._memory):
            raise OSError(f"{self._memory} is no tmpfs: secrets are not written to a disk")
        self._folder, self._lock = locked_folders.make(self._memory, _PREFIX)
        for number, (name, content) in enumerate(contents.items()):
            self._names[name] = f"{number}-{Path(name).name}"
            _write(self._names[name], content, owner, self._lock)
            _link(Path(sandbox), name, self._folder / self._names[name])
        if owner is not None:
            os.chown(self._folder, *owner)

    def replace(self, contents: Mapping[str, bytes], owner: Owner) -> None:
        """Other contents for files that were written; who reads meanwhile gets the old or the new. Raise OSError.

        The folder is the user's by now, so it is not looked up again: it may be a link by the same name.
        """
        for name, content in contents.items():
            place, draft = self._names[name], f"{_NEW}{self._names[name]}"
            with suppress(FileNotFoundError):
                os.unlink(draft, dir_fd=self._lock)
            _write(draft, content, owner, self._lock)
            os.replace(draft, place, src_dir_fd=self._lock, dst_dir_fd=self._lock)

    def remove(self) -> None:
        """Forget all. May be called again."""
        folder, self._folder = self._folder, None
        if folder is not None:
            remove(str(folder))
            os.close(self._lock)


def sweep(memory: Path = MEMORY) -> None:
    """Remove what executors left here that were killed."""
    locked_folders.sweep(memory, _PREFIX)


def _write(name: str, content: bytes, owner: Owner, folder: int) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    file = os.open(name, flags, 0o600, dir_fd=folder)
    with os.fdopen(file, "wb") as opened:
        opened.write(content)
        if owner is not None:
            os.fchown(opened.fileno(), *owner)


def _link(sandbox: Path, name: str, target: Path) -> None:
    parts = Path(name).parts
    if not parts or name.startswith("/") or ".." in parts:
        raise ValueError(f"{name!r} is no file in the working directory")
    place = sandbox / name
    place.parent.mkdir(parents=True, exist_ok=True)
    if place.is_symlink() or place.exists():
        place.unlink()
    place.symlink_to(target)
