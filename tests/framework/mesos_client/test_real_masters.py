"""The scheduler's driver with several real masters, credentials and ZooKeeper."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from kit.freezing import freeze, thaw
from kit.shared import SharedServers
from kit.zookeeper_ensemble import ZooKeeperEnsemble
from mesos_client.credentials import BasicCredentials, TokenCredentials
from mesos_client.results import DriverDisconnected, NotConnected
from mesos_local import master_api
from mesos_local.agents import AgentSpec
from mesos_local.cluster import LocalCluster
from tf_scheduler.mesos.client import MAX_CLOCK_OFFSET
from wire.candidate import GROUP, Candidates, master_info
from wire.client import FRAMEWORK
from wire.peer import PATIENCE, Peer, status

pytestmark = pytest.mark.usefixtures("real_mesos")

#: No colon: Mesos' own authenticator refuses one also in the secret.
PRINCIPAL, SECRET = "Jürgen", "pässwörd ✓"
REVIVE = {"type": "REVIVE"}
RECONCILE_ALL = {"type": "RECONCILE", "reconcile": {"tasks": []}}
#: No task is launched on it.
ONE_AGENT = [AgentSpec("agent-1", "cpus:1;mem:512;ports:[31980-31989]")]


def framework(**fields: Any) -> dict[str, Any]:
    return {**FRAMEWORK, "failover_timeout": 60.0, **fields}


# Authentication.


@pytest.fixture
def guarded(real_mesos: None, module_servers: SharedServers, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Address of a master that lets only one principal in."""
    path = tmp_path_factory.getbasetemp() / "credentials.json"
    credentials = {"credentials": [{"principal": PRINCIPAL, "secret": SECRET}]}
    path.write_text(json.dumps(credentials, ensure_ascii=False), encoding="utf-8")
    flags = {
        "authenticate_http_frameworks": True,
        "http_framework_authenticators": "basic",
        "credentials": str(path),
    }
    return module_servers.cluster(ONE_AGENT, "guarded", master_flags=flags).master.address


def test_p21_non_ascii_credentials_are_accepted(guarded, scheduler_of) -> None:
    """P21: the real master accepts UTF-8 credentials for subscription and calls."""
    scheduler = scheduler_of(guarded, credentials=BasicCredentials(PRINCIPAL, SECRET))
    scheduler.wait("SUBSCRIBED")
    assert scheduler.driver.send(REVIVE).ok


@pytest.mark.parametrize("credentials", [None, BasicCredentials(PRINCIPAL, "wrong")], ids=["none", "wrong"])
def test_bad_credentials_are_reported_and_retried(guarded, scheduler_of, credentials) -> None:
    """401 by a real master: reported with its status, nothing sent, and retried."""
    scheduler = scheduler_of(guarded, credentials=credentials)
    assert "401" in scheduler.wait("DriverDisconnected").reason
    assert scheduler.driver.send(REVIVE) == NotConnected()
    assert not scheduler.driver.aborted


def test_wrong_principal_reports_master_message(guarded, scheduler_of) -> None:
    """400: FrameworkInfo.principal must be the authenticated one."""
    scheduler = scheduler_of(guarded, framework(principal="somebody"), credentials=BasicCredentials(PRINCIPAL, SECRET))
    reason = scheduler.wait("DriverDisconnected").reason
    assert "400" in reason
    assert "does not match" in reason


def test_a_refused_header_is_renewed(guarded, scheduler_of) -> None:
    """A stale login header: the real 401 makes the driver fetch another one."""
    good = BasicCredentials(PRINCIPAL, SECRET).header() or ""
    headers = iter(["stale"])
    scheduler = scheduler_of(
        guarded, credentials=TokenCredentials(lambda: next(headers, good.removeprefix("Basic ")), "Basic ")
    )
    assert scheduler.reports.get(timeout=PATIENCE)["type"] == "SUBSCRIBED"


# One master.


@pytest.fixture
def cluster(real_mesos: None, module_servers: SharedServers) -> LocalCluster:
    return module_servers.cluster(ONE_AGENT)


def test_answers_have_the_masters_time(cluster, scheduler_of) -> None:
    """The Date headers of SUBSCRIBE and of calls, in whole seconds."""
    scheduler = scheduler_of(cluster.master.address)
    scheduler.wait("SUBSCRIBED")
    assert abs(scheduler.driver.clock_offset) < MAX_CLOCK_OFFSET
    scheduler.driver._transport.clock_offset = None
    assert scheduler.driver.send(REVIVE).ok
    assert abs(scheduler.driver.clock_offset) < MAX_CLOCK_OFFSET


def test_p31_a_stopped_driver_sends_nothing(cluster, scheduler_of) -> None:
    """P31: after stop() the real master gets no more calls, and the caller learns it."""
    scheduler = scheduler_of(cluster.master.address)
    scheduler.wait("SUBSCRIBED")
    scheduler.driver.stop()
    assert (scheduler.driver.connected, scheduler.driver.send(REVIVE)) == (False, NotConnected())


