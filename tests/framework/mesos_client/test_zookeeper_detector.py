"""P20: leader detection with a ZooKeeper that starts, stops and denies access."""

from __future__ import annotations

import json
import logging
import queue
import threading
from collections.abc import Callable, Iterator

import pytest
from kazoo.client import KazooClient
from kazoo.security import OPEN_ACL_UNSAFE

from kit.freezing import frozen
from kit.shared import SharedServers
from kit.zookeeper_ensemble import ZooKeeperEnsemble
from mesos_client import zookeeper_detector
from mesos_client.masters import Leader, ZooKeeperUrl
from mesos_client.results import DriverDisconnected, NotConnected
from mesos_client.zookeeper_detector import ZooKeeperDetector, master_addresses
from wire.candidate import GROUP, Candidates, master_info, only
from wire.peer import PATIENCE, Peer, stream, subscribed

pytestmark = pytest.mark.usefixtures("real_zookeeper")


@pytest.fixture
def ensemble(real_zookeeper: None, module_servers: SharedServers) -> ZooKeeperEnsemble:
    return module_servers.ensemble()


@pytest.fixture
def candidates(ensemble: ZooKeeperEnsemble) -> Iterator[Candidates]:
    """No master leads, and the node does not exist yet."""
    with Candidates(ensemble.addresses, "admin:secret") as made:
        made.clear()
        yield made
        made.clear()


class Watch:
    """A detector and its reports."""

    def __init__(self, url: str) -> None:
        self.reports: queue.Queue[tuple[Leader | None, str]] = queue.Queue()
        self.detector = ZooKeeperDetector(ZooKeeperUrl.parse(url))
        self.detector.start(lambda leader, reason: self.reports.put((leader, reason)))

    def next(self) -> tuple[Leader | None, str]:
        return self.reports.get(timeout=PATIENCE)

    def address(self) -> str:
        """Return the address of the next leader."""
        leader, reason = self.next()
        assert leader is not None, reason
        return f"{leader.ip}:{leader.port}"

    def reason(self) -> str:
        """Return the reason of the next report without a leader."""
        leader, reason = self.next()
        assert leader is None
        return reason


@pytest.fixture
def watch(ensemble: ZooKeeperEnsemble) -> Iterator[Callable[..., Watch]]:
    """Make detectors that are stopped with the test."""
    made: list[Watch] = []

    def make(credentials: str = "", servers: str = ensemble.addresses) -> Watch:
        made.append(Watch(f"zk://{credentials}{servers}{GROUP}"))
        return made[-1]

    yield make
    for one in made:
        one.detector.stop()
    names = {thread.name for thread in threading.enumerate()}
    assert "mesos-master-detector" not in names


ONE, TWO, THREE = (master_info(f"127.0.0.{number}:5050") for number in (1, 2, 3))


def test_p20_missing_znode_is_awaited(watch, candidates) -> None:
    """P20 (a): no master has registered yet; the first one is found."""
    looking = watch()
    assert "node does not exist" in looking.reason()
    candidates.enter(ONE)
    # Between the node and its first child there may be a look.
    leader, reason = looking.next()
    while leader is None:
        assert "no master leads" in reason
        leader, reason = looking.next()
    assert leader.ip == "127.0.0.1"


def test_p20_the_znodes_parent_may_be_absent_too(ensemble, candidates) -> None:
    """P20 (a): /dcos/mesos on a ZooKeeper without /dcos."""
    looking = Watch(f"zk://{ensemble.addresses}/dcos/mesos")
    try:
        assert "node does not exist" in looking.reason()
        candidates.client.create("/dcos/mesos/json.info_0000000007", b'{"hostname": "m", "port": 1}', makepath=True)
        leader = None
        while leader is None:
            leader, _ = looking.next()
        assert leader.hostname == "m"
    finally:
        looking.detector.stop()
        candidates.client.delete("/dcos", recursive=True)


def test_the_first_candidate_leads_until_it_leaves(watch, candidates) -> None:
    """The earliest candidate leads; when it leaves, the next one, and finally none."""
    nodes = [candidates.enter(info) for info in (ONE, TWO, THREE)]
    looking = watch()
    assert looking.address() == "127.0.0.1:5050"
    candidates.leave(nodes[1])
    candidates.leave(nodes[0])
    assert looking.address() == "127.0.0.3:5050"
    candidates.leave(nodes[2])
    assert "no master leads" in looking.reason()
    candidates.enter(TWO)
    assert looking.address() == "127.0.0.2:5050"


def test_other_nodes_are_not_candidates(watch, candidates) -> None:
    """The replicated log has its members there, and old masters wrote protobuf."""
    candidates.client.create(f"{GROUP}/log_replicas", makepath=True)
    candidates.client.create(f"{GROUP}/info_0000000000", b"\x0a")
    looking = watch()
    assert "no master leads" in looking.reason()


