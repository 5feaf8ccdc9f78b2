"""SQLite state store: one file, durable against kill -9 and power loss.

    schema_version   one row: number of applied MIGRATIONS
    service          name, version: grows with every change of the service, survives its erasure
    entry            service, key, value

The file uses WAL and one fsync per apply. Several services may share it. Each write compares the service's version in
its transaction, which stops a second scheduler from overwriting the first one's state.
"""

from __future__ import annotations

import errno
import fcntl
import os
import sqlite3
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType

from . import interface


@contextmanager
def directory_lock(folder: Path) -> Iterator[bool]:
    """Lock a folder while a file in it is opened; SQLite does not wait for WAL set-up.

    Yields whether the folder is locked. On file systems without locks, two simultaneous first starts may raise
    StoreUnavailableError, but do not damage the state.
    """
    descriptor, locked = os.open(folder, os.O_RDONLY | os.O_DIRECTORY), False
    try:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            locked = True
        yield locked
    finally:
        os.close(descriptor)


#: Step n upgrades a file from schema version n to n + 1; the first one initializes a file. Never change a released one.
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
    """Open the state file in autocommit mode, creating it and its folder if missing.

    Raises StoreError; a file of another program stays unchanged.
    """
    with translate_errors(path):
        _create(path)
        with directory_lock(path.parent):
            connection = sqlite3.connect(path, timeout=busy_timeout, isolation_level=None, check_same_thread=False)
            try:
                _adopt(connection, path)
            except BaseException:
                connection.close()
                raise
            return connection


def file_identity(path: Path) -> tuple[int, int] | None:
    """Return (device, inode) of the file; None if it does not exist."""
    with suppress(OSError):
        status = path.stat()
        return status.st_dev, status.st_ino
    return None


@contextmanager
def translate_errors(path: Path) -> Iterator[None]:
    """Translate errors of SQLite and the system to StoreError.

    Only the classes of the driver's errors are used, because their result codes need Python 3.11.
    """
    try:
        yield
    except sqlite3.OperationalError as error:
        if denied := _denied(path):
            raise interface.StoreError(f"{path} is unavailable: {error}; {denied}") from error
        holders = _holders(path) if "locked" in str(error) else ""
        raise interface.StoreUnavailableError(f"{path} is unavailable: {error}{holders}") from error
    except OSError as error:
        raise _system_error(f"{path} is unavailable", error) from error
    except (sqlite3.ProgrammingError, sqlite3.IntegrityError, sqlite3.DataError, sqlite3.InterfaceError) as error:
        raise interface.StoreError(f"{path}: {error}") from error
    except sqlite3.DatabaseError as error:
        raise _corrupt(path, str(error)) from error


def _holders(path: Path) -> str:
    """Return which other processes have locked the file (proc(5), /proc/locks)."""
    files = (file_identity(item) for item in (path, path.with_name(f"{path.name}-shm")))
    inodes = {str(identity[1]) for identity in files if identity is not None}
    with suppress(OSError):
        locks = (line.split() for line in Path("/proc/locks").read_text().splitlines() if "->" not in line)
        pids = {fields[4] for fields in locks if fields[3] == "WRITE" and fields[5].rpartition(":")[2] in inodes}
        if others := sorted(pids - {str(os.getpid())}):
            return f" by process {', '.join(others)}; if it is stopped, continue or end it"
    return ""


def _system_error(what: str, error: OSError | ValueError) -> interface.StoreError:
    """Return StoreUnavailableError for a possibly temporary error, else StoreError."""
    passes = isinstance(error, OSError) and error.errno in _PASSING
    return (interface.StoreUnavailableError if passes else interface.StoreError)(f"{what}: {error}")


#: Disk full or read-only, no descriptor or lock left, a network file system that does not answer.
_PASSING = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM}
    | {errno.ENOLCK, errno.ESTALE, errno.ETIMEDOUT}
)


def _denied(path: Path) -> str:
    """Return advice if the user lacks a right that SQLite's message does not name."""
    with suppress(OSError):
        if os.statvfs(path.parent).f_flag & os.ST_RDONLY:
            return ""  # the file system, not this user
        for item, rights in ((path.parent, os.W_OK | os.X_OK), (path, os.R_OK | os.W_OK)):
            if item.exists() and not os.access(item, rights, effective_ids=True):
                return f"give the scheduler's user access to {item}"
    return ""


