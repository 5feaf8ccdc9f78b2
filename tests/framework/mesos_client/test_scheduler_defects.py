"""Defects of pymesos' scheduler driver, which this project's driver does not have."""

from __future__ import annotations

import base64
import json
import threading

import pytest

from kit.waiting import wait_until
from mesos_client.credentials import BasicCredentials
from wire import peer as wire
from wire.client import FRAMEWORK, SchedulerClient
from wire.peer import Peer, cut_after, error, hang, message, status, stream, subscribed, update

#: Five waits are together at least half of 0.25 + 0.5 + 1 + 1 + 1 s. Only a first request that is late on its way makes
#: that look shorter: half of it is asked for.
FIVE_WAITS = 0.9


@pytest.mark.parametrize("exception", [ValueError, OSError])
def test_p1_callback_exception_keeps_framework(exception) -> None:
    """P1, P15: an exception in a callback sends no TEARDOWN and keeps the stream."""
    raising = {"statusUpdate": exception("raised on purpose")}
    with Peer(stream(subscribed())) as peer, SchedulerClient(peer.address, raising=raising) as client:
        client.wait(callback="registered")
        peer.push(update())
        peer.push(message())
        client.wait(callback="frameworkMessage")
        client.driver.stop()
        assert len(peer.all("SUBSCRIBE")) == 1
        assert [] == [one.type for one in peer.all("TEARDOWN")]


def test_p1_rejected_call_in_callback_keeps_framework() -> None:
    """P1: a 503 to a call made in a callback costs that call, not the framework."""
    with (
        Peer(stream(subscribed()), on_call=_unless("TEARDOWN", 503)) as peer,
        SchedulerClient(peer.address, killing_on="statusUpdate") as client,
    ):
        client.wait(callback="registered")
        peer.push(update())
        peer.wait("KILL")
        peer.push(message())
        client.wait(callback="frameworkMessage")
        client.driver.stop()
        assert 0 == len(peer.all("TEARDOWN"))


def test_p2_abort_keeps_framework_and_dict() -> None:
    """P2: abort() sends no TEARDOWN, and the passed FrameworkInfo keeps its id."""
    framework = {**FRAMEWORK, "id": wire.FRAMEWORK_ID}
    with (
        Peer(stream(subscribed())) as peer,
        SchedulerClient(peer.address, framework=framework) as client,
    ):
        peer.wait_stream()
        client.wait(callback="registered")
        client.driver.abort()
        client.driver.join()
        assert (0, wire.FRAMEWORK_ID) == (len(peer.all("TEARDOWN")), framework["id"])


def test_p3_an_error_event_stops_the_driver() -> None:
    """P3: after ERROR the driver stops, reports why, and does not subscribe again."""
    with Peer(cut_after(subscribed(), error())) as peer, SchedulerClient(peer.address) as client:
        peer.wait("SUBSCRIBE", 1)
        assert client.wait(state="DriverAborted")["reason"] == "Framework has been removed"
        client.driver.join()
        client.driver.stop()
        assert 1 == len(peer.all("SUBSCRIBE"))
        assert peer.all("TEARDOWN") == []


@pytest.mark.parametrize("script", [status(503), cut_after(subscribed())], ids=["503", "cut after SUBSCRIBED"])
def test_p4_failing_master_gets_backoff(script) -> None:
    """P4: the back-off separates subscriptions, even accepted ones that are cut."""
    with Peer(script) as peer, SchedulerClient(peer.address):
        assert peer.wait("SUBSCRIBE", 6).at - peer.wait("SUBSCRIBE").at >= FIVE_WAITS


def test_p5_hanging_call_blocks_only_its_caller() -> None:
    """P5: while one call waits for its answer, the driver's state can be read."""
    with Peer(stream(subscribed()), on_call=hang) as peer, SchedulerClient(peer.address) as client:
        client.wait(callback="registered")
        caller = threading.Thread(target=client.kill)
        caller.start()
        peer.wait("KILL")
        assert client.driver.connected
        assert caller.is_alive()
        # The end of the connection ends the call.
        peer.release_calls()
        caller.join()


def test_p5_call_has_a_finite_timeout() -> None:
    """P5: the timeout of a call is seconds."""
    with Peer(stream(subscribed())) as peer, SchedulerClient(peer.address) as client:
        assert 10.0 == client.driver._timeout


def test_p5_a_call_that_hangs_fails_after_its_timeout() -> None:
    """P5: the caller gets a typed failure, and the subscription stays."""
    with (
        Peer(stream(subscribed()), on_call=hang) as peer,
        SchedulerClient(peer.address, call_timeout=0.2) as client,
    ):
        client.wait(callback="registered")
        assert client.kill().startswith("failed: ")
        peer.push(message())
        client.wait(callback="frameworkMessage")
        assert len(peer.all("SUBSCRIBE")) == 1


