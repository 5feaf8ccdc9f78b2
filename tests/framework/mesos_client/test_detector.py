"""Leader detection without a ZooKeeper: URLs, nodes, and a driver with a detector."""

from __future__ import annotations

import json
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kit.commands import run_program
from mesos_client.credentials import Credentials, Tls
from mesos_client.masters import Detector, Leader, ZooKeeperUrl, decode_leader, leading_candidate
from mesos_client.results import DriverDisconnected, NotConnected
from mesos_client.scheduler import SchedulerDriver
from wire.candidate import master_info
from wire.client import FRAMEWORK, ROOT
from wire.peer import Peer, stream, subscribed


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("zk://z:2181/mesos", ZooKeeperUrl("z:2181", "/mesos")),
        ("zk://a,b:2182,[::1]:2183/dcos/mesos/", ZooKeeperUrl("a,b:2182,[::1]:2183", "/dcos/mesos")),
        ("zk://me:hush@a:1,b:2/mesos", ZooKeeperUrl("a:1,b:2", "/mesos", "me:hush")),
        ("zk://me:p@ss:word@a:1/mesos", ZooKeeperUrl("a:1", "/mesos", "me:p@ss:word")),
        (" zoo://z:2181/mesos ", ZooKeeperUrl("z:2181", "/mesos")),
    ],
)
def test_zookeeper_urls_are_parsed_like_mesos(text, expected) -> None:
    """The path follows the first slash, credentials precede the last @."""
    assert ZooKeeperUrl.is_zookeeper(text)
    assert expected == ZooKeeperUrl.parse(text)


@pytest.mark.parametrize(
    "text",
    ["zk://", "zk:///mesos", "zk://z:2181", "zk://z:2181/", "zk://z:port/mesos", "zk://z:99999/m", "zk://a,,b/m",
     "zk://hush@z/m", "zk://me:hush@/m", "zk://me:hush@z:0/m", "zk://a b/m"],
)  # fmt: skip
def test_invalid_zookeeper_url_hides_password(text) -> None:
    """The error says what is expected; so does the driver's constructor."""
    for read in (ZooKeeperUrl.parse, lambda url: SchedulerDriver(FRAMEWORK, url, on_event=print, on_state=print)):
        with pytest.raises(ValueError, match="zk://") as caught:
            read(text)
        assert "hush" not in str(caught.value)


def test_credentials_are_not_in_repr() -> None:
    """Neither str nor repr: both end up in logs."""
    url = ZooKeeperUrl.parse("zk://me:hush@z:2181/mesos")
    assert "hush" not in repr(url) + str(url)


@given(st.lists(st.integers(0, 2**31 - 1), unique=True, max_size=8), st.randoms())
def test_the_lowest_number_leads(numbers, random) -> None:
    """Other nodes are ignored: old protobuf nodes, the replicated log."""
    children = [f"json.info_{number:010d}" for number in numbers]
    children += ["info_0000000000", "log_replicas", "json.info_", "json.info_x"]
    random.shuffle(children)
    expected = f"json.info_{min(numbers):010d}" if numbers else None
    assert expected == leading_candidate(children)


@pytest.mark.parametrize(
    ("address", "hostname", "http", "https"),
    [
        ("10.0.0.1:5050", "m1.example", "http://10.0.0.1:5050", "https://m1.example:5050"),
        ("10.0.0.1:5050", "", "http://10.0.0.1:5050", "https://10.0.0.1:5050"),
        ("[fd00::1]:5051", "m1.example", "http://[fd00::1]:5051", "https://m1.example:5051"),
    ],
)
def test_http_uses_address_and_tls_uses_name(address, hostname, http, https) -> None:
    """P20: names may not resolve here, but certificates name them."""
    leader = decode_leader(json.dumps(master_info(address, hostname)).encode())
    assert (http, https) == (leader.url("http"), leader.url("https"))


