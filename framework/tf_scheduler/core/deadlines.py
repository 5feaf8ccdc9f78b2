"""When the state wants a Tick. There is no polling: no deadline, no Tick."""

from __future__ import annotations

from collections.abc import Iterator

from tf_scheduler.model.state import SchedulerState

from . import keeping, maintenance, operations, overdue, reconcile, taken
from .plans import leaves
from .plans.act import KILL_AGAIN
from .recovery import heal
from .reserve import lost_at, settling_until
from .rounds import SILENCE


def next_deadline(state: SchedulerState) -> float | None:
    """Seconds since the epoch of the earliest deadline; None when only an event can change anything."""
    return min(_deadlines(state), default=None) if not state.over else None


def _deadlines(state: SchedulerState) -> Iterator[float]:
    if not state.connected:
        return
    if state.gathering.started is not None:
        yield state.gathering.started + state.spec.gang.hold_seconds
    if state.unoffered_since is not None:
        yield state.unoffered_since + SILENCE
    if state.revive_at is not None:
        yield state.revive_at
    for item in state.reservations.values():
        yield lost_at(state, item) if item.id in state.expired else min(item.deadline, lost_at(state, item))
        if item.id in state.returned:
            yield settling_until(state)
    yield from reconcile.deadlines(state)
    yield from operations.deadlines(state)
    yield from taken.deadlines(state)
    if state.result is None:
        yield from heal.deadlines(state)
        yield from maintenance.deadlines(state)
        yield from overdue.deadlines(state)
    else:
        yield from keeping.deadlines(state)
    if state.kill_at:
        yield state.kill_at
    if state.teardown_at is not None:
        yield state.teardown_at + KILL_AGAIN
    elif state.result is not None and state.given_back_at and not keeping.stays(state) and leaves(state):
        yield settling_until(state)