def test_invalid_node_is_reported_and_retried(watch, candidates, monkeypatch: pytest.MonkeyPatch) -> None:
    """An invalid node does not stop the detector."""
    monkeypatch.setattr(zookeeper_detector, "RETRY_SECONDS", 0.05)
    node = candidates.client.create(f"{GROUP}/json.info_0000000000", b"nonsense", makepath=True)
    looking = watch()
    assert "MasterInfo" in looking.reason()
    candidates.client.set(node, b'{"hostname": "m", "ip": 0, "port": 5050}')
    leader, _ = looking.next()
    assert leader is not None


def test_addresses_of_all_masters_are_found(candidates, ensemble) -> None:
    """Of the leader and of its standbys; a node that is not of a master is ignored."""
    url = f"zk://{ensemble.addresses}{GROUP}"
    with pytest.raises(OSError, match="NoNode"):
        master_addresses(url)
    for info in (ONE, TWO):
        candidates.enter(info)
    candidates.client.create(f"{GROUP}/json.info_0000009999", b"nonsense")
    candidates.client.create(f"{GROUP}/log_replicas", b"{}")
    node = candidates.enter(THREE)
    assert {"127.0.0.1", "127.0.0.2", "127.0.0.3"} == master_addresses(url)
    candidates.leave(node)
    assert {"127.0.0.1", "127.0.0.2"} == master_addresses(url)


def test_addresses_of_masters_with_denied_access_raise(candidates, ensemble) -> None:
    node = candidates.enter(ONE)
    candidates.client.set_acls(GROUP, only("admin:secret"))
    with pytest.raises(OSError, match="NoAuth") as refused:
        master_addresses(f"zk://admin:wrong@{ensemble.addresses}{GROUP}")
    assert "wrong" not in str(refused.value)
    assert {"127.0.0.1"} == master_addresses(f"zk://admin:secret@{ensemble.addresses}{GROUP}")
    candidates.client.set_acls(GROUP, OPEN_ACL_UNSAFE)
    candidates.leave(node)


@pytest.mark.parametrize(
    ("master", "expected"),
    [
        ("10.0.0.1:5050, https://10.0.0.2", {"10.0.0.1", "10.0.0.2"}),
        ("127.0.0.1:5050,no-such-host.invalid", {"127.0.0.1"}),
    ],
)
def test_addresses_of_listed_masters_are_resolved(master: str, expected: set[str]) -> None:
    """A host that does not resolve does not hide the others."""
    assert expected == master_addresses(master)
    with pytest.raises(OSError, match="no-such-host"):
        master_addresses("no-such-host.invalid")


def test_p20_credentials_are_used(watch, candidates, ensemble) -> None:
    """P20 (d): the masters' node is readable only with credentials."""
    candidates.client.create(GROUP, acl=only("me:hush"))
    with Candidates(ensemble.addresses, "me:hush") as masters:
        node = masters.enter(ONE, acl=only("me:hush"))
        looking = watch("me:hush@")
        assert looking.address() == "127.0.0.1:5050"
        masters.client.delete(node)
        masters.client.delete(GROUP)


@pytest.mark.parametrize("credentials", ["", "me:wrong@"])
def test_denied_access_is_reported_and_retried(
    watch, candidates, ensemble, monkeypatch: pytest.MonkeyPatch, credentials
) -> None:
    """With no or wrong credentials; an administrator may still grant it."""
    monkeypatch.setattr(zookeeper_detector, "RETRY_SECONDS", 0.05)
    with Candidates(ensemble.addresses, "me:hush") as masters:
        masters.client.create(GROUP, acl=only("me:hush"))
        looking = watch(credentials)
        assert "denies access" in looking.reason()
        masters.client.set_acls(GROUP, OPEN_ACL_UNSAFE)
        masters.enter(ONE)
        while (report := looking.next())[0] is None:
            pass
        assert report[0].ip == "127.0.0.1"


def test_p20_credentials_are_not_logged(watch, candidates, caplog: pytest.LogCaptureFixture) -> None:
    """Kazoo logs what it sends at level DEBUG, authentication included."""
    caplog.set_level(logging.DEBUG)
    candidates.enter(ONE)
    looking = watch("me:hush@")
    assert looking.address() == "127.0.0.1:5050"
    looking.detector.stop()
    assert "hush" not in caplog.text


def test_p20_absent_zookeeper_is_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    """P20 (b): without ZooKeeper the reason is reported; a start finds the leader."""
    monkeypatch.setattr(zookeeper_detector, "OUTAGE_GRACE", 0.05)
    with ZooKeeperEnsemble(1) as own:
        with Candidates(own.addresses) as masters:
            masters.client.create(f"{GROUP}/json.info_0000000000", b'{"hostname": "m", "port": 5050}', makepath=True)
        (server,) = own.servers
        server.kill()
        looking = Watch(f"zk://{own.addresses}{GROUP}")
        try:
            assert "does not answer" in looking.reason()
            server.start()
            leader, _ = looking.next()
            assert leader is not None
        finally:
            looking.detector.stop()


