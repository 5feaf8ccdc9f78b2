"""Launches that are to be replaced at no cost to their tasks: with a lost one, before maintenance, by order."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from tf_scheduler.model.failure import Cause
from tf_scheduler.model.ids import TaskName
from tf_scheduler.model.recovery import Recovery
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.model.task import TaskRecord, TaskState, TaskStatus

from .causes import DRAINED
from .units import inseparable, restarts

#: Seconds that a task waits for its old address, from when it could be launched there.
HOME_WAIT = 5.0


_AGENT_GONE = frozenset(
    {TaskState.GONE, TaskState.GONE_BY_OPERATOR, TaskState.LOST, TaskState.UNKNOWN, TaskState.UNREACHABLE}
)


def is_gone(status: TaskStatus) -> bool:
    """Whether the task's agent is gone with it, or is about to: it is not offered again soon."""
    return status.state in _AGENT_GONE or status.reason in DRAINED


def is_replaced(state: SchedulerState, record: TaskRecord) -> bool:
    """Whether this very launch is to be replaced already."""
    known = state.recoveries.get(record.name)
    return known is not None and known.launch == record.id


def is_finished(state: SchedulerState, record: TaskRecord) -> bool:
    """Whether the task has done its work: nothing launches it again."""
    status = state.statuses.get(record.id)
    return status is not None and status.state is TaskState.FINISHED


def anew(
    state: SchedulerState, record: TaskRecord, why: str, now: float, cause: Cause = Cause.INFRASTRUCTURE
) -> Recovery:
    """Replace this launch now, at its old address if possible. Its failures and its back-off stay as they are."""
    before, status = state.recoveries.get(record.name), state.statuses.get(record.id)
    return Recovery(
        task=record.name,
        launch=record.id,
        cause=cause,
        why=why,
        since=now,
        ready_at=now,
        home_until=now + HOME_WAIT,
        failures=before.failures if before else (),
        streak=before.streak if before else 0,
        stumbled=before.stumbled if before else "",
        shuns=before.shuns if before else (),
        served=(before is not None and before.served) or (status is not None and status.healthy is True),
    )


def mates(state: SchedulerState, names: Collection[TaskName], *, moved: bool) -> Iterator[TaskRecord]:
    """Whoever must start again with these tasks, and does not do so yet. A task that has finished never does."""
    for name in sorted(restarts(state.spec, names, moved=moved).difference(names)):
        record = state.tasks.get(name)
        if record is not None and not is_finished(state, record) and not is_replaced(state, record):
            yield record


def finished_mates(state: SchedulerState, record: TaskRecord) -> list[TaskName]:
    """Without whom it cannot train, and who are never launched again."""
    found = (state.tasks.get(name) for name in sorted(inseparable(state.spec, record.name)))
    return [other.name for other in found if other is not None and is_finished(state, other)]


def settled(state: SchedulerState, record: TaskRecord, status: TaskStatus, now: float) -> Recovery | None:
    """A launch that is replaced has ended only now: only now its old address can be free. None: nothing changes."""
    item = state.recoveries.get(record.name)
    if item is None or item.launch != record.id or item.home_until <= item.ready_at:
        return None
    return replace(item, home_until=item.ready_at if is_gone(status) else max(now, item.ready_at) + HOME_WAIT)
