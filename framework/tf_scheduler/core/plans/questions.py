"""What else the core asks the plans: what a task is launched with, whether its end matters, what the end needs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tf_scheduler.model.ids import TaskName
from tf_scheduler.model.spec import ServiceSpec
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.model.task import TaskRecord

from .claims import due
from .control import control_of, in_force, last_serial
from .define import Kind, StepDef, Work, definitions, uninstall
from .facts import open_tasks
from .outline import outline


def config_of(spec: ServiceSpec, name: TaskName) -> str:
    """Digest of what the task is launched with; empty for a task that the options do not have."""
    return outline(spec).configs.get(name, "")


def target(spec: ServiceSpec) -> str:
    """Digest of everything that the tasks are launched with; another one makes an update."""
    return outline(spec).target


def parameters_of(state: SchedulerState, plan: str) -> Mapping[str, str]:
    """Environment of the tasks that a plan launches."""
    control = state.controls.get(plan)
    return {} if control is None else control.parameters


def asleep(state: SchedulerState) -> frozenset[str]:
    """Names of plans of the user that nobody has started, or that are interrupted: they want nothing now."""
    found = (plan for plan in definitions(state) if plan.kind is Kind.CUSTOM)
    return frozenset(plan.name for plan in found if () in control_of(state, plan).interrupted)


def next_serial(state: SchedulerState) -> int:
    """Number of the launches that are decided now; greater than that of any before."""
    return 1 + last_serial(state.tasks, state.controls)


def in_cluster(state: SchedulerState, records: Iterable[TaskRecord]) -> Iterable[TaskRecord]:
    """The records that make the ClusterSpec, with new ones in place of old ones; without decommissioned tasks."""
    known = outline(state.spec).tasks
    return {**{name: record for name, record in state.tasks.items() if name in known}, **_by_name(records)}.values()


def _by_name(records: Iterable[TaskRecord]) -> Mapping[TaskName, TaskRecord]:
    return {record.name: record for record in records}


def is_known(state: SchedulerState, record: TaskRecord) -> bool:
    """Whether the options have the task; if not, it is decommissioned."""
    return record.name in outline(state.spec).tasks


def is_needed(state: SchedulerState, record: TaskRecord) -> bool:
    """Whether the job fails when this launch ends badly.

    Not when a plan has told it to end, or will: the peers of a task that is launched anew may fail with it. Not when
    the options no longer have it, or when only a plan of the user launches it.
    """
    shape = outline(state.spec)
    return record.name in shape.scope and record.id not in state.retired and record.name not in open_tasks(state)


def replaces(state: SchedulerState, record: TaskRecord) -> str:
    """The plan that launches the task again when this launch has ended badly; empty: none does, or it knows already."""
    again = record.id not in state.retired and record.name in open_tasks(state)
    return in_force(state) if again else ""


def last_steps(state: SchedulerState) -> tuple[StepDef, ...]:
    """Steps of the uninstall plan whose turn it is."""
    return due(state, uninstall(state.tasks, state.reservations))


def leaves(state: SchedulerState) -> bool:
    """Whether it is the turn of TEARDOWN."""
    return any(step.work is Work.DEREGISTER for step in last_steps(state))
