"""Define recovery, decommission and uninstall plans; cache the inputs of plans."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property

from tf_scheduler.core.state.spec_index import index_of
from tf_scheduler.model.ids import TaskId, TaskName
from tf_scheduler.model.plan import (
    DECOMMISSION,
    DEPLOY,
    DEREGISTER,
    RECOVERY,
    UNINSTALL,
    PhaseDef,
    PlanControl,
    PlanDef,
    PlanKind,
    PlanStrategy,
    StepDef,
    Work,
)
from tf_scheduler.model.spec import JobKind, ServiceSpec
from tf_scheduler.model.state import ProcessState, Result, SchedulerState, SessionState
from tf_scheduler.model.task import Members, TaskRecord

from .rollout import (
    NO_CONTROL,
    RolloutFacts,
    active_rollout,
    current_control,
    open_tasks,
    rollout_facts,
    steps_to_relaunch,
    was_completed,
)

# --- Definitions


_NO_SESSION, _NO_PROCESS = SessionState(), ProcessState()
KILL_TASKS = "kill-tasks"


def recovery_plan(names: tuple[TaskName, ...]) -> PlanDef:
    """Return the recovery plan: a phase per task, all parallel."""
    phases = tuple(map(_recovery_phase, names))
    return PlanDef(RECOVERY, PlanKind.RECOVERY, PlanStrategy.PARALLEL, phases, gang=False)


@cache
def _recovery_phase(name: TaskName) -> PhaseDef:
    return PhaseDef(name, PlanStrategy.PARALLEL, (StepDef(name, Work.LAUNCH, name),))


def decommission_plan(spec: ServiceSpec, tasks: Mapping[TaskName, TaskRecord]) -> PlanDef:
    """Return the decommission plan: a phase per task that the options do not contain.

    Tasks of removed jobs come first, then the others in reverse order of the options.
    """
    current = index_of(spec).tasks
    surplus = [record for name, record in tasks.items() if name not in current]
    order = {job.kind: position for position, job in enumerate(spec.jobs, 1)}
    surplus.sort(key=lambda record: (record.job in order, -order.get(record.job, 0), record.job.value, -record.index))
    return PlanDef(DECOMMISSION, PlanKind.DECOMMISSION, PlanStrategy.SERIAL, tuple(map(_decommission_phase, surplus)))


def _decommission_phase(record: TaskRecord) -> PhaseDef:
    steps = (
        StepDef(f"kill-{record.name}", Work.KILL, record.name),
        StepDef(f"erase-{record.name}", Work.ERASE, record.name),
    )
    return PhaseDef(record.name, PlanStrategy.SERIAL, steps)


def uninstall_plan(tasks: Mapping[TaskName, TaskRecord]) -> PlanDef:
    """Return the uninstall plan: kill tasks, then deregister."""
    kills = tuple(StepDef(f"kill-{name}", Work.KILL, name) for name in sorted(tasks))
    phases = (
        PhaseDef(KILL_TASKS, PlanStrategy.PARALLEL, kills),
        PhaseDef(DEREGISTER, PlanStrategy.SERIAL, (StepDef(DEREGISTER, Work.DEREGISTER),)),
    )
    return PlanDef(UNINSTALL, PlanKind.UNINSTALL, PlanStrategy.DEPENDENCY, phases, {DEREGISTER: (KILL_TASKS,)})


# --- Values derived from parts of the state


@dataclass(frozen=True)
class RecordView:
    """Values derived from records and operators' commands only, not from statuses."""

    spec: ServiceSpec
    tasks: Mapping[TaskName, TaskRecord]
    retired: Mapping[TaskId, str]
    stored_controls: Mapping[str, PlanControl]
    members: Members | None = None

    @cached_property
    def controls(self) -> Mapping[str, PlanControl]:
        """Plan of the options -> its current control."""
        plans = index_of(self.spec).launch_plans
        return {plan.name: current_control(self.spec, self.stored_controls, plan) for plan in plans}

    def control_of(self, plan: PlanDef) -> PlanControl:
        """Return the current control of any plan."""
        return self.controls.get(plan.name) or self.stored_controls.get(plan.name, NO_CONTROL)

    @cached_property
    def rollout(self) -> PlanDef:
        """The active roll-out plan."""
        deploy, update, *_ = index_of(self.spec).launch_plans
        return deploy if active_rollout(self.stored_controls) == deploy.name else update

    @cached_property
    def facts(self) -> RolloutFacts:
        control = self.controls[self.rollout.name]
        return rollout_facts(self.spec, self.tasks, self.retired, control, self.rollout, self.members)

    @cached_property
    def later_workers(self) -> frozenset[TaskName]:
        """Workers that join a running chief, which does not need them at its launch.

        They were never launched, and come after all others: a ClusterSpec has no gaps.
        """
        workers = index_of(self.spec).by_kind.get(JobKind.WORKER, frozenset()) if self.spec.live else frozenset()
        last = max((record.index for name in workers if (record := self.tasks.get(name))), default=None)
        index = index_of(self.spec).tasks
        return frozenset(name for name in workers if last is not None and index[name].index > last)

    def missing_addresses(self, name: TaskName) -> tuple[TaskName, ...]:
        """Return the tasks without an address for which a launch of this task waits.

        Tasks that need every address get theirs together, and so do not wait for each other.
        """
        return self._missing_addresses if name in index_of(self.spec).address_dependents else ()

    @cached_property
    def _missing_addresses(self) -> tuple[TaskName, ...]:
        index = index_of(self.spec)
        missing = (self.facts.open - self.tasks.keys()) & index.cluster_members
        return tuple(sorted(missing - index.address_dependents - self.later_workers, key=index.positions.__getitem__))

    @cached_property
    def custom_open(self) -> Mapping[str, frozenset[str]]:
        """Incomplete user plan -> its open steps."""
        plans = (plan for plan in index_of(self.spec).launch_plans if plan.kind is PlanKind.CUSTOM)
        return {
            plan.name: steps_to_relaunch(plan, self.controls[plan.name], self.tasks, self.retired)
            for plan in plans
            if not was_completed(self.spec, plan, self.controls[plan.name])
        }

    @cached_property
    def decommission(self) -> PlanDef:
        return decommission_plan(self.spec, self.tasks)