def test_p18_racing_calls_return_typed_failures(cluster, scheduler_of) -> None:
    """P18: threads call while the stream is lost repeatedly; the framework remains."""
    scheduler = scheduler_of(cluster.master.address)
    framework_id = scheduler.wait("SUBSCRIBED")["framework_id"]
    over, kinds, errors = threading.Event(), set(), []

    def call() -> None:
        while not over.is_set():
            try:
                kinds.add(type(scheduler.driver.send(REVIVE)).__name__)
            except Exception as error:
                errors.append(error)

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(6):
        scheduler.driver.restart_stream()
        assert scheduler.wait("SUBSCRIBED")["framework_id"] == framework_id
    over.set()
    for thread in threads:
        thread.join(PATIENCE)
    assert errors == []
    assert kinds <= {"Sent", "NotConnected", "Rejected", "Failed"}
    assert scheduler.driver.send(REVIVE).ok


def test_a_call_of_an_earlier_subscription_is_not_sent(cluster, scheduler_of) -> None:
    """Its offers are void, but the master would accept it with the new stream id."""
    scheduler = scheduler_of(cluster.master.address)
    scheduler.wait("SUBSCRIBED")
    first = scheduler.driver.subscription
    scheduler.driver.restart_stream()
    scheduler.wait("SUBSCRIBED")
    assert scheduler.driver.send(REVIVE, first) == NotConnected()
    assert scheduler.driver.send(REVIVE, scheduler.driver.subscription).ok


def test_p6_silent_master_is_left_and_rejoined(cluster, scheduler_of, monkeypatch: pytest.MonkeyPatch) -> None:
    """P6: a frozen master sends nothing on open connections; 75 s are shortened here."""
    with monkeypatch.context() as patched:
        patched.setattr("mesos_client.scheduler.HEARTBEATS_MISSED", 0.05)
        scheduler = scheduler_of(cluster.master.address, call_timeout=PATIENCE)
        framework_id = scheduler.wait("SUBSCRIBED")["framework_id"]
        freeze(cluster.master)
    try:
        assert "timed out" in scheduler.wait("DriverDisconnected").reason
        assert scheduler.driver.send(REVIVE) == NotConnected()
    finally:
        thaw(cluster.master)
    assert scheduler.wait("SUBSCRIBED")["framework_id"] == framework_id


# Several masters.


@pytest.fixture
def another(real_mesos: None, module_servers: SharedServers) -> LocalCluster:
    return module_servers.cluster(ONE_AGENT, "another")


def test_a_redirect_leads_to_a_real_master(cluster, scheduler_of) -> None:
    """307 without a scheme, as a master that does not lead answers."""
    with Peer(status(307, Location=f"//{cluster.master.address}/api/v1/scheduler")) as follower:
        scheduler = scheduler_of(follower.address)
        scheduler.wait("SUBSCRIBED")
        assert scheduler.driver.send(REVIVE).ok


def known_to(cluster: LocalCluster, framework_id: dict[str, Any]) -> bool:
    frameworks = master_api.call(cluster.master.address, "GET_FRAMEWORKS").get("frameworks", ())
    return framework_id in [one["framework_info"]["id"] for one in frameworks]


@pytest.mark.usefixtures("real_zookeeper")
def test_p20_leader_change_in_zookeeper_is_followed(cluster, another, scheduler_of) -> None:
    """P20: the framework moves with its id between two masters in a real ZooKeeper.

    The local masters lead without ZooKeeper, so that the test makes their nodes.
    """
    with ZooKeeperEnsemble(1) as ensemble, Candidates(ensemble.addresses) as candidates:
        node = candidates.enter(master_info(cluster.master.address))
        candidates.enter(master_info(another.master.address))
        scheduler = scheduler_of(f"zk://me:secret@{ensemble.addresses}{GROUP}")
        framework_id = scheduler.wait("SUBSCRIBED")["framework_id"]
        assert (known_to(cluster, framework_id), known_to(another, framework_id)) == (True, False)
        candidates.leave(node)
        assert isinstance(scheduler.wait("DriverDisconnected"), DriverDisconnected)
        assert scheduler.wait("SUBSCRIBED")["framework_id"] == framework_id
        assert known_to(another, framework_id)
        assert scheduler.driver.send(RECONCILE_ALL).ok


@pytest.mark.usefixtures("real_zookeeper")
def test_p20_a_subscription_outlives_zookeeper(cluster, scheduler_of) -> None:
    """Calls and events continue without ZooKeeper, and after its return."""
    with ZooKeeperEnsemble(1) as ensemble, Candidates(ensemble.addresses) as candidates:
        data = json.dumps(master_info(cluster.master.address)).encode()
        candidates.client.create(f"{GROUP}/json.info_0000000003", data, makepath=True)
        scheduler = scheduler_of(f"zk://{ensemble.addresses}{GROUP}")
        scheduler.wait("SUBSCRIBED")
        (server,) = ensemble.servers
        server.kill()
        assert scheduler.driver.send(REVIVE).ok
        server.start()
        assert candidates.client.retry(candidates.client.exists, GROUP)
        assert scheduler.driver.send(REVIVE).ok
        assert scheduler.driver.subscription == 1
