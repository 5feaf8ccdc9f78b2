"""The directory of a cluster: made, emptied of an earlier cluster, never of anything else."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from .errors import MesosLocalError, NodeDiedError
from .helpers import remove_helpers
from .record import NAME, Record, read_record
from .telling import reason, telling

LOCK = "lock"
_LAST = "last-cluster"  # left when a cluster ends: what is here is ours to replace
_OURS = ("agents", "libexec", "logs", "master", "zookeeper")
_PREFIX = "mesos-local-"


def make_directory(given: Path | None) -> Path:
    """`given`, or a new temporary one, without symbolic links. Raises MesosLocalError if it cannot be made."""
    where = given or Path(tempfile.gettempdir())
    if not str(where.absolute()).isprintable():  # ZooKeeper's configuration is text of lines
        raise MesosLocalError(f"{str(where)!r} cannot be used: the path holds characters that cannot be printed.")
    try:
        if given is not None:
            given.mkdir(parents=True, exist_ok=True)
            return given.resolve()
        directory = Path(tempfile.mkdtemp(prefix=_PREFIX)).resolve()
        directory.chmod(0o755)  # tasks may run as another user
        return directory
    except FileExistsError as error:
        raise MesosLocalError(f"The folder {where} cannot be used: it is a file.") from error
    except OSError as error:
        raise MesosLocalError(f"The folder {where} cannot be used: {reason(error, where)}") from error


def is_temporary(directory: Path) -> bool:
    """Whether it looks like a temporary one that we made: for one without a record that would tell."""
    home = Path(tempfile.gettempdir()).resolve()
    return directory.name.startswith(_PREFIX) and directory.resolve().parent == home


def has_been_used(directory: Path) -> bool:
    """Whether a cluster of ours is, or was, in this directory."""
    return (directory / _LAST).exists() or (directory / NAME).exists()


def clear_directory(directory: Path) -> None:
    """Remove what an earlier cluster left and make `logs`. Hold the directory's LOCK.

    Raises MesosLocalError if a cluster runs there, or if it holds what no cluster of ours has left.
    """
    with telling("The folder", directory):
        if not has_been_used(directory) and any(entry.name != LOCK for entry in directory.iterdir()):
            raise MesosLocalError(f"{directory} is not empty, and what it holds is not from a local cluster.")
        record = read_record(directory)
        if record and record.any_alive():
            raise _occupied(directory, record)
        remove_helpers(directory)
        for name in _OURS:
            shutil.rmtree(directory / name, ignore_errors=True)
        (directory / "logs").mkdir(mode=0o700)


def _occupied(directory: Path, record: Record) -> MesosLocalError:
    if record.ended():
        return NodeDiedError(f"{record.broken(directory)} Then start a new one.")
    master = record.nodes["master"].address
    return MesosLocalError(f"A local cluster already runs in {directory} (master {master}).")


def release_directory(directory: Path, temporary: bool) -> None:
    """Remove a temporary one; in another one leave logs and sandboxes, but no record of a running cluster."""
    if not directory.exists():
        return
    remove_helpers(directory)
    if temporary:
        shutil.rmtree(directory, ignore_errors=True)
        if directory.exists():
            raise MesosLocalError(f"The folder {directory} cannot be removed.")
    else:
        with telling("The folder", directory):
            (directory / _LAST).touch()
            (directory / NAME).unlink(missing_ok=True)
