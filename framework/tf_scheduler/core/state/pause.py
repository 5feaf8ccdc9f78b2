"""Paused tasks: a sleeping placeholder keeps the resources of a stopped program.

Mesos counts the resources as used, so no other framework gets them (dcos-commons, GoalStateOverride). The placeholder
is an ordinary launch, at the previous address if possible, and is recovered like any other.
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
    """Return the paused tasks and their restart peers, whose programs must not run."""
    return index_of(spec).restarts(paused, moved=False) if paused else frozenset()


def is_sleeping(spec: ServiceSpec, paused: Mapping[TaskName, float], name: TaskName) -> bool:
    """Return whether the task's program must not run; cheaper than `sleeping_tasks`."""
    return any(index_of(spec).restarts_with(name, other) for other in paused)


def override_of(state: SchedulerState, name: TaskName) -> Override | None:
    """Return the status to display for a paused task; `None` if its program may run."""
    record = state.stored.tasks.get(name) if is_sleeping(state.spec, state.stored.paused, name) else None
    if record is None or state.is_finished(record):
        return None
    status = state.stored.statuses.get(record.id)
    if record.is_placeholder and status is not None and status.state is TaskState.RUNNING:
        return Override.PAUSED
    # After the end of the job no placeholder is launched.
    return Override.PAUSING if state.stored.result is None else None


def pause_reason(state: SchedulerState, name: TaskName) -> str:
    """Return why the program of a sleeping task does not run."""
    if name in state.stored.paused:
        return "paused by an operator"
    return f"it restarts together with {' and '.join(_paused_causes(state, name))}, which an operator paused"


def placeholder_command(state: SchedulerState, record: TaskRecord) -> str:
    """Return the placeholder's shell command, which explains the pause and sleeps."""
    resume = f"dcos tensorflow --name={state.spec.name} pod resume"
    lines = (
        f"{record.name} of {state.spec.name} is paused: {pause_reason(state, record.name)}.",
        f"No program runs here; the address {record.address} and all resources of the task are kept.",
        *(f"To resume: {resume} {name}" for name in _paused_causes(state, record.name)),
    )
    return f"printf '%s\\n' {' '.join(map(shlex.quote, lines))}; while :; do sleep 3600; done"


def _paused_causes(state: SchedulerState, name: TaskName) -> list[TaskName]:
    """Return the paused tasks that must be resumed before the program runs again."""
    return sorted(other for other in state.stored.paused if index_of(state.spec).restarts_with(name, other))
