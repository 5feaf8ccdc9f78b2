"""What the user wrote -> a state store, and the right to act for the service.

zk://HOST:PORT,HOST:PORT/CHROOT?OPTIONS   ZooKeeper, as `store.zookeeper.place` says; zks:// with TLS. On DC/OS:
                                          zk://master.mesos:2181, where the SDK's services keep their state, too
file:///FOLDER/state.db, or a path        a SQLite file
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote, urlsplit

from .interface import Leadership, StateStore, StoreAddressError
from .sqlite import SqliteStore

_ALLOWED = "a file as a path or file:///FOLDER/state.db, or a ZooKeeper as zk://HOST:PORT,HOST:PORT/CHROOT"


def open_store(url: str | Path, service: str) -> StateStore:
    """The store of a service; a file is created when it is missing.

    Raises StoreAddressError for what names no store, InvalidKeyError for a bad service name, StoreUnavailable when
    no ZooKeeper answers, and what SqliteStore raises.
    """
    file = state_file(url)
    if file is not None:
        return SqliteStore(file, service)
    from .zookeeper import ZooKeeperPlace, ZooKeeperStore  # slow to import, and only who has a ZooKeeper needs it

    return ZooKeeperStore(ZooKeeperPlace.parse(str(url)), service)


def state_file(url: str | Path) -> Path | None:
    """The SQLite file that the address names; None if it names a ZooKeeper. Raises StoreAddressError."""
    if isinstance(url, Path):
        return url
    scheme, separator, _ = url.partition("://")
    if separator and scheme in ("zk", "zks"):
        return None
    if separator and scheme != "file":
        raise StoreAddressError(f"{scheme}://... names no place for the state; give {_ALLOWED}")
    parts = urlsplit(url)
    if separator and (parts.netloc not in ("", "localhost") or parts.path in ("", "/")):
        raise StoreAddressError(f"{url} names no file of this machine; give {_ALLOWED}")
    path = unquote(parts.path) if separator else url
    if not path or path.endswith("/"):
        raise StoreAddressError(f"{url!r} names no file; give {_ALLOWED}")
    return Path(path).expanduser()


def lead(store: StateStore, waiting: Callable[[str], None] | None = None, timeout: float | None = None) -> Leadership:
    """Become the one live scheduler of the store's service; call `load` afterwards.

    In ZooKeeper that may mean to wait as a standby, at most `timeout` seconds (None: for ever); `waiting` is told who
    leads. A file has no standbys: two schedulers on one file find each other out with their first writes.
    Raises StoreUnavailable when the time is over or ZooKeeper does not answer.
    """
    if isinstance(store, SqliteStore):
        return Undisputed()
    from .zookeeper import ZooKeeperStore

    if isinstance(store, ZooKeeperStore):
        return store.lead(timeout=timeout, waiting=waiting)
    return Undisputed()


class Undisputed:
    """A Leadership that nobody else can get."""

    def check(self) -> None:
        """Return."""

    def on_lost(self, callback: Callable[[str], None]) -> None:
        """Never call it."""
