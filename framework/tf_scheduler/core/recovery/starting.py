"""Launches that do not begin: nothing was heard of them, or no more than TASK_STAGING.

An agent that takes a task and does not start it says nothing, and neither does its master; the others wait for it.
Later stages have times of their own: fetching and hooks `hook_timeout`, a program that runs `joining`.
"""

from __future__ import annotations

from collections.abc import Iterator

from tf_scheduler.model.ids import name_of
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.model.task import TaskState, TaskStatus

#: Seconds that every launch has, however short `recovery.start_timeout` is: images and executors are fetched in them.
LEAST = 60.0


def deadlines(state: SchedulerState) -> Iterator[float]:
    """When the next launch has taken too long to begin."""
    patience = _patience(state)
    if patience is not None and state.unstarted and state.connected:
        yield max(min(state.unstarted.values()) + patience, state.connected_at + LEAST)


def given_up(state: SchedulerState, now: float) -> tuple[TaskStatus, ...]:
    """What to believe of launches that have not begun in time. Mesos is to end them: an agent may start one later."""
    due, patience = next(deadlines(state), None), _patience(state)
    if due is None or patience is None or now < due:
        return ()
    late = [launch for launch, since in state.unstarted.items() if now >= since + patience]
    found = (state.tasks.get(name_of(launch)) for launch in late)
    message = f"it has not joined the others: its agent has not started it {patience:g} s after its launch"
    return tuple(
        TaskStatus(record.id, TaskState.LOST, record.agent_id, message=message, timestamp=now)
        for record in found
        if record is not None
    )


def _patience(state: SchedulerState) -> float | None:
    wanted = state.spec.recovery.start_timeout
    return None if wanted is None or state.result is not None else max(wanted, LEAST)