def _create(path: Path) -> None:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Open only a new file: closing an existing one would drop this process's POSIX locks on it.
        with suppress(FileExistsError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        if os.statvfs(path).f_flag & os.ST_RDONLY:
            # SQLite would open it for reading, and not write even when the file system is writable again.
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        if not stat.S_ISREG(path.stat().st_mode):
            raise interface.StoreError(f"state file {path} is not a regular file; choose another path")
    except (OSError, ValueError) as error:
        raise _system_error(f"cannot open state file {path}", error) from error


def _adopt(connection: sqlite3.Connection, path: Path) -> None:
    """Verify the file's owner and integrity, then upgrade it to the current schema."""
    _schema_version(connection, path)
    if (check := connection.execute("PRAGMA quick_check(1)").fetchone()) != ("ok",):
        raise _corrupt(path, str(check[0]))
    # Restrict the state file and SQLite's log and index to the owner.
    for file in (path, Path(f"{path}-wal"), Path(f"{path}-shm")):
        with suppress(FileNotFoundError):
            if file.stat().st_mode & 0o077:
                file.chmod(0o600)
    if connection.execute("PRAGMA journal_mode = WAL").fetchone() != ("wal",):
        raise interface.StoreError(
            f"{path}: the file system does not support SQLite's write-ahead log; use a local file system"
        )
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("BEGIN IMMEDIATE")
    version = _schema_version(connection, path)
    for statements in MIGRATIONS[version:]:
        for statement in statements:
            connection.execute(statement)
    if version < len(MIGRATIONS):
        connection.execute("UPDATE schema_version SET version = ?", (len(MIGRATIONS),))
    connection.execute("COMMIT")


def _schema_version(connection: sqlite3.Connection, path: Path) -> int:
    """Return the number of applied migrations, 0 for an empty file."""
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if not tables:
        return 0
    rows = list(connection.execute("SELECT version FROM schema_version")) if tables >= _TABLES else []
    if len(rows) != 1:
        raise _corrupt(path, "the database belongs to another program")
    version = int(rows[0][0])
    if version > len(MIGRATIONS):
        raise interface.StoreVersionError(str(path), version, len(MIGRATIONS))
    return version


def _corrupt(path: Path, reason: str) -> interface.StoreCorruptError:
    return interface.StoreCorruptError(
        f"{path} is not a usable state file: {reason}; move it aside, with {path.name}-wal and {path.name}-shm, and "
        f"import a backup with `dcos-tensorflow state import`; {interface.WITHOUT_BACKUP}"
    )


_PUT = (
    "INSERT INTO entry (service, key, value) VALUES (?, ?, ?)"
    " ON CONFLICT (service, key) DO UPDATE SET value = excluded.value"
)
_SET_VERSION = (
    "INSERT INTO service (name, version) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET version = excluded.version"
)


class SqliteStore:
    """StateStore in the SQLite file at `path`, readable by the owner only (0600).

    Creates the file and its folder if missing. `busy_timeout`: seconds that a call waits for another process's write.
    Raises InvalidKeyError for an invalid service, StoreCorruptError for a foreign or damaged file, else StoreError.
    """

    def __init__(self, path: Path, service: str, *, busy_timeout: float = 5.0) -> None:
        self._path = path.absolute()
        self._service = interface.service_key(service)
        self._seen: int | None = None
        self._connection = open_file(self._path, busy_timeout)
        self._identity = file_identity(self._path)

    @property
    def place(self) -> str:
        return str(self._path)

    def load(self) -> Mapping[str, bytes]:
        with self._transaction("BEGIN"):
            version = self._version()
            rows = self._connection.execute("SELECT key, value FROM entry WHERE service = ?", (self._service,))
            values = MappingProxyType(dict(rows))
        self._seen = version
        return values

    def apply(self, writes: Sequence[interface.Write]) -> None:
        with self._change(advance=bool(writes)):
            for write in writes:
                if isinstance(write, interface.Put):
                    self._connection.execute(_PUT, (self._service, write.key, write.value))
                else:
                    key = self._service, write.key
                    self._connection.execute("DELETE FROM entry WHERE service = ? AND key = ?", key)

    def erase(self) -> None:
        with self._change(advance=True):
            self._connection.execute("DELETE FROM entry WHERE service = ?", (self._service,))

    def remove(self) -> None:
        self.erase()

    def close(self) -> None:
        # Closing merges the log into the file. If that fails (disk full), the next connection reads the log.
        with suppress(sqlite3.Error):
            self._connection.close()

    @contextmanager
    def _change(self, *, advance: bool) -> Iterator[None]:
        """Run the block in a write transaction; check and advance the service's version."""
        with self._transaction("BEGIN IMMEDIATE"):
            version = self._version()
            if version != self._seen:
                raise interface.conflict_error(self._service, self._path, is_loaded=self._seen is not None)
            yield
            if advance:
                version += 1
                self._connection.execute(_SET_VERSION, (self._service, version))
        self._seen = version

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[None]:
        with translate_errors(self._path):
            self._connection.execute(begin)
            try:
                # A deleted file could still be written through the open connection.
                if file_identity(self._path) != self._identity:
                    raise interface.StoreError(
                        f"{self._path} was removed or replaced while in use; restart the scheduler to reopen it"
                    )
                yield
                self._connection.execute("COMMIT")
            finally:
                # No effect after COMMIT or after SQLite's own rollback.
                with suppress(sqlite3.Error):
                    self._connection.rollback()

    def _version(self) -> int:
        row = self._connection.execute("SELECT version FROM service WHERE name = ?", (self._service,)).fetchone()
        return int(row[0]) if row else 0
