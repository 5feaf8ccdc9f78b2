"""Open the state store of a service and acquire its leadership.

zk://HOST:PORT,HOST:PORT/CHROOT?OPTIONS   ZooKeeper, see `store.zookeeper`; zks:// with TLS; on DC/OS:
                                          zk://master.mesos:2181, as for services of the SDK
file:///FOLDER/state.db, or a path        SQLite file
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tf_scheduler.store.interface import Leadership, SharedStateStore, StateStore, StoreAddressError
from tf_scheduler.store.sqlite import SqliteStore

_ALLOWED = "a path, file:///FOLDER/state.db, or zk://HOST:PORT,HOST:PORT/CHROOT"


def open_store(url: str | Path, service: str) -> StateStore:
    """Open the store; a missing file is created.

    Raises StoreAddressError for an invalid address, InvalidKeyError for an invalid service name,
    StoreUnavailableError if ZooKeeper does not answer, and errors of SqliteStore.
    """
    file = state_file(url)
    if file is not None:
        return SqliteStore(file, service)
    # A slow import, needed for ZooKeeper only.
    from tf_scheduler.store.zookeeper import ZooKeeperAddress, ZooKeeperStore

    return ZooKeeperStore(ZooKeeperAddress.parse(str(url)), service)


def state_file(url: str | Path) -> Path | None:
    """Return an address's SQLite file, None for ZooKeeper. Raises StoreAddressError."""
    if isinstance(url, Path):
        return url
    scheme, separator, _ = url.partition("://")
    if separator and scheme in ("zk", "zks"):
        return None
    if separator and scheme != "file":
        raise StoreAddressError(f"invalid state address: unknown scheme {scheme}://; expected {_ALLOWED}")
    parts = urlsplit(url)
    if separator and (parts.netloc not in ("", "localhost") or parts.path in ("", "/")):
        raise StoreAddressError(f"invalid state address: {url}: not a local file; expected {_ALLOWED}")
    path = unquote(parts.path) if separator else url
    if not path or path.endswith("/"):
        raise StoreAddressError(f"invalid state address: {url!r}: not a file; expected {_ALLOWED}")
    return Path(path).expanduser()


def state_weakness(store: StateStore) -> str:
    """Return a warning if every ZooKeeper client can change the state, else empty.

    Raises StoreUnavailableError if ZooKeeper does not answer.
    """
    if not isinstance(store, SharedStateStore) or not store.is_open():
        return ""
    return (
        f"every client of ZooKeeper can read and change the state at {store.place} (ACL world:anyone); "
        "set credentials in scheduler.state, and change the ACL of existing nodes"
    )


def acquire_leadership(
    store: StateStore, waiting: Callable[[str], None] | None = None, timeout: float | None = None
) -> Leadership:
    """Become the leading scheduler of the service; call `load` afterwards.

    With ZooKeeper, waits as a standby for up to `timeout` seconds (None: unlimited); `waiting` receives the leader.
    A file has no standbys: two schedulers detect each other at their first write.
    Raises StoreUnavailableError on timeout, or if ZooKeeper does not answer.
    """
    if isinstance(store, SharedStateStore):
        return store.lead(timeout=timeout, waiting=waiting)
    return SoleLeadership()


class SoleLeadership:
    """Leadership of a store without standbys."""

    def check(self) -> None:
        """Do nothing: leadership cannot be lost."""

    def on_lost(self, callback: Callable[[str], None]) -> None:
        """Ignore the callback: leadership cannot be lost."""
