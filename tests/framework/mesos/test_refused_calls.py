"""Loop and driver with a master that refuses or ignores calls after SUBSCRIBE."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from email.utils import formatdate
from typing import Any

import pytest

from benchmarks.services import a_service, launched
from builders import a_job, a_spec, needs, with_fields
from kit.memory_store import MemoryStore
from tf_executor.contract.states import TaskState
from tf_scheduler.api.views import service
from tf_scheduler.api.views.base import Snapshot
from tf_scheduler.mesos.client import MAX_CLOCK_OFFSET, MesosDriver
from tf_scheduler.model.effects import Decision
from tf_scheduler.model.events import (
    CallFailed,
    CallsAccepted,
    ClockDrifted,
    Disconnected,
    Event,
    OfferRescinded,
    StopRequested,
    Subscribed,
)
from tf_scheduler.model.ids import FrameworkId
from tf_scheduler.model.spec import JobKind
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.runner import Runner
from wire.peer import ACCEPTED, AGENT_ID, FRAMEWORK_ID, PATIENCE, Exchange, Peer, status, stream, subscribed, vanish

SPEC = a_spec(jobs=(a_job(JobKind.WORKER, needs=needs(cpus=0.1, mem=32, disk=0)),))
REGISTERED = with_fields(SchedulerState(SPEC), framework_id=FrameworkId("framework-1"))


def offers() -> dict[str, Any]:
    """Return an OFFERS event with 16 CPUs."""
    scalars = {"cpus": 16.0, "mem": 16_000.0, "disk": 100_000.0}
    role = {"allocation_info": {"role": "digits-role"}}
    resources = [
        {"name": name, "type": "SCALAR", "scalar": {"value": value}, **role} for name, value in scalars.items()
    ]
    ports = {"range": [{"begin": 31000, "end": 31999}]}
    offer = {
        "id": {"value": f"offer-{next(_NUMBERS)}"},
        "framework_id": FRAMEWORK_ID,
        "agent_id": AGENT_ID,
        "hostname": "agent-1",
        "url": {"scheme": "http", "address": {"ip": "10.0.0.1", "port": 5051}},
        "resources": [*resources, {"name": "ports", "type": "RANGES", "ranges": ports, **role}],
        **role,
    }
    return {"type": "OFFERS", "offers": {"offers": [offer]}}


_NUMBERS = itertools.count(1)


class Service:
    """The loop in a thread, connected to a peer; `wait` awaits what it has handled."""

    def __init__(self, peer: Peer, state: SchedulerState) -> None:
        store = MemoryStore(state.spec.name)
        store.load()
        self.runner = Runner(state, store)
        self.driver = MesosDriver(state.spec, peer.address, state.stored.framework_id, self.runner.put)
        self.runner.attach(self._see)
        self._changed = threading.Condition()
        self.events: list[Event] = []
        self._thread = threading.Thread(target=self.runner.run, args=(self.driver,))

    def __enter__(self) -> Service:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.runner.abort()
        self.join()

    def join(self) -> None:
        self._thread.join(PATIENCE)

    def wait(self, condition: Callable[[Event], bool], count: int = 1) -> Event:
        """Wait for the `count`-th such event."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self._all(condition)) >= count, PATIENCE), self.events
            return self._all(condition)[count - 1]

    def _all(self, condition: Callable[[Event], bool]) -> list[Event]:
        return [event for event in self.events if condition(event)]

    def _see(self, event: Event, _decision: Decision) -> None:
        with self._changed:
            self.events.append(event)
            self._changed.notify_all()

    @property
    def health(self) -> tuple[int, list[str]]:
        answer = service.health(Snapshot(self.runner.state), {"verbose": True})
        return answer.code, answer.body["reasons"]


def is_failed(name: str) -> Callable[[Event], bool]:
    return lambda event: isinstance(event, CallFailed) and type(event.call).__name__ == name


def is_a(kind: type[Event]) -> Callable[[Event], bool]:
    return lambda event: isinstance(event, kind)


@pytest.mark.parametrize("code", [400, 401, 403, 503])
def test_refused_calls_are_answered_for(code: int) -> None:
    """Health reports it, launches are dropped, a new subscription releases offers."""
    is_refusing = threading.Event()

    def answer(exchange: Exchange) -> None:
        # An earlier refusal could end the subscription before its offers are used.
        if exchange.received.type == "ACCEPT":
            is_refusing.set()
        (status(code, b"no\x07 way") if is_refusing.is_set() else ACCEPTED)(exchange)

    with (
        Peer(stream(subscribed(), offers()), stream(subscribed()), on_call=answer) as peer,
        Service(peer, REGISTERED) as running,
    ):
        running.wait(is_failed("Accept"))
        health, reasons = running.health
        assert 317 == health
        assert reasons[0].endswith(f"UTC: {code} no\ufffd way; running tasks continue")
        launch = running.runner.state.status("worker-0")
        assert launch is not None
        assert TaskState.DROPPED is launch.state
        peer.wait("SUBSCRIBE", 2)