@dataclass(frozen=True)
class RecoveryView:
    """Lost or paused tasks that will be relaunched."""

    spec: ServiceSpec
    tasks: Mapping[TaskName, TaskRecord]
    launches_to_replace: Mapping[TaskName, TaskId]
    paused: Mapping[TaskName, float]
    result: Result | None

    @cached_property
    def lost(self) -> frozenset[TaskName]:
        """Tasks that are lost or restart with a lost task, except decommissioned tasks."""
        if not self.launches_to_replace or self.result is not None:
            return frozenset()
        tasks = index_of(self.spec).tasks
        return frozenset(name for name in self.launches_to_replace if name in tasks)

    @cached_property
    def plan(self) -> PlanDef:
        """The recovery plan, for lost tasks, and for paused tasks until they are resumed."""
        return self.plan_with(())

    def plan_with(self, starting: Iterable[TaskName]) -> PlanDef:
        """Return the recovery plan with tasks that were launched again, but do not run."""
        idle = self.tasks if self.paused and self.result is None else {}
        again = self.lost.union(starting, (name for name, record in idle.items() if record.is_placeholder))
        order = index_of(self.spec).positions
        return recovery_plan(tuple(sorted(again & order.keys(), key=order.__getitem__)))


class PlanBase:
    """Definitions of all plans, and values that their progress depends on.

    What has not changed since `last` is taken from it, with its cached properties.
    """

    def __init__(self, state: SchedulerState, last: PlanBase | None = None) -> None:
        stored = state.stored
        #: Only the parts that plans depend on.
        self.state = replace(state, session=_NO_SESSION, process=_NO_PROCESS)
        self.records = RecordView(state.spec, stored.tasks, stored.retired, stored.controls, stored.members)
        replaced = state.derived.launches_to_replace
        self.recovery = RecoveryView(state.spec, stored.tasks, replaced, stored.paused, stored.result)
        if last is not None and _are_same(last.records, self.records):
            self.records = last.records
        if last is not None and _are_same(last.recovery, self.recovery):
            self.recovery = last.recovery

    @cached_property
    def open_tasks(self) -> frozenset[TaskName]:
        """Tasks that the active roll-out will launch."""
        return open_tasks(self.state.spec, self.state.stored.tasks, self.state.stored.statuses, self.records.facts)

    def needs(self, record: TaskRecord) -> bool:
        """Return whether the job fails if this launch fails.

        The job does not fail if a plan stops or will stop the launch (a relaunched task may make its peers fail), if
        the options do not contain the task, or if only a user plan launches the task.
        """
        deployed, retired = index_of(self.state.spec).deployed, self.state.stored.retired
        return record.name in deployed and record.id not in retired and record.name not in self.open_tasks

    def runs_on(self, record: TaskRecord | None) -> bool:
        """Return whether an outdated launch continues until its task can be launched.

        A stop would only leave the task waiting, unless it sets resources free. An operator's restart does not wait.
        """
        if record is None or record.name in self.records.facts.open or not self.state.is_live(record):
            return False
        if not self.records.missing_addresses(record.name):
            return False
        needs = index_of(self.state.spec).tasks[record.name].job.needs + self.state.spec.executor.needs
        return needs.covers(record.resources)

    def unstarted_plans(self) -> frozenset[str]:
        """Return the names of user plans that are not started, or are interrupted."""
        custom = (plan for plan in self.definitions if plan.kind is PlanKind.CUSTOM)
        return frozenset(plan.name for plan in custom if () in self.records.control_of(plan).interrupted)

    @cached_property
    def definitions(self) -> tuple[PlanDef, ...]:
        """All plans except uninstall, by priority; `update` only after the first `deploy`."""
        deployment, update, *custom = index_of(self.state.spec).launch_plans
        deploy = self.state.stored.controls.get(DEPLOY)
        rollouts = (deployment, update) if deploy is not None and deploy.completed else (deployment,)
        return (*rollouts, self.recovery.plan, self.records.decommission, *custom)


def _are_same(one: RecordView | RecoveryView, other: RecordView | RecoveryView) -> bool:
    """Return whether the fields of both values are the same objects."""
    return all(getattr(one, name) is getattr(other, name) for name in one.__dataclass_fields__)
