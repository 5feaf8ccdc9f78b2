"""State in one SQLite file: the embedded default, durable against kill -9 and power loss (WAL, one fsync per apply).

    schema_version   one row: how many migrations the file has been through (sqlite_file.MIGRATIONS)
    service          name, version: grows with every change of the service, stays when it is erased
    entry            service, key, value

Several services share a file. SQLite's locks keep writers apart only while they write; the service's version,
compared in the same transaction, keeps a second scheduler from writing over the first one's state.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType

from tf_scheduler.store.interface import Put, StoreConflict, StoreError, Write, service_key
from tf_scheduler.store.sqlite_file import explained, identity, open_file

_PUT = (
    "INSERT INTO entry (service, key, value) VALUES (?, ?, ?)"
    " ON CONFLICT (service, key) DO UPDATE SET value = excluded.value"
)
_SET_VERSION = (
    "INSERT INTO service (name, version) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET version = excluded.version"
)


class SqliteStore:
    """A StateStore in the SQLite file at `path`; the file and its folder are created when missing.

    The file is readable by its owner only (0600). `busy_timeout` (seconds, default 5) is how long a call waits for
    another process's write. Raises InvalidKeyError for a bad service name, StoreCorrupt for a file that is not ours
    or is damaged, StoreVersionError for a newer one, StoreUnavailable or StoreError when it cannot be opened.
    """

    def __init__(self, path: Path, service: str, *, busy_timeout: float = 5.0) -> None:
        self._path = path.absolute()
        self._service = service_key(service)
        self._seen: int | None = None
        self._connection = open_file(self._path, busy_timeout)
        self._identity = identity(self._path)

    def load(self) -> Mapping[str, bytes]:
        with self._transaction("BEGIN"):
            version = self._version()
            rows = self._connection.execute("SELECT key, value FROM entry WHERE service = ?", (self._service,))
            values = MappingProxyType(dict(rows))
        self._seen = version
        return values

    def apply(self, writes: Sequence[Write]) -> None:
        with self._change(advance=bool(writes)):
            for write in writes:
                self._write(write)

    def erase(self) -> None:
        with self._change(advance=True):
            self._connection.execute("DELETE FROM entry WHERE service = ?", (self._service,))

    def remove(self) -> None:
        self.erase()

    def close(self) -> None:
        # The last connection moves the log into the file. Where it cannot (disk full), the next opening reads the log.
        with suppress(sqlite3.Error):
            self._connection.close()

    def _write(self, write: Write) -> None:
        if isinstance(write, Put):
            self._connection.execute(_PUT, (self._service, write.key, write.value))
        else:
            self._connection.execute("DELETE FROM entry WHERE service = ? AND key = ?", (self._service, write.key))

    @contextmanager
    def _change(self, *, advance: bool) -> Iterator[None]:
        """Run the body in a write transaction on the version last seen here; the version after it is seen then."""
        with self._transaction("BEGIN IMMEDIATE"):
            version = self._version()
            if version != self._seen:
                raise StoreConflict(self._conflict())
            yield
            if advance:
                version += 1
                self._connection.execute(_SET_VERSION, (self._service, version))
        self._seen = version

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[None]:
        with explained(self._path):
            self._connection.execute(begin)
            try:
                # A removed file could still be written, for nobody to find.
                if identity(self._path) != self._identity:
                    raise StoreError(f"{self._path} was removed or replaced while in use; restart to open it anew")
                yield
                self._connection.execute("COMMIT")
            finally:
                # Does nothing after COMMIT, or when SQLite has rolled back by itself.
                with suppress(sqlite3.Error):
                    self._connection.rollback()

    def _version(self) -> int:
        row = self._connection.execute("SELECT version FROM service WHERE name = ?", (self._service,)).fetchone()
        return int(row[0]) if row else 0

    def _conflict(self) -> str:
        if self._seen is None:
            return f"the state of service {self._service} in {self._path} must be loaded before it is changed"
        return (
            f"another process changed the state of service {self._service} in {self._path}: "
            "is a second scheduler running for the same service? End one of them"
        )
