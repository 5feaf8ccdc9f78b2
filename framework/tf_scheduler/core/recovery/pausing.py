"""Tasks that an operator has paused: their programs have ended, and their places are kept by a program that sleeps.

So Mesos goes on to count what they have of their agents as used, and nobody else gets it (dcos-commons,
GoalStateOverride). It is an ordinary launch, at the old address if that can be had, and recovered like any other.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from tf_scheduler.core.memo import remembered
from tf_scheduler.core.reduce import decide
from tf_scheduler.model.effects import Decision, Outcome, RecoveryDecided
from tf_scheduler.model.failure import Cause
from tf_scheduler.model.ids import TaskName
from tf_scheduler.model.plan import Override
from tf_scheduler.model.spec import ServiceSpec
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.model.task import TaskRecord, TaskState

from .anew import anew, is_finished, is_replaced
from .units import restarts

_NOBODY: frozenset[TaskName] = frozenset()


def asleep(spec: ServiceSpec, paused: Mapping[TaskName, float]) -> frozenset[TaskName]:
    """Tasks whose programs are not to run: the paused ones, and whoever would have to start again with them."""
    return _asleep(spec, paused) if paused else _NOBODY


@remembered
def _asleep(spec: ServiceSpec, paused: Mapping[TaskName, float]) -> frozenset[TaskName]:
    return restarts(spec, paused, moved=False)


def wake(state: SchedulerState, now: float) -> Decision:
    """Launch the programs of those who sleep for a task that the options have no more: nobody could resume it."""
    if state.result is not None:
        return decide(state)
    names = _forlorn(state.spec, state.tasks, state.paused)
    records = [record for name in names if not _ends(state, record := state.tasks[name])]
    why = "the paused task that it starts again with is no more"
    changes = [RecoveryDecided(anew(state, record, why, now, Cause.ORDERED)) for record in records]
    told = [Outcome(f"{record.name} goes on: {why}", record.name) for record in records]
    return decide(state, *changes, outcomes=tuple(told))


@remembered
def _forlorn(
    spec: ServiceSpec, tasks: Mapping[TaskName, TaskRecord], paused: Mapping[TaskName, float]
) -> tuple[TaskName, ...]:
    idle = {name for name, record in tasks.items() if record.idle}
    if not idle:
        return ()
    return tuple(task.name for task in spec.tasks() if task.name in idle - asleep(spec, paused))


def _ends(state: SchedulerState, record: TaskRecord) -> bool:
    """Whether it is to be launched again already."""
    return record.id in state.retired or is_replaced(state, record)


def shown(state: SchedulerState, name: TaskName) -> Override | None:
    """What is told of the task instead of its status; None: nothing keeps its program from running."""
    record = state.tasks.get(name) if name in asleep(state.spec, state.paused) else None
    if record is None or is_finished(state, record):
        return None
    status = state.statuses.get(record.id)
    if record.idle and status is not None and status.state is TaskState.RUNNING:
        return Override.PAUSED
    return Override.PAUSING if state.result is None else None  # after the end of the job nothing is launched there


def why(state: SchedulerState, name: TaskName) -> str:
    """Why the program of a task that is asleep does not run."""
    if name in state.paused:
        return "paused by an operator"
    return f"it starts again with {' and '.join(_whose(state, name))}, paused by an operator"


def command(state: SchedulerState, record: TaskRecord) -> str:
    """Shell command line that runs in place of its program: it tells why, and how to go on, and sleeps."""
    resume = f"dcos tensorflow --name={state.spec.name} pod resume"
    lines = (
        f"{record.name} of {state.spec.name} is paused: {why(state, record.name)}.",
        f"No program runs here; its place is kept, {record.address} with all its resources.",
        *(f"To go on: {resume} {name}" for name in _whose(state, record.name)),
    )
    return f"printf '%s\\n' {' '.join(map(shlex.quote, lines))}; while :; do sleep 3600; done"


def _whose(state: SchedulerState, name: TaskName) -> list[TaskName]:
    """Which paused tasks are to be resumed before its program runs again."""
    return sorted(other for other in state.paused if name in restarts(state.spec, [other], moved=False))
