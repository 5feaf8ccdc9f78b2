"""Choose the task's GPUs with nvidia-smi, and lock them against other tasks.

Mesos assigns a number of GPUs, not devices. With the agent's isolator gpu/nvidia the container sees only its own
GPUs. Otherwise it sees all GPUs of the host, and each task locks its GPUs: one file per GPU in a folder that the
host's executors share. The kernel releases the locks of a killed executor.
"""

from __future__ import annotations

import fcntl
import logging
import os
import shlex
import shutil
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Mapping, Sequence

from tf_executor.contract.payload import Payload
from tf_executor.launch.environment import public_variables
from tf_executor.lifecycle.events import describe_end
from tf_executor.process.supervisor import CommandContext, ProcessLimits, SpawnError, Supervisor

#: Variable with the lock folder, which an operator sets for all executors (`--executor_environment_variables`).
FOLDER_VARIABLE = "TF_EXECUTOR_GPU_FOLDER"
DEFAULT_FOLDER = "tf-executor-gpus"
NVIDIA_SMI = "nvidia-smi"
#: Folders to search if nvidia-smi is not on PATH: mounted by the agent's isolator or the driver's installer.
_FOLDERS = ("/usr/local/nvidia/bin", "/usr/bin", "/opt/bin")
QUERY = ("--query-gpu=uuid", "--format=csv,noheader")

log = logging.getLogger(__name__)

#: Run a program and return its output. Raises GpuError.
RunProgram = Callable[[Sequence[str]], str]


class GpuError(RuntimeError):
    """The task cannot get its GPUs."""


class UnknownGpusError(GpuError):
    """The GPUs of the container cannot be determined."""


@dataclass(frozen=True)
class GpuLocks:
    """UUIDs of the task's GPUs and the descriptors that hold their locks."""

    uuids: tuple[str, ...] = ()
    descriptors: tuple[int, ...] = ()

    def release(self) -> None:
        for descriptor in self.descriptors:
            os.close(descriptor)


def choose_gpus(count: int, environ: Mapping[str, str], run: RunProgram) -> GpuLocks:
    """Lock `count` of the container's GPUs, which nvidia-smi lists. Raises GpuError."""
    program = shutil.which(NVIDIA_SMI, path=":".join((environ.get("PATH", ""), *_FOLDERS)))
    if program is None:
        raise UnknownGpusError(f"cannot determine the task's {_gpus(count)}: {NVIDIA_SMI} not found in its container")
    visible = parse_uuids(run((program, *QUERY)))
    if len(visible) < count:
        raise GpuError(f"the task needs {_gpus(count)}, but {NVIDIA_SMI} shows {len(visible)} in its container")
    folder = Path(environ.get(FOLDER_VARIABLE) or Path(tempfile.gettempdir()) / DEFAULT_FOLDER)
    return lock_gpus(visible, count, folder)


def parse_uuids(output: str) -> tuple[str, ...]:
    """Parse one UUID per line. Raises UnknownGpusError for other output."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    if not all(line.startswith(("GPU-", "MIG-")) for line in lines):
        raise UnknownGpusError(f"unexpected output of {NVIDIA_SMI}: {lines[0][:200]}")
    return tuple(lines)


def lock_gpus(visible: Sequence[str], count: int, where: Path) -> GpuLocks:
    """Lock the first `count` available GPUs. Raises GpuError."""
    held: dict[str, int] = {}
    broken: list[str] = []
    _make_shared(where)
    for uuid in visible:
        if len(held) < count:
            try:
                descriptor = _try_lock(where / f"{uuid}.lock")
            except GpuError as error:
                log.warning("%s", error)
                broken.append(str(error))
                continue
            if descriptor is not None:
                held[uuid] = descriptor
    locked = GpuLocks(tuple(held), tuple(held.values()))
    if len(held) < count:
        locked.release()
        others = len(visible) - len(held) - len(broken)
        detail = f"; {_gpus(len(broken))} cannot be locked: {broken[0]}" if broken else ""
        used = f"{others} of the host's {len(visible)}"
        raise GpuError(f"the task needs {_gpus(count)}, but other tasks use {used}{detail}")
    return locked


def _gpus(count: int) -> str:
    return f"{count} GPU{'' if count == 1 else 's'}"


def _make_shared(where: Path) -> None:
    """Create a folder that executors of all users share, like /tmp."""
    try:
        where.mkdir(mode=0o1777, parents=True)
        where.chmod(0o1777)
    except FileExistsError:
        return
    except OSError as error:
        raise GpuError(f"cannot create GPU lock folder {where}: {error.strerror}") from error


def _try_lock(path: Path) -> int | None:
    """Return the lock's descriptor; None if another process has it. Raises GpuError."""
    try:
        descriptor = _open(path)
    except OSError as error:
        raise GpuError(f"cannot open GPU lock {path}: {error.strerror}") from error
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise GpuError(f"GPU lock {path} is not a regular file")
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not _is_at(path, descriptor):
            raise GpuError(f"GPU lock {path} was replaced")
    except BlockingIOError:
        os.close(descriptor)
        return None
    except GpuError:
        os.close(descriptor)
        raise
    return descriptor


