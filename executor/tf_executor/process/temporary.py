"""Make and remove a task's temporary folder and in-memory files; remove orphans.

Each folder has a lock, which the kernel releases when the executor exits. So other executors can recognise orphans.
systemd-tmpfiles keeps locked folders regardless of their age (tmpfiles.d(5), Age).
"""

from __future__ import annotations

import fcntl
import logging
import os
import tempfile
import threading
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Callable, Mapping, Optional, Tuple

from .watchdog_process import remove_folder


def make_locked_folder(where: Path, prefix: str) -> tuple[Path, int]:
    """Make a locked folder of mode 0700 in `where`; return it and its descriptor.

    Until the folder is locked, it has another name, which `remove_orphans` ignores. Raises OSError.
    """
    draft = Path(tempfile.mkdtemp(prefix=f".{prefix}", dir=str(where)))
    try:
        lock = os.open(draft, os.O_RDONLY | os.O_CLOEXEC)
        fcntl.flock(lock, fcntl.LOCK_EX)
        return draft.rename(draft.with_name(draft.name[1:])), lock
    except OSError:
        draft.rmdir()
        raise


def remove_orphans(where: Path, prefix: str) -> None:
    """Remove the folders of exited executors, as far as permissions allow."""
    for folder in where.glob(f"{prefix}*"):
        with suppress(OSError):
            lock = os.open(folder, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_DIRECTORY)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                remove_folder(str(folder))
            finally:
                os.close(lock)


# In-memory files. Each executor has its own folder in a tmpfs; the watchdog removes the folder of a killed one, the
# next executor of the same user, or of root, the folder of one that was killed together with its watchdog. The sandbox
# contains links, which the agent's file API does not follow.


#: POSIX shared memory: a tmpfs on every Linux, also in containers.
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108
#: Prefix of folder names, and of drafts of files.
PREFIX, _NEW = "tf-executor-", ".tf-executor-"

#: User id and group id; None: the executor's own.
Owner = Optional[Tuple[int, int]]


class MemoryFiles:
    """Files of one task in a tmpfs. Not thread-safe."""

    def __init__(self, memory: Path = SHARED_MEMORY, watch_folder: Callable[[str], None] = lambda _: None) -> None:
        """`watch_folder`: the result of `start_watchdog`."""
        self._memory, self._watch_folder = memory, watch_folder
        self._folder: Path | None = None
        #: Descriptor of the folder; holds its lock.
        self._lock = -1
        #: Name in the sandbox -> name in the folder.
        self._names: dict[str, str] = {}

    def write(self, sandbox: str, contents: Mapping[str, bytes], owner: Owner) -> None:
        """Write `contents`, by name in the sandbox, with mode 0600; call it only once.

        Raises OSError, or ValueError for a path outside the sandbox.
        """
        if not contents:
            return
        remove_orphans(self._memory, PREFIX)
        if not os.path.ismount(self._memory):
            raise OSError(f"{self._memory} is not a tmpfs, so secrets would be written to disk; mount a tmpfs")
        self._folder, self._lock = make_locked_folder(self._memory, PREFIX)
        with suppress(OSError):  # without the watchdog
            self._watch_folder(str(self._folder))
        for number, (name, content) in enumerate(contents.items()):
            self._names[name] = f"{number}-{Path(name).name}"
            _write(self._names[name], content, owner, self._lock)
            _link(sandbox, name, self._folder / self._names[name])
        if owner is not None:
            os.chown(self._folder, *owner)

    def replace(self, contents: Mapping[str, bytes], owner: Owner) -> None:
        """Replace contents atomically. Raises OSError.

        Uses the folder's descriptor, because the user owns the folder and may have replaced the path by a link.
        """
        for name, content in contents.items():
            replace_file(self._names[name], content, owner, self._lock)

    def remove(self) -> None:
        """Remove all files. May be called again."""
        folder, self._folder = self._folder, None
        if folder is not None:
            remove_folder(str(folder))
            os.close(self._lock)


def replace_file(name: str, content: bytes, owner: Owner, folder: int) -> None:
    """Write a file of mode 0600 atomically in an open folder. Raises OSError.

    Follows no link and opens no existing file, because the executor may be root in a folder of the program's user.
    """
    draft = f"{_NEW}{name}"
    with suppress(FileNotFoundError):
        os.unlink(draft, dir_fd=folder)
    _write(draft, content, owner, folder)
    os.replace(draft, name, src_dir_fd=folder, dst_dir_fd=folder)


def _write(name: str, content: bytes, owner: Owner, folder: int) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    file = os.open(name, flags, 0o600, dir_fd=folder)
    with os.fdopen(file, "wb") as opened:
        opened.write(content)
        if owner is not None:
            os.fchown(opened.fileno(), *owner)


def _link(sandbox: str, name: str, target: Path) -> None:
    """Link `name` to `target`; follow no link, which another task may have made."""
    parts = Path(name).parts
    if not parts or name.startswith("/") or ".." in parts:
        raise ValueError(f"`{name}`: not a path inside the working directory")
    flags = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    with ExitStack() as stack:
        folder = -1
        for part in (os.path.realpath(sandbox), *parts[:-1]):
            with suppress(FileExistsError):
                os.mkdir(part, dir_fd=folder)
            folder = os.open(part, flags, dir_fd=folder)
            stack.callback(os.close, folder)
        with suppress(FileNotFoundError):
            os.unlink(parts[-1], dir_fd=folder)
        os.symlink(target, parts[-1], dir_fd=folder)


# Temporary folder: TMPDIR of the task. TensorFlow writes a file for each compiled function and removes it at exit;
# those of killed programs would stay in the agent's /tmp. The folder is outside the sandbox because paths of AF_UNIX
# sockets are limited to 107 characters (unix(7)).

_DEFAULT = "/tmp"  # noqa: S108 - the folder in it has a random name
_TEMPORARY_PREFIX = "tf-task-"
#: Seconds to wait for the removal, which continues in the background.
REMOVAL_LIMIT = 1.0

log = logging.getLogger(__name__)


class TemporaryFolder:
    """Temporary folder of a task; the watchdog removes it if the executor is killed."""

    def __init__(self, watch_folder: Callable[[str], None]) -> None:
        self._watch_folder = watch_folder
        self._folder: Path | None = None

    def make(self, environ: Mapping[str, str], owner: tuple[int, int] | None) -> str:
        """Make the folder for `owner` (None: the executor) in the TMPDIR of `environ`.

        Return its path, or an empty string on failure: programs then use the system's folder.
        """
        try:
            # The lock is held until the executor exits.
            self._folder, _ = make_locked_folder(Path(environ.get("TMPDIR") or _DEFAULT).absolute(), _TEMPORARY_PREFIX)
            self._watch_folder(str(self._folder))
            if owner is not None:
                os.chown(self._folder, *owner)
        except OSError as error:
            log.warning("cannot create a temporary folder for the task: %s", error)
            return ""
        return str(self._folder)

    def remove(self) -> None:
        """Remove the folder after all processes have exited; this may take long."""
        if self._folder is None:
            return
        done = threading.Event()
        threading.Thread(target=_remove, args=(self._folder, done), name="temporary", daemon=True).start()
        if not done.wait(REMOVAL_LIMIT):
            log.warning("the removal of %s continues in the background", self._folder)


def _remove(folder: Path, done: threading.Event) -> None:
    remove_folder(str(folder))
    done.set()
    # An agent may have killed watchdogs together with their executors (control group): remove orphans.
    remove_orphans(folder.parent, _TEMPORARY_PREFIX)
