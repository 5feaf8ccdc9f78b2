"""Which GPUs a task gets on its agent.

Mesos gives a number, never which ones. With the agent's isolator gpu/nvidia the container sees only its own: they are
taken as they are. Without it the container sees all of the host's: then each task locks as many as it has, one file
for each GPU in a folder that the executors of the host share. The kernel drops a lock with the process that holds it,
so nothing is left behind by an executor that is killed.
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Mapping, Sequence

#: Folder for the locks; an operator sets another one for all executors (`--executor_environment_variables`).
FOLDER_VARIABLE = "TF_EXECUTOR_GPU_FOLDER"
DEFAULT_FOLDER = "tf-executor-gpus"
NVIDIA_SMI = "nvidia-smi"
#: Where it is when it is not on PATH: mounted by the agent's isolator, or by the driver's installer.
_FOLDERS = ("/usr/local/nvidia/bin", "/usr/bin", "/opt/bin")
QUERY = ("--query-gpu=uuid", "--format=csv,noheader")

log = logging.getLogger(__name__)

#: Runs a program and returns its output. Raises GpuError.
Ask = Callable[[Sequence[str]], str]


class GpuError(RuntimeError):
    """The task cannot have its GPUs; the text says why."""


class UnknownGpusError(GpuError):
    """Nobody says which GPUs there are."""


@dataclass(frozen=True)
class Locked:
    """GPUs of this task, by UUID, and what keeps others away from them."""

    uuids: tuple[str, ...] = ()
    descriptors: tuple[int, ...] = ()

    def release(self) -> None:
        """Others may have them."""
        for descriptor in self.descriptors:
            os.close(descriptor)


def choose(count: int, environ: Mapping[str, str], ask: Ask) -> Locked:
    """Take `count` GPUs. Raise GpuError."""
    program = shutil.which(NVIDIA_SMI, path=":".join((environ.get("PATH", ""), *_FOLDERS)))
    if program is None:
        raise UnknownGpusError(f"the task has {_gpus(count)}, but its container has no {NVIDIA_SMI} to find them")
    visible = parse(ask((program, *QUERY)))
    if len(visible) < count:
        raise GpuError(f"the task has {_gpus(count)}, but {NVIDIA_SMI} shows {len(visible)} in its container")
    return lock(visible, count, folder(environ))


def folder(environ: Mapping[str, str]) -> Path:
    """Where the executors of this host meet."""
    return Path(environ.get(FOLDER_VARIABLE) or Path(tempfile.gettempdir()) / DEFAULT_FOLDER)


def parse(output: str) -> tuple[str, ...]:
    """UUIDs, one a line. Raise UnknownGpusError for what is none, such as an error message on stdout."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    if not all(line.startswith(("GPU-", "MIG-")) for line in lines):
        raise UnknownGpusError(f"{NVIDIA_SMI} says: {lines[0][:200]}")
    return tuple(lines)


def lock(visible: Sequence[str], count: int, where: Path) -> Locked:
    """Lock the first `count` that are free and have a lock that can be had. Raise GpuError when there are fewer."""
    held: dict[str, int] = {}
    useless: list[str] = []
    _make_shared(where)
    for uuid in visible:
        if len(held) < count:
            try:
                descriptor = _try_lock(where / f"{uuid}.lock")
            except GpuError as error:
                log.warning("%s", error)
                useless.append(str(error))
                continue
            if descriptor is not None:
                held[uuid] = descriptor
    locked = Locked(tuple(held), tuple(held.values()))
    if len(held) < count:
        locked.release()
        taken = len(visible) - len(held) - len(useless)
        broken = f", and {len(useless)} cannot be locked: {useless[0]}" if useless else ""
        raise GpuError(
            f"the task has {_gpus(count)}, but other tasks hold {taken} of the {len(visible)} of this host{broken}"
        )
    return locked


def _gpus(count: int) -> str:
    return f"{count} GPU{'' if count == 1 else 's'}"


def _make_shared(where: Path) -> None:
    """Executors of all users of the host use it, as they do /tmp."""
    try:
        where.mkdir(mode=0o1777, parents=True)
        where.chmod(0o1777)
    except FileExistsError:
        return
    except OSError as error:
        raise GpuError(f"cannot make the folder {where} for the locks of GPUs: {error.strerror}") from error


def _try_lock(path: Path) -> int | None:
    """A descriptor that holds the lock; None: somebody else has it. Raise GpuError for what is no lock."""
    try:
        descriptor = _open(path)
    except OSError as error:
        raise GpuError(f"cannot open the lock {path} of a GPU: {error.strerror}") from error
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise GpuError(f"the lock {path} of a GPU is no file")
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not _is_at(path, descriptor):
            raise GpuError(f"the lock {path} of a GPU was replaced")
    except BlockingIOError:
        os.close(descriptor)
        return None
    except GpuError:
        os.close(descriptor)
        raise
    return descriptor


def _is_at(path: Path, descriptor: int) -> bool:
    """Its owner may have put another file there meanwhile, which others lock."""
    try:
        return os.path.samestat(os.lstat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _open(path: Path) -> int:
    """To be read is enough for a lock; in a folder like /tmp the kernel refuses O_CREAT for another user's file.

    Nothing that somebody has put there may hold us up: a pipe without a writer would.
    """
    there = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        return os.open(path, there)
    except FileNotFoundError:
        try:
            return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_CREAT | os.O_EXCL, 0o444)
        except FileExistsError:  # another executor was faster
            return os.open(path, there)