def _is_at(path: Path, descriptor: int) -> bool:
    """Return whether the path and the descriptor still refer to the same file."""
    try:
        return os.path.samestat(os.lstat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _open(path: Path) -> int:
    """Open a lock file read-only; create it only if it does not exist.

    In a folder like /tmp the kernel refuses O_CREAT for another user's file. With O_NONBLOCK, opening a pipe does not
    block.
    """
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        return os.open(path, flags)
    except FileNotFoundError:
        try:
            return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_CREAT | os.O_EXCL, 0o444)
        except FileExistsError:  # created by another executor meanwhile
            return os.open(path, flags)


# The task's GPUs.

#: Seconds for nvidia-smi: without persistence mode it first initialises the driver.
NVIDIA_SMI_TIMEOUT = 60.0


class TaskGpus:
    """The task's GPUs, chosen in a thread, and locked while the task runs."""

    def __init__(self, payload: Payload, environ: Mapping[str, str], sandbox: str, supervisor: Supervisor) -> None:
        self._payload, self._environ = payload, environ
        self._sandbox, self._supervisor = sandbox, supervisor
        self._locked: GpuLocks | None = GpuLocks() if payload.gpus == 0 else None

    @property
    def uuids(self) -> Sequence[str] | None:
        """UUIDs or indices of the GPUs; None: all GPUs of the container."""
        return None if self._locked is None else self._locked.uuids

    def choose(self) -> str:
        """Allocate the GPUs; return an error or an empty string. May wait for a driver."""
        payload = self._payload
        try:
            if payload.gpu_devices:
                self._locked = GpuLocks(tuple(payload.gpu_devices))
            else:
                self._locked = choose_gpus(payload.gpus, self._environ, self._run)
        except (GpuError, SpawnError) as error:
            log.warning("%s", error)
            # Without gpu_check a task may use all GPUs of its container, but never GPUs that other tasks hold.
            is_tolerated = isinstance(error, UnknownGpusError) and not payload.settings.gpu_check
            return "" if is_tolerated else str(error)
        log.info("GPUs %s", self._locked.uuids)
        return ""

    def release(self) -> None:
        if self._locked is not None:
            self._locked.release()

    def _run(self, command: Sequence[str]) -> str:
        """Run a program that is not the user's; return its output. Raises GpuError."""
        output = os.memfd_create("output")
        with os.fdopen(output, "rb") as file:
            limits = ProcessLimits(new_privileges=self._payload.settings.new_privileges)
            context = CommandContext(public_variables(self._environ), self._sandbox, output, output, limits)
            ending = self._supervisor.run(shlex.join(command), context, NVIDIA_SMI_TIMEOUT)
            file.seek(0)
            text = file.read().decode("utf-8", "replace").strip()
        name = Path(command[0]).name
        if ending is None:
            raise UnknownGpusError(f"{name} timed out after {NVIDIA_SMI_TIMEOUT:g} s; the GPU driver may hang")
        if ending.exit_code != 0:
            raise UnknownGpusError(f"{name}: {describe_end(ending)}: {text[-200:]}")
        return text
