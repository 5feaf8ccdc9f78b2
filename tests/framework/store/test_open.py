"""Addresses of state: which store they open."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from tf_scheduler.store.interface import LeadershipLost, Put, StoreAddressError, StoreUnavailable
from tf_scheduler.store.open import lead, open_store, state_file
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
def test_what_an_address_names(url, file):
    """A file, or a ZooKeeper."""
    assert file == state_file(url)


@pytest.mark.parametrize(
    "url", ["", "/", "folder/", "http://a/b", "ftp://a", "file://other/state.db", "file:///", "file://", "zk", "zk:/a/"]
)
def test_what_names_nothing_is_told(url):
    """With what is allowed. `zk` alone is a file's name."""
    if url == "zk":
        assert Path("zk") == state_file(url)
        return
    with pytest.raises(StoreAddressError, match="zk://HOST:PORT"):
        state_file(url)


def test_a_file_has_one_writer_by_itself(tmp_path):
    """Nobody waits, and nothing is lost."""
    with closing(open_store(f"file://{tmp_path}/state.db", "tf")) as store:
        assert isinstance(store, SqliteStore)
        leadership = lead(store, waiting=pytest.fail)
        leadership.on_lost(pytest.fail)
        leadership.check()


@pytest.mark.zookeeper
def test_zookeeper_has_one_leader(zookeeper):
    """The second waits; after the first has ended it leads."""
    url = f"zk://{zookeeper.servers[0]}{zookeeper.chroot}?session_timeout=5"
    holders = []
    with closing(open_store(url, "tf")) as first, closing(open_store(url, "tf")) as second:
        assert isinstance(first, ZooKeeperStore)
        leadership = lead(first)
        leadership.check()
        with pytest.raises(StoreUnavailable, match="another scheduler leads"):
            lead(second, holders.append, timeout=0.3)
        first.close()
        with pytest.raises(LeadershipLost):
            leadership.check()
        lead(second, timeout=60).check()
        second.load()
        second.apply([Put("a", b"1")])

    assert 1 == len(holders)
