"""Addresses of the state store."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from tf_scheduler.service.store import acquire_leadership, open_store, state_file
from tf_scheduler.store.interface import LeadershipLostError, Put, StoreAddressError, StoreUnavailableError
from tf_scheduler.store.sqlite import SqliteStore
from tf_scheduler.store.zookeeper import ZooKeeperStore


@pytest.mark.parametrize(
    ("url", "file"),
    [
        (Path("state.db"), Path("state.db")),
        ("state.db", Path("state.db")),
        ("/var/lib/my state.db", Path("/var/lib/my state.db")),
        ("~/state.db", Path.home() / "state.db"),
        ("file:///var/lib/my%20state.db", Path("/var/lib/my state.db")),
        ("file://localhost/state.db", Path("/state.db")),
        ("zk://a", None),
        ("zks://a/b", None),
    ],
)
def test_address_selects_store(url: Path | str, file: Path | None) -> None:
    assert file == state_file(url)


@pytest.mark.parametrize(
    "url", ["", "/", "folder/", "http://a/b", "ftp://a", "file://other/state.db", "file:///", "file://", "zk", "zk:/a/"]
)
def test_invalid_address_is_reported(url: str) -> None:
    """With the allowed forms. `zk` alone is a file name."""
    if url == "zk":
        assert Path("zk") == state_file(url)
        return
    with pytest.raises(StoreAddressError, match="zk://HOST:PORT"):
        state_file(url)


def test_file_needs_no_leadership(tmp_path: Path) -> None:
    with closing(open_store(f"file://{tmp_path}/state.db", "tf")) as store:
        assert isinstance(store, SqliteStore)
        leadership = acquire_leadership(store, waiting=pytest.fail)
        leadership.on_lost(pytest.fail)
        leadership.check()


def test_zookeeper_has_one_leader(zookeeper) -> None:
    """The second scheduler waits and leads after the first one exits."""
    url = f"zk://{zookeeper.servers[0]}{zookeeper.chroot}?session_timeout=5"
    holders: list[object] = []
    with closing(open_store(url, "tf")) as first, closing(open_store(url, "tf")) as second:
        assert isinstance(first, ZooKeeperStore)
        leadership = acquire_leadership(first)
        leadership.check()
        with pytest.raises(StoreUnavailableError, match="another scheduler leads"):
            acquire_leadership(second, holders.append, timeout=0.3)
        first.close()
        with pytest.raises(LeadershipLostError):
            leadership.check()
        acquire_leadership(second, timeout=60).check()
        second.load()
        second.apply([Put("a", b"1")])

    assert 1 == len(holders)