def test_p6_silent_stream_is_dropped() -> None:
    """P6: after five silent heartbeats the driver disconnects and subscribes again."""
    with (
        Peer(stream(subscribed(heartbeat=0.02)), stream(subscribed())) as peer,
        SchedulerClient(peer.address) as client,
    ):
        peer.wait("SUBSCRIBE", 2)
        client.wait(state="DriverDisconnected")
        client.wait_event("SUBSCRIBED", 2)


def test_p12_reconcile_names_the_agent() -> None:
    """P12: agent_id reaches the master, which needs it if the agent is unreachable."""
    with Peer(stream(subscribed())) as peer, SchedulerClient(peer.address) as client:
        client.wait(callback="registered")
        tasks = [{"task_id": {"value": "task-1"}, "agent_id": {"value": "agent-1"}}]
        client.driver.send({"type": "RECONCILE", "reconcile": {"tasks": tasks}})
        assert {"value": "agent-1"} == peer.wait("RECONCILE").body["reconcile"]["tasks"][0].get("agent_id")


@pytest.mark.parametrize("capabilities", [["MULTI_ROLE"], ["MULTI_ROLE", "GPU_RESOURCES"]])
def test_p13_the_framework_info_is_sent_as_given(capabilities) -> None:
    """P13: capabilities and failover_timeout stay unchanged, whatever /version says."""
    framework = {**FRAMEWORK, "capabilities": [{"type": name} for name in capabilities]}
    version = status(200, json.dumps({"version": "1.11.0"}).encode()) if len(capabilities) == 1 else status(404)
    with (
        Peer(stream(subscribed()), version=version) as peer,
        SchedulerClient(peer.address, framework=framework),
    ):
        sent = peer.wait("SUBSCRIBE").body["subscribe"]["framework_info"]
        assert sent == framework
        assert sent.get("capabilities") == framework["capabilities"]


def test_p14_credentials_stay_with_their_driver() -> None:
    """P14: a driver without credentials sends none of another driver's."""
    credentials = BasicCredentials("me", "secret")
    with (
        Peer(stream(subscribed())) as first,
        Peer(stream(subscribed())) as other,
        SchedulerClient(first.address, credentials=credentials) as client,
        SchedulerClient(other.address) as second,
    ):
        for each in (client, second):
            each.wait(callback="registered")
            each.kill()
        assert first.wait("KILL").headers["authorization"] == "Basic " + base64.b64encode(b"me:secret").decode()
        assert other.wait("KILL").headers.get("authorization") is None


def test_p16_ipv6_masters_are_reached() -> None:
    """P16: [::1]:port is an address like another."""
    with Peer(stream(subscribed()), host="::1") as peer, SchedulerClient(peer.address) as client:
        client.wait(callback="registered")
        assert bool(peer.all("SUBSCRIBE"))


def test_p18_calls_during_reconnect_return_typed_failures() -> None:
    """P18: calls that race with lost streams never raise."""
    scripts = [cut_after(subscribed()) for _ in range(4)]
    with (
        Peer(*scripts, stream(subscribed())) as peer,
        SchedulerClient(peer.address) as client,
    ):
        while not peer.all("SUBSCRIBE")[4:]:
            client.kill()
        client.wait_event("SUBSCRIBED", 5)
        assert client.kill().startswith("Sent")


def test_p19_call_without_subscription_is_not_connected() -> None:
    """P19: a dropped call has another result than a sent one."""
    with Peer(status(503)) as peer, SchedulerClient(peer.address) as client:
        peer.wait("SUBSCRIBE")
        assert "not connected" == client.kill()


def test_p22_disconnected_is_reported_once() -> None:
    """P22: attempts that fail before the first subscription lose nothing."""
    scripts = (status(503), status(503), stream(subscribed()))
    with Peer(*scripts) as peer, SchedulerClient(peer.address) as client:
        client.wait(callback="registered")
        assert 0 == len(client.found(callback="disconnected"))
        client.driver.stop()
        assert client.found(state="DriverDisconnected") == []
        assert client.found(callback="disconnected") == []


def test_p31_a_stopped_driver_is_not_connected() -> None:
    """P31: after abort() `connected` is false."""
    with Peer(stream(subscribed())) as peer, SchedulerClient(peer.address) as client:
        client.wait(callback="registered")
        client.driver.abort()
        assert not client.driver.connected


def test_p28_stop_does_not_wait_for_the_back_off() -> None:
    """P28: a driver that waits to retry stops immediately and leaves no thread."""
    with Peer(status(401)) as peer, SchedulerClient(peer.address) as client:
        client.wait(state="DriverDisconnected")
        client.driver.stop()
        wait_until(lambda: not client.new_threads())


def _unless(kind, code):
    """Answer `code` to all calls but those of type `kind`."""
    return lambda exchange: exchange.answer(202 if exchange.received.type == kind else code)
