"""The `zk://` address: what it may say, and what is said of a wrong one."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tf_scheduler.store.interface import StoreAddressError
from tf_scheduler.store.zookeeper import Tls, ZooKeeperPlace


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("zk://master.mesos", ZooKeeperPlace(("master.mesos:2181",))),
        ("zk://master.mesos:2181/", ZooKeeperPlace(("master.mesos:2181",))),
        ("zk://a:1,b:2,[::1]:3/x/y", ZooKeeperPlace(("a:1", "b:2", "[::1]:3"), "/x/y")),
        ("zk://me:se%40cret@a:1", ZooKeeperPlace(("a:1",), credentials="me:se@cret")),
        ("zk://a?session_timeout=30&request_timeout=7.5", ZooKeeperPlace(("a:2181",), "", "", None, 30.0, 7.5)),
        ("zks://a:2281/x", ZooKeeperPlace(("a:2281",), "/x", tls=Tls())),
        (
            "zks://a?ca=/c.pem&certificate=/me.pem&key=/me.key",
            ZooKeeperPlace(("a:2181",), tls=Tls(Path("/c.pem"), Path("/me.pem"), Path("/me.key"))),
        ),
    ],
)
def test_what_an_address_says(url, expected):
    """Mesos' form of a ZooKeeper address, and our options."""
    assert expected == ZooKeeperPlace.parse(url)


def test_credentials_may_be_in_a_file(tmp_path):
    """So that they are in no list of processes; the file's last line break does not count."""
    file = tmp_path / "credentials"
    file.write_text("me:secret\n")

    assert "me:secret" == ZooKeeperPlace.parse(f"zk://a?credentials={file}").credentials


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("http://a", "is no address"),
        ("a:2181", "is no address"),
        ("zk://", "'' is no HOST:PORT"),
        ("zk://a,", "'' is no HOST:PORT"),
        ("zk://a:b", "Port"),
        ("zk://a:70000", "Port out of range"),
        ("zk://a b", "is no HOST:PORT"),
        ("zk://a/x//y", "chroot"),
        ("zk://a/x/../y", "chroot"),
        ("zk://a?timeout=3", "there is no option 'timeout'"),
        ("zk://a?session_timeout=soon", "session_timeout must be a number of seconds from 1 to 3600, not 'soon'"),
        ("zk://a?session_timeout=0.5", "session_timeout must be"),
        ("zk://a?request_timeout=nan", "request_timeout must be"),
        ("zk://a?credentials=/no/such/file", "No such file"),
        ("zk://a?credentials=", "credentials has no value"),
        ("zk://me@a", "are not USER:PASSWORD"),
        ("zk://a?ca=/c.pem", "for zks:// only"),
        ("zks://a?certificate=/c.pem", "go together"),
    ],
)
def test_what_is_wrong_with_an_address(url, message):
    """Each error names what is wrong, and shows what is allowed."""
    with pytest.raises(StoreAddressError, match=message) as caught:
        ZooKeeperPlace.parse(url)
    assert "HOST[:PORT]" in str(caught.value)


@pytest.mark.parametrize(
    "url", ["zk://me:secret@", "zk://me:secret@a/../x", "zk://me:secret@a?x=secret", "x://me:secret@a"]
)
def test_errors_keep_the_password(url):
    """What is wrong is told without the login and the options."""
    with pytest.raises(StoreAddressError) as caught:
        ZooKeeperPlace.parse(url)
    assert "secret" not in str(caught.value)


def test_a_place_keeps_its_password():
    """Neither its text nor its representation has it."""
    place = ZooKeeperPlace.parse("zk://me:secret@a:1/x")

    assert "zk://a:1/x" == str(place)
    assert "secret" not in repr(place)


@given(st.text())
def test_parsing_is_total(text):
    """Any text is an address or a StoreAddressError."""
    for scheme in ("", "zk://", "zks://", "zk://a/", "zk://a?"):
        try:
            place = ZooKeeperPlace.parse(scheme + text)
        except StoreAddressError:
            continue
        assert place.servers
