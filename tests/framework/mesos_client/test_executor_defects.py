"""Defects of pymesos' executor driver, which this project's driver does not have."""

from __future__ import annotations

import logging
import threading

import pytest

from kit.waiting import wait_until
from wire.client import ENVIRON, ExecutorClient
from wire.peer import (
    AGENT_ID,
    EXECUTOR_ID,
    FRAMEWORK_ID,
    TASK_ID,
    Peer,
    cut_after,
    executor_subscribed,
    launch,
    message,
    status,
    stream,
)


def test_p7_an_update_made_while_disconnected_is_announced() -> None:
    """P7: an update made while disconnected is in the next SUBSCRIBE, with its task."""
    gate = threading.Event()

    def gated(exchange) -> None:
        gate.wait(30)
        exchange.answer(503)

    with (
        Peer(stream(executor_subscribed(), launch()), gated, stream(executor_subscribed())) as peer,
        ExecutorClient(peer.address) as client,
    ):
        client.wait(callback="launchTask")
        peer.wait_stream()
        peer.drop()
        peer.wait("SUBSCRIBE", 2)
        client.update("TASK_FINISHED")
        gate.set()
        announced = peer.wait("SUBSCRIBE", 3).body["subscribe"]
        assert ["TASK_FINISHED"] == [one["status"]["state"] for one in announced["unacknowledged_updates"]]
        assert [task["task_id"] for task in announced["unacknowledged_tasks"]] == [TASK_ID]


def test_p7_failed_update_is_resent() -> None:
    """P7: an update whose call fails is kept complete until it is acknowledged."""
    answers = iter([503])
    with (
        Peer(stream(executor_subscribed()), on_call=lambda call: call.answer(next(answers, 202))) as peer,
        ExecutorClient(peer.address) as client,
    ):
        client.wait(callback="registered")
        client.update("TASK_RUNNING")
        sent = peer.wait("UPDATE")
        again = peer.wait("UPDATE", 2)
        assert sent.body == again.body
        acknowledge(peer, sent.body["update"]["status"]["uuid"])
        client.wait_event("ACKNOWLEDGED")
        assert 1 == len(peer.all("UPDATE")) - 1


def test_update_has_required_fields() -> None:
    """uuid, timestamp, source and ids are set, as Mesos' common/validation.cpp asks."""
    with (
        Peer(stream(executor_subscribed())) as peer,
        ExecutorClient(peer.address) as client,
    ):
        client.update("TASK_RUNNING")
        body = peer.wait("UPDATE").body
        sent = body["update"]["status"]
        assert (body["framework_id"], body["executor_id"]) == (FRAMEWORK_ID, EXECUTOR_ID)
        assert (sent["source"], sent["executor_id"]) == ("SOURCE_EXECUTOR", EXECUTOR_ID)
        assert {"uuid", "timestamp", "task_id", "state"} <= set(sent)


def test_p8_the_agents_reregistration_window_is_met() -> None:
    """P8.

    Two attempts in a row are nearer than the agent's window, which is as long as MESOS_SUBSCRIPTION_BACKOFF_MAX.
    """
    window = 2.0
    from mesos_client.executor import AgentEnvironment

    waits = [AgentEnvironment("http://a", "f", "e", backoff_max=window).max_reconnect_delay]
    assert all(wait < window for wait in waits)


@pytest.mark.parametrize("code", [404, 401])
def test_p9_unready_agent_is_retried(code) -> None:
    """P9: a starting agent answers so before its routes exist; the driver retries."""
    scripts = [status(code)] * 3
    with Peer(*scripts, stream(executor_subscribed())) as peer, ExecutorClient(peer.address) as client:
        client.wait(callback="registered")
        assert 1 == len(client.found(callback="registered"))


@pytest.mark.parametrize("text", ["Framework cannot be found", "Executor cannot be found"])
def test_agent_that_does_not_know_the_executor_is_final(text) -> None:
    """The answer of a recovered agent without its work directory."""
    with (
        Peer(cut_after(executor_subscribed()), status(503), status(400, text.encode())) as peer,
        ExecutorClient(peer.address) as client,
    ):
        assert text in client.wait(state="DriverAborted")["reason"]
        client.driver.join()
        assert 3 == len(peer.all("SUBSCRIBE"))


