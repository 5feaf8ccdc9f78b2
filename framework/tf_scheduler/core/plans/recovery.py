"""What was lost and is to be launched again: the steps of the recovery plan. core/recovery decides what that is."""

from __future__ import annotations

from collections.abc import Mapping

from tf_scheduler.core.memo import remembered
from tf_scheduler.model.ids import TaskName
from tf_scheduler.model.recovery import Recovery
from tf_scheduler.model.spec import ServiceSpec
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.model.task import TaskRecord

from .outline import outline


def to_relaunch(state: SchedulerState) -> tuple[TaskName, ...]:
    """Tasks whose launch is lost, or starts again with a lost one, until they are launched again.

    The same tuple for the same tasks: the recovery plan is made from it.
    """
    if not state.recoveries or state.result is not None:
        return ()
    return _in_force(state.spec, state.recoveries, state.tasks)


def in_recovery(state: SchedulerState) -> tuple[TaskName, ...]:
    """Those, and the tasks that are paused: something is still to be done for them, when they are resumed."""
    lost = to_relaunch(state)
    return _with_idle(state.spec, lost, state.tasks) if state.paused and state.result is None else lost


def is_ripe(state: SchedulerState, name: TaskName) -> bool:
    """Whether a task that is to be launched again may be launched now: its back-off is over."""
    record, item = state.tasks.get(name), state.recoveries.get(name)
    return record is None or item is None or item.launch != record.id or record.id in state.ripe


@remembered
def _in_force(
    spec: ServiceSpec, recoveries: Mapping[TaskName, Recovery], tasks: Mapping[TaskName, TaskRecord]
) -> tuple[TaskName, ...]:
    """Without tasks that the options no longer have: those are decommissioned."""
    known = outline(spec).tasks
    lost = (name for name in known if name in recoveries and name in tasks)
    return tuple(name for name in lost if tasks[name].id == recoveries[name].launch)


@remembered
def _with_idle(
    spec: ServiceSpec, lost: tuple[TaskName, ...], tasks: Mapping[TaskName, TaskRecord]
) -> tuple[TaskName, ...]:
    known, again = outline(spec).tasks, frozenset(lost)
    return tuple(name for name in known if name in again or (name in tasks and tasks[name].idle))
