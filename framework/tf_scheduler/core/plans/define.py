"""Which plans there are, and their phases and steps. What follows from the options is computed once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum

from tf_scheduler.core.memo import remembered
from tf_scheduler.model.ids import TaskName
from tf_scheduler.model.plan import Dependencies, Node, PhaseSpec, PlanSpec, PlanStrategy
from tf_scheduler.model.plan_names import DECOMMISSION, DEPLOY, DEREGISTER, RECOVERY, RESERVED, UNINSTALL, UPDATE
from tf_scheduler.model.reservation import Reservation
from tf_scheduler.model.spec import JobKind, JobSpec, ServiceSpec
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.model.task import TaskRecord

from .outline import outline
from .recovery import in_recovery

KILL_TASKS, UNRESERVE = "kill-tasks", "unreserve-resources"


class Kind(Enum):
    """What makes the steps of a plan, and what completes them."""

    ROLL_OUT = "every task runs as the options say"
    RECOVERY = "what was lost is launched again, and what is paused when it is resumed"
    DECOMMISSION = "what the options no longer have is ended"
    CUSTOM = "the user's own: started by an operator, with parameters"
    UNINSTALL = "everything is ended, and Mesos forgets the framework"


class Work(Enum):
    """What a step does."""

    LAUNCH = "launch"
    KILL = "kill"
    ERASE = "erase"
    UNRESERVE = "unreserve"
    DEREGISTER = "deregister"


@dataclass(frozen=True, slots=True)
class StepDef:
    name: str
    work: Work
    task: TaskName | None = None


@dataclass(frozen=True, slots=True)
class PhaseDef:
    name: str
    strategy: PlanStrategy
    steps: tuple[StepDef, ...]
    after: Dependencies = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PlanDef:
    """Names of phases are unique in a plan, and those of steps, too: no task has two of them."""

    name: str
    kind: Kind
    strategy: PlanStrategy
    phases: tuple[PhaseDef, ...]
    after: Dependencies = field(default_factory=dict)
    #: Whether the steps that may begin at one moment are launched all or none.
    gang: bool = True

    def steps(self) -> Iterator[tuple[Node, StepDef]]:
        """Every step, with where it is."""
        for phase in self.phases:
            for step in phase.steps:
                yield (phase.name, step.name), step


#: Strategy of a plan whose phases are not listed -> that of the plan, and of each of its phases.
_UNPHASED: Mapping[PlanStrategy, tuple[PlanStrategy, PlanStrategy]] = {
    PlanStrategy.SERIAL: (PlanStrategy.SERIAL, PlanStrategy.SERIAL),
    PlanStrategy.PARALLEL: (PlanStrategy.PARALLEL, PlanStrategy.PARALLEL),
    PlanStrategy.CANARY: (PlanStrategy.SERIAL, PlanStrategy.CANARY),
    PlanStrategy.PARALLEL_CANARY: (PlanStrategy.SERIAL, PlanStrategy.PARALLEL_CANARY),
    PlanStrategy.DEPENDENCY: (PlanStrategy.DEPENDENCY, PlanStrategy.PARALLEL),
}


def definitions(state: SchedulerState) -> tuple[PlanDef, ...]:
    """Every plan that there is now, in the order in which they have the say over a task that several want."""
    launching = launch_plans(state.spec)
    deploy = state.controls.get(DEPLOY)
    first = launching[:2] if deploy is not None and deploy.completed else launching[:1]
    recovery = _recovery(in_recovery(state))
    found = (*first, recovery, decommission(state.spec, state.tasks), *launching[2:])
    return found if state.result is None else (uninstall(state.tasks, state.reservations), *found)


@remembered
def by_task(plan: PlanDef) -> Mapping[TaskName, tuple[Node, StepDef]]:
    """Task -> the step that launches it, with where it is."""
    return {
        step.task: (node, step) for node, step in plan.steps() if step.work is Work.LAUNCH and step.task is not None
    }


@remembered
def launch_plans(spec: ServiceSpec) -> tuple[PlanDef, ...]:
    """deploy, update, and those of the user."""
    deploy = spec.plans.get(DEPLOY, PlanSpec(DEPLOY))
    update = spec.plans.get(UPDATE, PlanSpec(UPDATE, deploy.strategy, deploy.phases, deploy.after, deploy.gang))
    custom = [plan for name, plan in spec.plans.items() if name not in RESERVED]
    return (
        _launching(spec, deploy, Kind.ROLL_OUT),
        _launching(spec, update, Kind.ROLL_OUT),
        *(_launching(spec, plan, Kind.CUSTOM) for plan in custom),
    )


def _launching(spec: ServiceSpec, plan: PlanSpec, kind: Kind) -> PlanDef:
    jobs = {job.group: job for job in spec.jobs}
    strategy, phases = plan.strategy, plan.phases
    if not phases:
        strategy, inner = _UNPHASED[strategy]
        phases = tuple(PhaseSpec(group, group, inner) for group in jobs)
    elif kind is Kind.ROLL_OUT:
        phases = _with_ours(spec, phases)
    found = tuple(_phase(spec, phase, jobs[phase.section]) for phase in phases if phase.section in jobs)
    return PlanDef(plan.name, kind, strategy, found, plan.after, plan.gang)


def _with_ours(spec: ServiceSpec, phases: tuple[PhaseSpec, ...]) -> tuple[PhaseSpec, ...]:
    """Those of the options, between the phases of jobs that no option can name: in the order of the jobs."""
    ours = [(job.kind, PhaseSpec(job.group, job.group)) for job in spec.jobs if job.kind.ours]
    first = (phase for kind, phase in ours if kind is JobKind.DISPATCHER)
    last = (phase for kind, phase in ours if kind is not JobKind.DISPATCHER)
    return (*first, *phases, *last)


def _phase(spec: ServiceSpec, phase: PhaseSpec, job: JobSpec) -> PhaseDef:
    tasks = {task.index: task for task in outline(spec).tasks.values() if task.job is job}
    indexes = [index for index in phase.indexes if index in tasks] or tasks
    steps = tuple(StepDef(tasks[index].name, Work.LAUNCH, tasks[index].name) for index in indexes)
    return PhaseDef(phase.name, phase.strategy, steps, phase.after)


@remembered
def _recovery(names: tuple[TaskName, ...]) -> PlanDef:
    phases = tuple(PhaseDef(name, PlanStrategy.PARALLEL, (StepDef(name, Work.LAUNCH, name),)) for name in names)
    return PlanDef(RECOVERY, Kind.RECOVERY, PlanStrategy.PARALLEL, phases, gang=False)


@remembered
def decommission(spec: ServiceSpec, tasks: Mapping[TaskName, TaskRecord]) -> PlanDef:
    """A phase per surplus task: jobs that are no more first, then the last jobs, each from its highest index."""
    known = outline(spec).tasks
    surplus = [record for name, record in tasks.items() if name not in known]
    order = {job.kind: position for position, job in enumerate(spec.jobs, 1)}
    surplus.sort(key=lambda record: (record.job in order, -order.get(record.job, 0), record.job.value, -record.index))
    return PlanDef(DECOMMISSION, Kind.DECOMMISSION, PlanStrategy.SERIAL, tuple(map(_farewell, surplus)))


def _farewell(record: TaskRecord) -> PhaseDef:
    steps = (
        StepDef(f"kill-{record.name}", Work.KILL, record.name),
        StepDef(f"erase-{record.name}", Work.ERASE, record.name),
    )
    return PhaseDef(record.name, PlanStrategy.SERIAL, steps)


@remembered
def uninstall(tasks: Mapping[TaskName, TaskRecord], reservations: Mapping[str, Reservation]) -> PlanDef:
    """Kill everything, give everything back, then take leave of Mesos."""
    kills = tuple(StepDef(f"kill-{name}", Work.KILL, name) for name in sorted(tasks))
    kept = sorted(reservations.items())
    back = tuple(StepDef(f"unreserve-{key}", Work.UNRESERVE, item.task) for key, item in kept)
    phases = (
        PhaseDef(KILL_TASKS, PlanStrategy.PARALLEL, kills),
        *([PhaseDef(UNRESERVE, PlanStrategy.PARALLEL, back)] if back else []),
        PhaseDef(DEREGISTER, PlanStrategy.SERIAL, (StepDef(DEREGISTER, Work.DEREGISTER),)),
    )
    before = tuple(phase.name for phase in phases[:-1])
    return PlanDef(UNINSTALL, Kind.UNINSTALL, PlanStrategy.DEPENDENCY, phases, {DEREGISTER: before})
