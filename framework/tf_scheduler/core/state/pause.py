"""Tasks that an operator has paused: their programs have ended, and their places are kept by a program that sleeps.

So Mesos goes on to count what they have of their agents as used, and nobody else gets it (dcos-commons,
GoalStateOverride). It is an ordinary launch, at the old address if that can be had, and recovered like any other.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from tf_scheduler.core.state.spec_index import index_of
from tf_scheduler.model.ids import TaskName
from tf_scheduler.model.plan import Override
from tf_scheduler.model.spec import ServiceSpec
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.model.task import TaskRecord, TaskState


def sleeping_tasks(spec: ServiceSpec, paused: Mapping[TaskName, float]) -> frozenset[TaskName]:
    """Tasks whose programs are not to run: the paused tasks, and those that would have to restart with them."""
    return index_of(spec).restarts(paused, moved=False) if paused else frozenset()


def is_sleeping(spec: ServiceSpec, paused: Mapping[TaskName, float], name: TaskName) -> bool:
    """Whether the program of this task is not to run; cheaper than `asleep` for one task."""
    return bool(paused) and any(index_of(spec).restarts_with(name, other) for other in paused)


def override_of(state: SchedulerState, name: TaskName) -> Override | None:
    """What is told of the task instead of its status; None: nothing keeps its program from running."""
    record = state.stored.tasks.get(name) if is_sleeping(state.spec, state.stored.paused, name) else None
    if record is None or state.is_finished(record):
        return None
    status = state.stored.statuses.get(record.id)
    if record.is_placeholder and status is not None and status.state is TaskState.RUNNING:
        return Override.PAUSED
    return (
        Override.PAUSING if state.stored.result is None else None
    )  # after the end of the job nothing is launched there


def pause_reason(state: SchedulerState, name: TaskName) -> str:
    """Why the program of a task that is asleep does not run."""
    if name in state.stored.paused:
        return "paused by an operator"
    return f"it starts again with {' and '.join(_whose(state, name))}, paused by an operator"


def placeholder_command(state: SchedulerState, record: TaskRecord) -> str:
    """Shell command line that runs in place of its program: it tells why, and how to go on, and sleeps."""
    resume = f"dcos tensorflow --name={state.spec.name} pod resume"
    lines = (
        f"{record.name} of {state.spec.name} is paused: {pause_reason(state, record.name)}.",
        f"No program runs here; its place is kept, {record.address} with all its resources.",
        *(f"To go on: {resume} {name}" for name in _whose(state, record.name)),
    )
    return f"printf '%s\\n' {' '.join(map(shlex.quote, lines))}; while :; do sleep 3600; done"


def _whose(state: SchedulerState, name: TaskName) -> list[TaskName]:
    """Which paused tasks are to be resumed before its program runs again."""
    return sorted(other for other in state.stored.paused if index_of(state.spec).restarts_with(name, other))