def test_accepted_call_ends_the_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rights are granted again: the task is launched on a new subscription."""
    monkeypatch.setattr("tf_scheduler.mesos.outbox.RESUBSCRIBE_INTERVAL", 0.1)
    is_granted, is_launched = threading.Event(), threading.Event()

    def answer(exchange: Exchange) -> None:
        if is_granted.is_set() and exchange.received.type == "ACCEPT":
            is_launched.set()
        exchange.answer(202 if is_granted.is_set() else 401)

    with Peer(stream(subscribed(), offers()), on_call=answer) as peer, Service(peer, REGISTERED) as running:
        running.wait(is_failed("Accept"))
        is_granted.set()
        running.wait(is_a(CallsAccepted))
        assert is_launched.wait(PATIENCE)
        assert 317 != running.health[0]


def test_unanswered_calls_end_the_subscription() -> None:
    """Three in a row, with an event stream that is alive."""

    def answer(exchange: Exchange) -> None:
        (vanish if exchange.received.type in ("ACCEPT", "DECLINE") else ACCEPTED)(exchange)

    with Peer(stream(subscribed(), offers()), on_call=answer) as peer, Service(peer, REGISTERED) as running:
        accept = running.wait(is_failed("Accept"))
        assert isinstance(accept, CallFailed)
        assert accept.may_be_done
        # Mesos may have launched it: only an answer to RECONCILE ends the launch.
        assert running.runner.state.status("worker-0") is None
        lost = running.wait(is_a(Disconnected))
        assert isinstance(lost, Disconnected)
        assert lost.reason.startswith("3 calls in a row were not answered")
        peer.wait("SUBSCRIBE", 2)


@pytest.fixture
def slow() -> Iterator[tuple[threading.Event, Callable[[Exchange], None]]]:
    """A master that answers calls when the event is set."""
    go_on = threading.Event()

    def answer(exchange: Exchange) -> None:
        go_on.wait(PATIENCE)
        exchange.answer(202)

    yield go_on, answer
    go_on.set()


def test_events_are_handled_while_kills_wait(slow) -> None:
    """A slow master and a hundred KILLs must not hold the loop."""
    go_on, answer = slow
    state = with_fields(launched(a_service(100), TaskState.RUNNING), framework_id=FrameworkId("framework-1"))
    with Peer(stream(subscribed()), on_call=answer) as peer, Service(peer, state) as running:
        running.wait(is_a(Subscribed))
        running.runner.request_stop("enough")
        running.wait(is_a(StopRequested))
        peer.push({"type": "RESCIND", "rescind": {"offer_id": {"value": "o-1"}}})

        running.wait(is_a(OfferRescinded))

        assert [] == peer.all("KILL")
        assert running.driver.queued_calls >= 100
        go_on.set()
        peer.wait("KILL", 100)


def test_teardown_is_sent_before_exit(slow) -> None:
    """It waits behind other calls; a loop with TEARDOWN does not return earlier."""
    go_on, answer = slow
    with Peer(stream(subscribed(), offers()), on_call=answer) as peer, Service(peer, REGISTERED) as running:
        peer.wait("RECONCILE")
        running.runner.abort(teardown=True)
        go_on.set()
        running.join()
        assert 1 == len(peer.all("TEARDOWN"))


def test_clock_drift_is_reported_once_and_until_it_ends() -> None:
    """The Date headers of SUBSCRIBE and of calls; a second later it is still the same."""
    offset = [MAX_CLOCK_OFFSET + 60]

    def answer(exchange: Exchange) -> None:
        exchange.answer(202, Date=formatdate(time.time() + offset[0], usegmt=True))

    with Peer(stream(subscribed(), offers()), on_call=answer) as peer, Service(peer, REGISTERED) as running:
        drift = running.wait(is_a(ClockDrifted))
        assert isinstance(drift, ClockDrifted)
        assert drift.seconds > MAX_CLOCK_OFFSET
        assert "behind that of the Mesos master" in running.health[1][-1]
        calls = len(peer.all("ACCEPT"))
        offset[0] = 0
        peer.push(offers())
        running.wait(lambda event: event == ClockDrifted(0.0))
        assert calls <= len(peer.all("ACCEPT"))
        assert not any("Mesos master" in reason for reason in running.health[1])
        assert 2 == len([event for event in running.events if isinstance(event, ClockDrifted)])


def test_answer_without_date_reports_no_drift() -> None:
    with Peer(stream(subscribed(), offers()), on_call=ACCEPTED) as peer, Service(peer, REGISTERED) as running:
        peer.wait("ACCEPT")
        assert not [event for event in running.events if isinstance(event, ClockDrifted)]
