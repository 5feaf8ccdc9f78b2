"""Processor time of one event and the next deadline, with ten thousand tasks.

Run with `-s` to see the numbers. Correctness is asserted first, then how the cost grows with the service.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pytest

from benchmarks.services import a_service, launched
from builders import a_status, an_offer, with_fields
from tf_executor.contract.reports import Progress
from tf_executor.contract.states import TaskState, Verdict
from tf_scheduler.core.scheduler import handle, next_deadline
from tf_scheduler.core.state.reducer import apply
from tf_scheduler.model.effects import ComputedPlans, RecoveryDecided, ResultDecided, StatusStored, TaskForgotten
from tf_scheduler.model.events import (
    Event,
    InverseOffersReceived,
    OffersReceived,
    ProgressReported,
    StatusUpdated,
    StopRequested,
    Subscribed,
    Tick,
)
from tf_scheduler.model.ids import TaskName
from tf_scheduler.model.offer import InverseOffer, Offer, Unavailability
from tf_scheduler.model.plan import PlanStrategy
from tf_scheduler.model.spec import CleanupPolicy, RestartPolicy
from tf_scheduler.model.state import Result, SchedulerState
from tf_scheduler.model.task import Cause, Recovery, TaskRecord, TaskStatus

COUNTS = (100, 1_000, 10_000)
#: Events of one round, about tasks spread over the whole service; the minimum of the rounds counts.
EVENTS, ROUNDS = 50, 15
NOW = 100.0


@dataclass(frozen=True)
class Row:
    """One kind of event in one situation."""

    name: str
    state: Callable[[int], SchedulerState]
    events: Callable[[SchedulerState], Sequence[Event]]
    #: Whether the events had their effect.
    check: Callable[[SchedulerState, SchedulerState], bool]
    #: Maximum growth of the cost from a thousand to ten thousand tasks.
    growth: float = 1.5


def running(count: int) -> SchedulerState:
    """Return a service of which all tasks run, since before this connection."""
    spec = replace(a_service(count), restart=RestartPolicy(max_failures=3))
    return with_fields(launched(spec, TaskState.RUNNING), connected_at=NOW - 1)


def half_joined(count: int) -> SchedulerState:
    """Return a service of which every other task has joined."""
    state = running(count)
    statuses = list(state.stored.statuses.values())[::2]
    return apply(state, *(StatusStored(replace(status, healthy=True)) for status in statuses))


def joined(count: int) -> SchedulerState:
    state = running(count)
    return apply(state, *(StatusStored(replace(status, healthy=True)) for status in state.stored.statuses.values()))


def relaunched(count: int) -> SchedulerState:
    """Return a service whose tasks all run as the second launch."""
    state = half_joined(count)
    before = [
        Recovery(name, f"{name}__before", Cause.INFRASTRUCTURE, "lost", 1.0, 1.0, 1.0) for name in state.stored.tasks
    ]
    return apply(state, *map(RecoveryDecided, before))


def unreachable(count: int) -> SchedulerState:
    state = joined(count)
    statuses = state.stored.statuses.values()
    return apply(state, *(StatusStored(replace(item, state=TaskState.UNREACHABLE, timestamp=NOW)) for item in statuses))


def serial(count: int) -> SchedulerState:
    """Return a service whose last task waits for offers, and for its turn."""
    whole = launched(a_service(count, PlanStrategy.SERIAL), TaskState.RUNNING)
    return apply(whole, TaskForgotten(TaskName("chief-0")))


def stopped(count: int) -> SchedulerState:
    return handle(joined(count), StopRequested("enough"), NOW, lambda: "id").state


def some(state: SchedulerState) -> list[TaskRecord]:
    records = list(state.stored.tasks.values())
    return records[1 :: len(records) // EVENTS][:EVENTS]


def updates(to: TaskState, **fields: object) -> Callable[[SchedulerState], list[Event]]:
    """Return updates of some tasks to this state."""
    return lambda state: [
        StatusUpdated(a_status(record.id, to, f"uuid-{record.id}", agent_id=record.agent_id, **fields))
        for record in some(state)
    ]


def progress(state: SchedulerState) -> list[Event]:
    return [ProgressReported(record.id, Progress(1, NOW)) for record in some(state)]


def answered(state: SchedulerState) -> list[Event]:
    """Return answers to the status requests of a new connection."""
    return [StatusUpdated(TaskStatus(record.id, TaskState.RUNNING, record.agent_id)) for record in some(state)]


def subscribed(count: int) -> SchedulerState:
    state = with_fields(joined(count), framework_id="fw-1")
    return handle(state, Subscribed("fw-1"), NOW, lambda: "id").state


def awaiting(count: int, held: int = 20) -> SchedulerState:
    """Return a service that was never launched, and holds offers for one task each."""
    fresh = with_fields(SchedulerState(a_service(count)), framework_id="fw-1")
    state = handle(fresh, Subscribed("fw-1"), NOW, lambda: "id").state
    return handle(state, OffersReceived(tuple(offers("held", held))), NOW, lambda: "id").state


def offers(name: str, count: int) -> list[Offer]:
    return [an_offer(f"{name}-{number}", f"agent-{name}-{number}", cpus=1) for number in range(count)]


def leaving(count: int) -> SchedulerState:
    """Return a service whose agent has a maintenance window."""
    window = InverseOffer("inverse-1", "a", Unavailability(NOW + 200_000.0))
    return handle(joined(count), InverseOffersReceived((window,)), NOW, lambda: "id").state


def retained(count: int) -> SchedulerState:
    """Return a service whose job has ended, and whose tasks keep running."""
    state = joined(count)
    kept = replace(state, spec=replace(state.spec, finish=replace(state.spec.finish, cleanup=CleanupPolicy.NONE)))
    kept = with_fields(kept, framework_id="fw-1", connected=True)
    return apply(kept, ResultDecided(Result(Verdict.SUCCEEDED, "the chief has finished", NOW)))


def useful(_: SchedulerState) -> list[Event]:
    return [OffersReceived((offer,)) for offer in offers("new", EVENTS)]


def are_held(before: SchedulerState, after: SchedulerState) -> bool:
    """Return whether the offers are held, and were not matched one by one."""
    news = len(after.session.round.offers) - len(before.session.round.offers)
    return (EVENTS, before.process.evaluations) == (news, after.process.evaluations)


def are(*states: TaskState) -> Callable[[SchedulerState, SchedulerState], bool]:
    return lambda before, after: {after.stored.statuses[record.id].state for record in some(before)} == set(states)


def is_quiet(before: SchedulerState, after: SchedulerState) -> bool:
    return before.stored == after.stored and (next_deadline(after) or NOW + 1) > NOW


def have_answered(before: SchedulerState, after: SchedulerState) -> bool:
    awaited = [state.session.reconciliation.awaits for state in (before, after)]
    return [(True, False)] * EVENTS == [(awaited[0](item.id), awaited[1](item.id)) for item in some(before)]


ROWS = (
    Row("running -> running, all have joined", joined, updates(TaskState.RUNNING), are(TaskState.RUNNING)),
    Row("running -> running, others are joining", half_joined, updates(TaskState.RUNNING), are(TaskState.RUNNING)),
    Row(
        "running -> joined, others are joining",
        half_joined,
        updates(TaskState.RUNNING, healthy=True),
        are(TaskState.RUNNING),
    ),
    Row("the same, all were relaunched before", relaunched, updates(TaskState.RUNNING), are(TaskState.RUNNING)),
    Row("running -> running after the end of the job", retained, updates(TaskState.RUNNING), are(TaskState.RUNNING)),
    Row("running -> unreachable", joined, updates(TaskState.UNREACHABLE), are(TaskState.UNREACHABLE)),
    Row("unreachable -> running, all are unreachable", unreachable, updates(TaskState.RUNNING), are(TaskState.RUNNING)),
    Row("failed, one by one", joined, updates(TaskState.FAILED, signal=9), are(TaskState.FAILED)),
    Row("failed, all were relaunched before", relaunched, updates(TaskState.FAILED, signal=9), are(TaskState.FAILED)),
    Row("failed with an exit code, one by one", joined, updates(TaskState.FAILED, exit_code=1), are(TaskState.FAILED)),
    Row("running -> running, a serial plan waits", serial, updates(TaskState.RUNNING), are(TaskState.RUNNING)),
    Row("killed, at the end of the job", stopped, updates(TaskState.KILLED), are(TaskState.KILLED)),
    Row("tick, others are joining", half_joined, lambda _: [Tick()] * 10, is_quiet),
    Row("tick, all are unreachable", unreachable, lambda _: [Tick()] * 10, is_quiet),
    Row("answer to reconciliation", subscribed, answered, have_answered),
    Row("progress message", running, progress, lambda _, after: len(after.process.progress) == EVENTS),
    Row("running -> running before maintenance", leaving, updates(TaskState.RUNNING), are(TaskState.RUNNING)),
    Row("offer that cannot complete the gang", awaiting, useful, are_held),
    Row("the same, one offer held for two tasks", lambda n: awaiting(2 * n, held=n), useful, are_held, growth=8),
    Row(
        "subscribed with a known id",
        joined,
        lambda _: [Subscribed("fw-1")] * 3,
        lambda before, after: len(after.session.reconciliation.unanswered) == len(before.stored.tasks),
        growth=12,
    ),
)


def play(state: SchedulerState, view: ComputedPlans | None, events: Sequence[Event]) -> SchedulerState:
    """Handle the events as the runner does."""
    for event in events:
        decision = handle(state, event, NOW, lambda: "id", view)
        state, view = decision.state, decision.view
        next_deadline(state)
    return state


def prepared(row: Row, count: int) -> Callable[[], float]:
    """Check the row, and return a function that measures the seconds of one event."""
    state = row.state(count)
    first = handle(state, Tick(), NOW, lambda: "id")
    state, events = first.state, row.events(first.state)
    assert row.check(state, play(state, first.view, events))

    def measure() -> float:
        start = time.process_time()
        play(state, first.view, events)
        return (time.process_time() - start) / len(events)

    return measure


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_event_cost_does_not_grow_with_the_service(row: Row) -> None:
    """Tasks report one by one, so a cost per task would be a square."""
    measures = {count: prepared(row, count) for count in COUNTS}
    gc.collect()
    gc.disable()
    try:
        # By turns, because other processes slow down some rounds.
        rounds = [{count: measure() for count, measure in measures.items()} for _ in range(ROUNDS)]
    finally:
        gc.enable()
    seconds = {count: min(taken[count] for taken in rounds) for count in COUNTS}

    print(f"{row.name:45}" + "".join(f"{seconds[count] * 1000:9.3f} ms" for count in COUNTS))
    assert seconds[10_000] <= row.growth * seconds[1_000]
