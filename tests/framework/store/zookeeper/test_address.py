"""The `zk://` address: grammar, errors, hidden secrets."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tf_scheduler.store.interface import StoreAddressError
from tf_scheduler.store.zookeeper import ZooKeeperAddress, ZooKeeperTls


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("zk://master.mesos", ZooKeeperAddress(("master.mesos:2181",))),
        ("zk://master.mesos:2181/", ZooKeeperAddress(("master.mesos:2181",))),
        ("zk://a:1,b:2,[::1]:3/x/y", ZooKeeperAddress(("a:1", "b:2", "[::1]:3"), "/x/y")),
        ("zk://me:se%40cret@a:1", ZooKeeperAddress(("a:1",), credentials="me:se@cret")),
        ("zk://a?session_timeout=30&request_timeout=7.5", ZooKeeperAddress(("a:2181",), "", "", None, 30.0, 7.5)),
        ("zks://a:2281/x", ZooKeeperAddress(("a:2281",), "/x", tls=ZooKeeperTls())),
        (
            "zks://a?ca=/c.pem&certificate=/me.pem&key=/me.key",
            ZooKeeperAddress(("a:2181",), tls=ZooKeeperTls(Path("/c.pem"), Path("/me.pem"), Path("/me.key"))),
        ),
    ],
)
def test_address_is_parsed(url: str, expected) -> None:
    """Mesos' form of an address, and this project's options."""
    assert expected == ZooKeeperAddress.parse(url)


def test_credentials_are_read_from_file(tmp_path: Path) -> None:
    """`ps` does not show credentials of a file; its final line break is ignored."""
    file = tmp_path / "credentials"
    file.write_text("me:secret\n")

    assert "me:secret" == ZooKeeperAddress.parse(f"zk://a?credentials={file}").credentials


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("http://a", "invalid ZooKeeper address"),
        ("a:2181", "invalid ZooKeeper address"),
        ("zk://", "invalid HOST:PORT ''"),
        ("zk://a,", "invalid HOST:PORT ''"),
        ("zk://a:b", "Port"),
        ("zk://a:70000", "Port out of range"),
        ("zk://a b", "invalid HOST:PORT"),
        ("zk://a/x//y", "chroot"),
        ("zk://a/x/../y", "chroot"),
        ("zk://a?timeout=3", "unknown option 'timeout'"),
        ("zk://a?session_timeout=soon", "invalid session_timeout 'soon': a number of seconds from 1 to 3600"),
        ("zk://a?session_timeout=0.5", "invalid session_timeout"),
        ("zk://a?request_timeout=nan", "invalid request_timeout"),
        ("zk://a?credentials=/no/such/file", "No such file"),
        ("zk://a?credentials=", "missing value of credentials"),
        ("zk://me@a", "invalid credentials"),
        ("zk://a?ca=/c.pem", "require zks://"),
        ("zks://a?certificate=/c.pem", "set both or neither"),
    ],
)
def test_invalid_address_is_explained(url: str, message: str) -> None:
    """Each error names what is wrong, and shows what is allowed."""
    with pytest.raises(StoreAddressError, match=message) as caught:
        ZooKeeperAddress.parse(url)
    assert "HOST[:PORT]" in str(caught.value)


@pytest.mark.parametrize(
    "url", ["zk://me:secret@", "zk://me:secret@a/../x", "zk://me:secret@a?x=secret", "x://me:secret@a"]
)
def test_errors_hide_password(url: str) -> None:
    """Errors show the address without login and options."""
    with pytest.raises(StoreAddressError) as caught:
        ZooKeeperAddress.parse(url)
    assert "secret" not in str(caught.value)


def test_address_hides_password() -> None:
    """In its text and its representation."""
    place = ZooKeeperAddress.parse("zk://me:secret@a:1/x")

    assert "zk://a:1/x" == str(place)
    assert "secret" not in repr(place)


@given(st.text())
def test_parsing_raises_address_error_only(text) -> None:
    for scheme in ("", "zk://", "zks://", "zk://a/", "zk://a?"):
        try:
            place = ZooKeeperAddress.parse(scheme + text)
        except StoreAddressError:
            continue
        assert place.servers