def test_other_rejection_of_the_subscription_is_retried() -> None:
    """Only these texts with status 400 are final."""
    scripts = status(400, b"Bad Request"), status(404, b"Framework cannot be found"), stream(executor_subscribed())
    with Peer(*scripts) as peer, ExecutorClient(peer.address) as client:
        client.wait(callback="registered")


def test_p10_lost_agent_aborts_without_checkpointing() -> None:
    """P10: MESOS_CHECKPOINT=0 means no: the driver gives up at once."""
    environ = {**ENVIRON, "MESOS_CHECKPOINT": "0"}
    with (
        Peer(cut_after(executor_subscribed())) as peer,
        ExecutorClient(peer.address, environ=environ) as client,
    ):
        peer.wait("SUBSCRIBE", 1)
        assert "does not checkpoint" in client.wait(state="DriverAborted")["reason"]
        client.driver.join()
        assert 1 == len(peer.all("SUBSCRIBE"))


def test_p10_checkpointing_executor_waits_for_agent() -> None:
    """P10: with MESOS_CHECKPOINT=1, retries end after MESOS_RECOVERY_TIMEOUT."""
    environ = {**ENVIRON, "MESOS_RECOVERY_TIMEOUT": "500ms"}
    with (
        Peer(cut_after(executor_subscribed()), status(503)) as peer,
        ExecutorClient(peer.address, environ=environ) as client,
    ):
        assert "MESOS_RECOVERY_TIMEOUT" in client.wait(state="DriverAborted")["reason"]
        assert len(client.found(state="DriverDisconnected")) == 1
        assert len(peer.all("SUBSCRIBE")) >= 2


def test_p11_kill_event_is_complete() -> None:
    """P11: the event has its kill_policy."""
    kill = {"task_id": TASK_ID, "kill_policy": {"grace_period": {"nanoseconds": 7}}}
    with (
        Peer(stream(executor_subscribed(), {"type": "KILL", "kill": kill})) as peer,
        ExecutorClient(peer.address) as client,
    ):
        assert kill == client.wait_event("KILL")["kill"]


def test_p23_duplicate_launch_keeps_driver() -> None:
    """P23: a repeated LAUNCH is passed on; the executor decides."""
    with (
        Peer(stream(executor_subscribed(), launch(), launch())) as peer,
        ExecutorClient(peer.address) as client,
    ):
        client.wait(2, callback="launchTask")
        peer.wait_stream()
        peer.push(message())
        client.wait(callback="frameworkMessage")
        assert 2 == len(client.found(callback="launchTask"))


def test_p24_updates_are_acknowledged_after_shutdown() -> None:
    """P24: SHUTDOWN keeps the stream, so that the last update can be acknowledged."""
    with Peer(stream(executor_subscribed())) as peer, ExecutorClient(peer.address) as client:
        client.wait(callback="registered")
        client.update("TASK_KILLED")
        identity = peer.wait("UPDATE").body["update"]["status"]["uuid"]
        peer.push({"type": "SHUTDOWN"})
        client.wait(callback="shutdown")
        acknowledge(peer, identity)
        client.wait_event("ACKNOWLEDGED")
        assert not peer.has_left()


def test_every_request_has_the_token(caplog: pytest.LogCaptureFixture) -> None:
    """The token of the environment is sent as bearer token, and never logged."""
    caplog.set_level(logging.DEBUG)
    environ = {**ENVIRON, "MESOS_EXECUTOR_AUTHENTICATION_TOKEN": "t0ken"}
    with (
        Peer(stream(executor_subscribed())) as peer,
        ExecutorClient(peer.address, environ=environ) as client,
    ):
        client.update("TASK_RUNNING")
        for kind in ("SUBSCRIBE", "UPDATE"):
            assert peer.wait(kind).headers["authorization"] == "Bearer t0ken"
        client.driver.stop()
        assert "t0ken" not in caplog.text


def test_stop_leaves_no_thread() -> None:
    """stop() joins both threads of the executor's driver."""
    with Peer(stream(executor_subscribed())) as peer, ExecutorClient(peer.address) as client:
        client.wait(callback="registered")
        client.driver.stop()
        wait_until(lambda: not client.new_threads())


def acknowledge(peer: Peer, identity: str) -> None:
    peer.push({"type": "ACKNOWLEDGED", "acknowledged": {"task_id": TASK_ID, "uuid": identity, "agent_id": AGENT_ID}})
