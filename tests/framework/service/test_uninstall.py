"""Uninstall with an empty state store: the master is asked for a live framework."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from builders import a_spec
from kit.master_answers import MasterAnswers, a_framework
from mesos_client.results import Sent
from mesos_local.host import free_ports
from tf_scheduler.api.views.plan_messages import leftovers_message
from tf_scheduler.mesos.registration import LostFrameworks
from tf_scheduler.model.effects import Decision
from tf_scheduler.model.events import Event
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.service.build import build_scheduler
from tf_scheduler.service.options import ServiceSettings
from wire.peer import FRAMEWORK_ID, Exchange, Peer, stream, subscribed

HOST = "127.0.0.1"
AS_KNOWN = "nothing is left behind as far as known: "


def uninstall(folder: Path, master: str, *, ignore: bool = False) -> SchedulerState:
    """Run the scheduler of an uninstall until it has finished; return its final state."""
    (port,) = free_ports(1)
    lost = LostFrameworks(adopt="other", ignore=ignore)
    process = build_scheduler(
        ServiceSettings(a_spec(), master, folder / "state.db", HOST, port, uninstalling=True, lost=lost, environment={})
    )

    def stop_at_end(_event: Event, decision: Decision) -> None:
        if decision.state.process.finished:
            process.stop()

    process.runner.attach(stop_at_end)
    process.run()
    assert process.runner.state.process.is_erased
    return process.runner.state


def a_master(*frameworks: dict[str, Any]) -> Peer:
    answers = MasterAnswers(frameworks)

    def answer(exchange: Exchange) -> None:
        if not exchange.received.type.startswith("GET_"):
            return exchange.answer(202)
        reply = answers(exchange.received.type)
        assert isinstance(reply, Sent)
        return exchange.answer(200, json.dumps(dict(reply.answer)).encode())

    return Peer(stream(subscribed()), on_call=answer)


def test_uninstall_without_state_removes_live_framework(tmp_path: Path) -> None:
    """Otherwise its tasks would run until the failover timeout."""
    with a_master(a_framework()) as master:
        final = uninstall(tmp_path, master.address)

        assert [FRAMEWORK_ID] == [call.body["framework_id"] for call in master.all("TEARDOWN")]
    assert "nothing is left behind" == leftovers_message(final)


def test_uninstall_without_state_and_framework_registers_none(tmp_path: Path) -> None:
    """Marathon restarts the scheduler after its uninstall."""
    with a_master(a_framework(name="letters")) as master:
        final = uninstall(tmp_path, master.address)

        assert [] == master.all("SUBSCRIBE")
    assert leftovers_message(final).startswith(AS_KNOWN)


@pytest.mark.parametrize(
    "frameworks",
    [
        [a_framework(connected=True)],
        [a_framework(), a_framework("framework-2")],
    ],
)
def test_uninstall_names_frameworks_that_may_be_in_use(tmp_path: Path, frameworks: list[dict[str, Any]]) -> None:
    """They may be those of other services with this name: none is stopped."""
    with a_master(*frameworks) as master:
        final = uninstall(tmp_path, master.address)

        assert [] == [*master.all("SUBSCRIBE"), *master.all("TEARDOWN")]
    message = leftovers_message(final)
    assert message.startswith("left behind: live frameworks of digits (role digits-role)")
    assert all(item["framework_info"]["id"]["value"] in message for item in frameworks)
    assert "send TEARDOWN" in message


@pytest.mark.parametrize("ignore", [False, True])
def test_uninstall_without_state_ends_without_master(tmp_path: Path, monkeypatch, ignore: bool) -> None:
    """The service may never have registered because of this master."""
    if not ignore:
        monkeypatch.setattr("tf_scheduler.service.build.LOOKUP_TIMEOUT", 0.1)
    (closed,) = free_ports(1)

    assert leftovers_message(uninstall(tmp_path, f"{HOST}:{closed}", ignore=ignore)).startswith(AS_KNOWN)
