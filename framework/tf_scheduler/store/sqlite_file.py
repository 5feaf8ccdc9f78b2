"""The SQLite store's file: made safely, known to be ours, brought to the current schema, its errors explained."""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tf_scheduler.store.interface import StoreCorrupt, StoreError, StoreUnavailable, StoreVersionError
from tf_scheduler.store.turn import turn

#: Step n takes a file from schema version n to n + 1; the first makes an empty file ours. Never change a released step.
MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        "CREATE TABLE schema_version (version INTEGER NOT NULL)",
        "INSERT INTO schema_version VALUES (0)",
        "CREATE TABLE service (name TEXT PRIMARY KEY NOT NULL, version INTEGER NOT NULL)",
        "CREATE TABLE entry (service TEXT NOT NULL, key TEXT NOT NULL,"
        " value BLOB NOT NULL CHECK (typeof(value) = 'blob'), PRIMARY KEY (service, key))",
    ),
)
_TABLES = {"schema_version", "service", "entry"}


def open_file(path: Path, busy_timeout: float) -> sqlite3.Connection:
    """Return a connection in autocommit mode to the state file, created with its folder when missing.

    Raises StoreCorrupt, StoreVersionError, StoreUnavailable, StoreError; a file that is not ours is left as it was.
    """
    with explained(path):
        _create(path)
        with turn(path.parent):
            return _connect(path, busy_timeout)


def identity(path: Path) -> tuple[int, int] | None:
    """Return which file the path leads to, as (device, inode); None when there is none."""
    with suppress(OSError):
        status = path.stat()
        return status.st_dev, status.st_ino
    return None


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn SQLite's and the system's errors into ours.

    The driver's classes are enough to tell them apart: its result codes came with Python 3.11.
    """
    try:
        yield
    except sqlite3.OperationalError as error:
        raise StoreUnavailable(f"{path} cannot be used for now: {error}") from error
    except (
        sqlite3.ProgrammingError,
        sqlite3.IntegrityError,
        sqlite3.DataError,
        sqlite3.InterfaceError,
        OSError,
    ) as error:
        raise StoreError(f"{path}: {error}") from error
    except sqlite3.DatabaseError as error:
        raise _corrupt(path, str(error)) from error


def _create(path: Path) -> None:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Only a new file is opened here: closing any other would drop the locks this process holds on it (POSIX).
        with suppress(FileExistsError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        if not stat.S_ISREG(path.stat().st_mode):
            raise StoreError(f"the state file {path} is not a regular file; give the path of a file")
    except (OSError, ValueError) as error:
        raise StoreError(f"cannot create the state file {path}: {error}") from error


def _connect(path: Path, busy_timeout: float) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=busy_timeout, isolation_level=None, check_same_thread=False)
    try:
        _adopt(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def _adopt(connection: sqlite3.Connection, path: Path) -> None:
    """Check that the file is ours and whole before anything is written, then bring it to the current schema."""
    _schema_version(connection, path)
    if (check := connection.execute("PRAGMA quick_check(1)").fetchone()) != ("ok",):
        raise _corrupt(path, str(check[0]))
    _make_private(path)
    if connection.execute("PRAGMA journal_mode = WAL").fetchone() != ("wal",):
        raise StoreError(f"{path}: its file system does not support SQLite's write-ahead log; choose a local one")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("BEGIN IMMEDIATE")
    _migrate(connection, _schema_version(connection, path))
    connection.execute("COMMIT")


def _schema_version(connection: sqlite3.Connection, path: Path) -> int:
    """Return how many migrations the file has been through, 0 for an empty file."""
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if not tables:
        return 0
    rows = list(connection.execute("SELECT version FROM schema_version")) if tables >= _TABLES else []
    if len(rows) != 1:
        raise _corrupt(path, "it is the database of another program")
    version = int(rows[0][0])
    if version > len(MIGRATIONS):
        raise StoreVersionError(
            f"{path} was written by a newer version of this program (schema {version}, known here: up to "
            f"{len(MIGRATIONS)}): run that version, or give the path of another file"
        )
    return version


def _migrate(connection: sqlite3.Connection, version: int) -> None:
    for statements in MIGRATIONS[version:]:
        for statement in statements:
            connection.execute(statement)
    if version < len(MIGRATIONS):
        connection.execute("UPDATE schema_version SET version = ?", (len(MIGRATIONS),))


def _make_private(path: Path) -> None:
    """Let only the owner read the state, and the log and index that SQLite keeps beside it."""
    for file in (path, Path(f"{path}-wal"), Path(f"{path}-shm")):
        with suppress(FileNotFoundError):
            if file.stat().st_mode & 0o077:
                file.chmod(0o600)


def _corrupt(path: Path, reason: str) -> StoreCorrupt:
    return StoreCorrupt(
        f"{path} is no usable state file: {reason}. Move it aside, with {path.name}-wal and {path.name}-shm, "
        "and restore a backup; without one, start with no file: running tasks are then unknown to the scheduler"
    )