def test_p20_the_leader_stays_while_zookeeper_is_away() -> None:
    """P20: the subscription survives an outage of ZooKeeper; changes are noticed."""
    with ZooKeeperEnsemble(1) as own, Peer(stream(subscribed())) as old, Peer(stream(subscribed())) as new:
        with Candidates(own.addresses) as masters:
            masters.client.create(GROUP)
            for number, peer in enumerate((old, new)):
                data = json.dumps(master_info(peer.address)).encode()
                masters.client.create(f"{GROUP}/json.info_{number:010d}", data)
        (server,) = own.servers
        looking = Watch(f"zk://{own.addresses}{GROUP}")
        try:
            assert looking.address() == old.address
            server.kill()
            server.start()
            with Candidates(own.addresses) as masters:
                masters.leave(f"{GROUP}/json.info_0000000000")
            assert looking.address() == new.address
            assert looking.reports.empty()
        finally:
            looking.detector.stop()


def test_a_driver_follows_the_leader_through_zookeeper(ensemble, candidates, driver_of, recorder) -> None:
    """With zk:// the driver follows the leader, and disconnects without one."""
    with Peer(stream(subscribed())) as one, Peer(stream(subscribed())) as two:
        node = candidates.enter(master_info(one.address))
        driver = driver_of(f"zk://{ensemble.addresses}{GROUP}")
        driver.start()
        recorder.wait_event("SUBSCRIBED")
        assert driver.master == f"http://{one.address}"
        candidates.leave(node)
        assert isinstance(recorder.next(), DriverDisconnected)
        assert driver.send({"type": "REVIVE"}) == NotConnected()
        candidates.enter(master_info(two.address))
        recorder.wait_event("SUBSCRIBED")
        assert driver.master == f"http://{two.address}"
        assert driver.send({"type": "REVIVE"}).ok
        assert len(two.all("REVIVE")) == 1


def test_a_session_that_expires_is_replaced(watch, candidates, ensemble, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new session reads all nodes again; an unchanged leader is not reported."""
    made: list[KazooClient] = []

    class Client(KazooClient):  # type: ignore[misc]  # kazoo has no annotations
        def __init__(self, *arguments, **options) -> None:
            super().__init__(*arguments, **options)
            made.append(self)

    monkeypatch.setattr(zookeeper_detector, "KazooClient", Client)
    nodes = [candidates.enter(info) for info in (ONE, TWO)]
    looking = watch()
    assert looking.address() == "127.0.0.1:5050"
    _expire(made[0], ensemble.addresses)
    candidates.leave(nodes[0])
    assert looking.address() == "127.0.0.2:5050"
    assert looking.reports.empty()


def _expire(client: KazooClient, servers: str) -> None:
    """Take the client's session over and close it."""
    over = threading.Event()
    old = client.client_id
    client.add_listener(lambda state: over.set() if state == "CONNECTED" and client.client_id != old else None)
    thief = KazooClient(servers, client_id=old)
    thief.start(timeout=PATIENCE)
    thief.stop()
    thief.close()
    assert over.wait(PATIENCE)


def test_stop_does_not_wait_for_silent_zookeeper(watch, candidates, ensemble) -> None:
    """Frozen while connected: closing the session is given up."""
    candidates.enter(ONE)
    looking = watch()
    looking.next()
    (server,) = ensemble.servers
    with frozen(server):
        looking.detector.stop()
        assert not looking.detector._thread.is_alive()
    ensemble.wait_serving()


def test_stop_does_not_wait_for_lost_answer(watch, candidates, ensemble, monkeypatch: pytest.MonkeyPatch) -> None:
    """Frozen during a request: the request is given up."""
    candidates.enter(ONE)
    asked = threading.Event()

    def answer(result):
        asked.set()
        try:
            return result.get(timeout=10 * PATIENCE)
        finally:
            asked.clear()

    # Before the start: a request that is on its way when the server freezes waits as long as a new one.
    monkeypatch.setattr(zookeeper_detector, "_answer", answer)
    looking = watch()
    looking.next()
    (server,) = ensemble.servers
    with frozen(server):
        looking.detector._wake.set()
        assert asked.wait(PATIENCE)
        looking.detector.stop()
        assert not looking.detector._thread.is_alive()
    ensemble.wait_serving()


def test_stop_ends_a_detector_that_never_reached_zookeeper() -> None:
    """No server listens; a detector may be stopped twice, and without a start."""
    looking = Watch("zk://127.0.0.1:1/mesos")
    looking.detector.stop()
    looking.detector.stop()
    ZooKeeperDetector(ZooKeeperUrl.parse("zk://127.0.0.1:1/mesos")).stop()
    assert "mesos-master-detector" not in {thread.name for thread in threading.enumerate()}
