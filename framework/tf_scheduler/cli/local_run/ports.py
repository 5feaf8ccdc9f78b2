"""Allocate the ports of local clusters, which share one machine, in blocks of 300."""

from __future__ import annotations

import fcntl
import os
import stat
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from mesos_local.agents import FIRST_PORT
from mesos_local.host import MesosLocalError, ProcessId, is_free
from mesos_local.record import read_record
from tf_scheduler.errors import JobError

#: First ports of clusters of `local up`: Mesos' default, then those between it and the ports of nodes (to 29999).
_PERSISTENT_BLOCKS = (FIRST_PORT, *range(30_000, 30_601, 300))
#: First ports of runs: below the ports that nodes listen on (from 20000); then above those of `local up` (from 31000)
#: and below those that Linux uses for outgoing connections (from 32768).
_RUN_BLOCKS = (*range(10_000, 19_701, 300), *range(31_300, 32_401, 300))


@contextmanager
def port_block() -> Iterator[int]:
    """Reserve a block and yield its first port; a killed process releases its block.

    Each run of this user has its own block. A block whose first port is in use is skipped. Raises JobError if no block
    is free.
    """
    with claimed_port(_RUN_BLOCKS) as first:
        if first is None:
            raise JobError(f"cannot start another local run: all {len(_RUN_BLOCKS)} port blocks are in use")
        yield first


@contextmanager
def claimed_port(ports: Iterable[int]) -> Iterator[int | None]:
    """Claim and yield the first free port that no process of this user has; else None."""
    folder = _claims_folder()
    for port in ports:
        with _open_claim(folder / str(port)) as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            if is_free(port):
                yield port
                return
    yield None


def claim_ports(directory: Path) -> tuple[int, Path | None]:
    """Reserve a block; return its first port and the cluster with the default ports.

    The second value is None if the default ports are free. The block is released when the cluster has stopped, or, if
    it never starts, when this process exits. Raises JobError if none is free.
    """
    folder, directory = _claims_folder(), directory.resolve()
    with _open_claim(folder / "choice") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        holders = {first: _holder(folder / f"up-{first}") for first in _PERSISTENT_BLOCKS}
        default = holders[FIRST_PORT]
        for first, holder in holders.items():
            if holder in (None, directory):
                owner = ProcessId.current()
                with _open_claim(folder / f"up-{first}") as note:
                    note.truncate()
                    note.write(f"{owner.pid} {owner.start_time} {directory}")
                return first, default if first != FIRST_PORT else None
    raise JobError(f"cannot start another local cluster: all {len(_PERSISTENT_BLOCKS)} port blocks are in use")


def _claims_folder() -> Path:
    folder = Path(tempfile.gettempdir()) / f"dcos-tensorflow-ports-{os.getuid()}"
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    status = folder.lstat()
    # The name is predictable, so another user may have created it, with links to files of this user.
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise JobError(f"{folder}: must be a folder that only you can write to; remove it, or change TMPDIR")
    return folder


def _open_claim(path: Path) -> IO[str]:
    """Open the file of a claim without truncating it. Raises JobError for a link."""
    try:
        return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600), "r+")
    except OSError as error:
        raise JobError(f"{path}: cannot be opened: {error.strerror}") from error


def _holder(note: Path) -> Path | None:
    """Return the folder of the cluster with these ports; None if it has stopped."""
    try:
        pid, start_time, name = note.read_text().split(" ", 2)
        starting = ProcessId(int(pid), int(start_time))
    except (OSError, ValueError):
        return None
    return Path(name) if starting.alive() or _is_up(Path(name)) else None


def _is_up(directory: Path) -> bool:
    """Whether any node of the cluster may run; an unreadable record counts as running."""
    try:
        record = read_record(directory)
    except MesosLocalError:
        return True
    return record is not None and record.any_alive()