def test_old_master_info_is_decoded() -> None:
    """MasterInfo.address came in Mesos 0.24; hostname and port are required fields."""
    assert decode_leader(b'{"id": "x", "hostname": "m1", "port": 5050}') == Leader("x", "m1", "", 5050)


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"{}", b'{"port": 1}', b'{"address": {"ip": "1.2.3.4"}}', b"\xff"])
def test_invalid_master_info_is_explained(data) -> None:
    """Protobuf, for instance."""
    with pytest.raises(ValueError, match="leader's ZooKeeper node"):
        decode_leader(data)


class ManualDetector(Detector):
    """A detector that the test controls."""

    def __init__(self) -> None:
        self.stopped = False

    def start(self, on_leader) -> None:
        self.tell = on_leader

    def stop(self) -> None:
        self.stopped = True


def leader_at(peer: Peer) -> Leader:
    return decode_leader(json.dumps(master_info(peer.address, "localhost")).encode())


def test_driver_starts_and_stops_its_detector(driver_of, recorder) -> None:
    """P20: no leader, a leader, another one, no leader; `last_failure` has the reason."""
    detector = ManualDetector()
    with Peer(stream(subscribed())) as old, Peer(stream(subscribed())) as new:
        driver = driver_of(detector)
        driver.start()
        assert (driver.master, driver.send({"type": "REVIVE"})) == (None, NotConnected())
        detector.tell(None, "no master leads")
        assert driver.last_failure == "no master leads"
        detector.tell(leader_at(old), "")
        assert (recorder.next(), driver.master) == (subscribed(), f"http://{old.address}")
        detector.tell(leader_at(new), "")
        assert recorder.next() == DriverDisconnected(f"http://{new.address} is the new leader")
        assert (recorder.next(), driver.master) == (subscribed(), f"http://{new.address}")
        detector.tell(None, "no master leads")
        assert recorder.next() == DriverDisconnected("no master leads")
        assert driver.last_failure == "no master leads"
        assert driver.send({"type": "REVIVE"}) == NotConnected()
        driver.stop()
        assert detector.stopped


def test_detector_moves_during_subscribe_uses_new_master(driver_of, recorder) -> None:
    """The detector reports between the choice of the master and the connection to it."""
    detector = ManualDetector()

    class Changing(Credentials):
        def header(self):
            if driver.master == f"http://{old.address}":
                detector.tell(leader_at(new), "")
            return super().header()

    with Peer(stream(subscribed())) as old, Peer(stream(subscribed())) as new:
        driver = driver_of(detector, credentials=Changing())
        driver.start()
        detector.tell(leader_at(old), "")
        recorder.wait_event("SUBSCRIBED")
        assert (len(old.all("SUBSCRIBE")), len(new.all("SUBSCRIBE"))) == (0, 1)


def test_tls_uses_leader_host_name(certificates, driver_of, recorder) -> None:
    """P20, P21: the certificate names it."""
    detector = ManualDetector()
    with Peer(stream(subscribed()), tls=certificates.server_context()) as peer:
        driver = driver_of(detector, tls=Tls(certificates.ca))
        driver.start()
        detector.tell(leader_at(peer), "")
        recorder.wait_event("SUBSCRIBED")
        assert driver.master == f"https://localhost:{peer.address.rpartition(':')[2]}"


def test_an_error_event_stops_the_detector(driver_of, recorder) -> None:
    """An aborted driver needs no detector."""
    detector = ManualDetector()
    with Peer(stream(subscribed(), {"type": "ERROR", "error": {"message": "gone"}})) as peer:
        driver = driver_of(detector)
        driver.start()
        detector.tell(leader_at(peer), "")
        recorder.wait_event("ERROR")
        assert recorder.next().reason == "gone"
        assert detector.stopped


@pytest.mark.parametrize(("master", "expected"), [("127.0.0.1:5050", "False"), ("zk://127.0.0.1:1/mesos", "True")])
def test_kazoo_is_loaded_only_when_zookeeper_is_needed(master, expected) -> None:
    """By one module here, and never by an executor (test_import.py)."""
    program = f"""
import sys
from mesos_client.scheduler import SchedulerDriver
SchedulerDriver({{}}, {master!r}, on_event=print, on_state=print)
print("kazoo" in sys.modules)
"""
    done = run_program(sys.executable, "-c", program, cwd=ROOT / "framework", check=True)
    assert expected == done.stdout.strip()
