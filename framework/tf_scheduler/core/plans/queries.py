"""What else the core asks the plans: what a task is launched with, whether its end matters, what the end needs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tf_scheduler.core.state.spec_index import index_of
from tf_scheduler.model.ids import TaskName
from tf_scheduler.model.plan import PlanKind, StepDef, Work
from tf_scheduler.model.spec import ServiceSpec
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.model.task import TaskRecord

from .rollout import latest_launch_number
from .scheduling import PlanView, due_steps
from .view import uninstall_progress


def config_digest(spec: ServiceSpec, name: TaskName) -> str:
    """Digest of what the task is launched with; empty for a task that the options do not have."""
    return index_of(spec).configs.get(name, "")


def target_digest(spec: ServiceSpec) -> str:
    """Digest of everything that the tasks are launched with; another one makes an update."""
    return index_of(spec).target


def parameters_of(state: SchedulerState, plan: str) -> Mapping[str, str]:
    """Environment of the tasks that a plan launches."""
    control = state.stored.controls.get(plan)
    return {} if control is None else control.parameters


def unstarted_plans(view: PlanView) -> frozenset[str]:
    """Names of plans of the user that nobody has started, or that are interrupted: they want nothing now."""
    found = (plan for plan in view.definitions if plan.kind is PlanKind.CUSTOM)
    return frozenset(plan.name for plan in found if () in view.records.control_of(plan).interrupted)


def next_serial(state: SchedulerState) -> int:
    """Number of the launches that are decided now; greater than that of any before."""
    return 1 + latest_launch_number(state.stored.tasks, state.stored.controls)


def cluster_records(state: SchedulerState, records: Iterable[TaskRecord]) -> Iterable[TaskRecord]:
    """The records that make the ClusterSpec, with new ones in place of old ones; without decommissioned tasks."""
    known = index_of(state.spec).tasks
    return {
        **{name: record for name, record in state.stored.tasks.items() if name in known},
        **_by_name(records),
    }.values()


def _by_name(records: Iterable[TaskRecord]) -> Mapping[TaskName, TaskRecord]:
    return {record.name: record for record in records}


def in_options(state: SchedulerState, record: TaskRecord) -> bool:
    """Whether the options have the task; if not, it is decommissioned."""
    return record.name in index_of(state.spec).tasks


def is_needed(view: PlanView, record: TaskRecord) -> bool:
    """Whether the job fails when this launch ends badly.

    Not when a plan has told it to end, or will: the peers of a task that is launched anew may fail with it. Not when
    the options no longer have it, or when only a plan of the user launches it.
    """
    deployed, retired = index_of(view.inputs.spec).scope, view.inputs.retired
    return record.name in deployed and record.id not in retired and record.name not in view.open_tasks


def replacing_plan(view: PlanView, record: TaskRecord) -> str:
    """The plan that launches the task again when this launch has ended badly; empty: none does, or it knows already."""
    again = record.id not in view.inputs.retired and record.name in view.open_tasks
    return view.records.rollout.name if again else ""


def due_uninstall_steps(state: SchedulerState) -> tuple[StepDef, ...]:
    """Steps of the uninstall plan whose turn it is."""
    return due_steps(uninstall_progress(state))


def teardown_due(state: SchedulerState) -> bool:
    """Whether it is the turn of TEARDOWN."""
    return any(step.work is Work.DEREGISTER for step in due_uninstall_steps(state))
