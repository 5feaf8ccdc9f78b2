"""Ports for the agents of a cluster of one's own: all local clusters share the machine's."""

from __future__ import annotations

import fcntl
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from mesos_local.agents import FIRST_PORT
from mesos_local.host.errors import MesosLocalError
from mesos_local.host.process import ProcessId, is_free
from mesos_local.record import read_record
from tf_scheduler.errors import JobError

#: First ports of clusters that stay up: Mesos' own, then the room between it and the masters' and agents' (to 29999).
_PERSISTENT_BLOCKS = (FIRST_PORT, *range(30_000, 30_601, 300))
#: Below the ports that masters and agents listen on (from 20000); then above those of `local up` (from 31000), below
#: those that Linux takes for outgoing connections (from 32768).
_RUN_BLOCKS = (*range(10_000, 19_701, 300), *range(31_300, 32_401, 300))


@contextmanager
def port_block() -> Iterator[int]:
    """The first port of 300 that no other run of this user has; held until the end, also by a sudden one.

    Wherever the runs keep their state. Whose first port is in use belongs to somebody else.
    """
    folder = _claims_folder()
    for first in filter(is_free, _RUN_BLOCKS):
        with _open_claim(folder / str(first)) as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            yield first
            return
    raise JobError(f"{len(_RUN_BLOCKS)} local runs are under way: that is as many as there are ports for")


def claim_ports(directory: Path) -> tuple[int, Path | None]:
    """The first port of 300 that no other cluster of this user which is up offers, and who has the usual ones, if so.

    It is noted until the cluster in `directory` has ended, or, if it never starts, this process.
    """
    folder, directory = _claims_folder(), directory.resolve()
    with _open_claim(folder / "choice") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        holders = {first: _holder(folder / f"up-{first}") for first in _PERSISTENT_BLOCKS}
        usual = holders[FIRST_PORT]
        for first, holder in holders.items():
            if holder in (None, directory):
                with _open_claim(folder / f"up-{first}") as note:
                    note.truncate()
                    note.write(f"{os.getpid()} {_this_process().start_time} {directory}")
                return first, usual if first != FIRST_PORT else None
    raise JobError(f"{len(_PERSISTENT_BLOCKS)} local clusters are up: that is as many as there are ports for")


def _claims_folder() -> Path:
    folder = Path(tempfile.gettempdir()) / f"dcos-tensorflow-ports-{os.getuid()}"
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    # Everybody knows its name: somebody else may have been there first, to have us write where links of theirs lead.
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        must = "must be a folder that belongs to you and that nobody else may write"
        raise JobError(f"{folder} {must}: remove it, or set TMPDIR to a folder of your own")
    return folder


def _open_claim(path: Path) -> IO[str]:
    """To be read, locked and written; what it says stays until then. Raise JobError if it is a link."""
    try:
        return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600), "r+")
    except OSError as error:
        raise JobError(f"{path}, where ports are noted, cannot be used: {error.strerror}") from error


def _this_process() -> ProcessId:
    found = ProcessId.of(os.getpid())
    assert found is not None
    return found


def _holder(note: Path) -> Path | None:
    """The folder of the cluster that has these ports; None when it has ended."""
    try:
        pid, start_time, name = note.read_text().split(" ", 2)
        starting = ProcessId(int(pid), int(start_time))
    except (OSError, ValueError):
        return None
    return Path(name) if starting.alive() or _is_up(Path(name)) else None


def _is_up(directory: Path) -> bool:
    """Whether any part of it still runs; one that cannot be read may."""
    try:
        record = read_record(directory)
    except MesosLocalError:
        return True
    return record is not None and record.any_alive()
