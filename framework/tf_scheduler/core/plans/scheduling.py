"""Select the plan steps that may run now: form gangs to launch, run other steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import attrgetter

from tf_executor.contract.states import Status
from tf_scheduler.core.plans.definitions import PlanBase
from tf_scheduler.core.plans.rollout import ALL, completion_target
from tf_scheduler.core.plans.step_status import PlanProgress, launched_status, plan_progress
from tf_scheduler.core.state.reducer import decide
from tf_scheduler.core.state.spec_index import DATA_READERS, index_of, launched_task, override_of
from tf_scheduler.model.effects import (
    Call,
    Change,
    ComputedPlans,
    Decision,
    Kill,
    LaunchRetired,
    Outcome,
    PlanControlled,
    ShutdownExecutor,
    TaskForgotten,
)
from tf_scheduler.model.ids import TaskName, executor_of, name_of
from tf_scheduler.model.plan import (
    DEPLOY,
    UPDATE,
    Dependencies,
    PhaseDef,
    PlanDef,
    PlanKind,
    PlanStrategy,
    StepDef,
    Work,
)
from tf_scheduler.model.spec import JobKind, TaskSpec
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.model.task import TaskRecord

# --- Strategies


#: Number of first children of a canary strategy that each wait for an operator (dcos-commons, CanaryStrategy).
CANARIES = 2


@dataclass(frozen=True, slots=True)
class Children:
    """The phases of a plan, or the steps of a phase, by name."""

    strategy: PlanStrategy
    #: All children, in order.
    names: Sequence[str]
    #: Children with remaining work.
    open: AbstractSet[str]
    #: Returns whether a child is complete; may be expensive.
    complete: Callable[[str], bool]
    after: Dependencies = field(default_factory=dict)
    #: Released canaries.
    released: AbstractSet[str] = frozenset()
    #: Whether an operator released all canaries.
    all_released: bool = False


def eligible(children: Children) -> tuple[str, ...]:
    """Return the open children that may run now, in order."""
    if not children.open:
        return ()
    if children.strategy.is_canary and not children.all_released:
        return tuple(name for name in children.names if name in children.open and name in children.released)
    if children.strategy is PlanStrategy.DEPENDENCY:
        names = (name for name in children.names if name in children.open)
        return tuple(name for name in names if all(map(children.complete, children.after.get(name, ()))))
    if children.strategy in (PlanStrategy.PARALLEL, PlanStrategy.PARALLEL_CANARY):
        return tuple(name for name in children.names if name in children.open)
    # Serial: the first open child, if all children before it are complete.
    position = next(place for place, name in enumerate(children.names) if name in children.open)
    before = children.names[:position]
    return (children.names[position],) if all(map(children.complete, reversed(before))) else ()


def held_back(children: Children) -> tuple[str, ...]:
    """Return the canaries that await an operator; later children start automatically."""
    if not children.strategy.is_canary or children.all_released:
        return ()
    count = CANARIES - len(children.released)
    waiting = (name for name in children.names if name not in children.released and not children.complete(name))
    return tuple(name for name, _ in zip(waiting, range(max(count, 0)), strict=False))


# --- Runnable steps


@dataclass(frozen=True, slots=True)
class RunnableSteps:
    """The steps of one plan that may run now."""

    plan: PlanDef
    steps: tuple[StepDef, ...]


def runnable_steps(base: PlanBase, progress: Mapping[str, PlanProgress]) -> tuple[RunnableSteps, ...]:
    """Return the runnable steps of each plan that has any, in the order of the plans.

    Only one plan at a time works on a task: the plan that has started to do so, otherwise the first plan.
    """
    if base.state.stored.result is not None:
        return ()
    taken: set[TaskName | None] = set()
    runnable: list[RunnableSteps] = []
    for plan in progress.values():
        steps = tuple(
            step
            for step in due_steps(plan)
            if step.task is None
            or (step.task not in taken and owning_plan(base.state, progress, step.task) in (None, plan.plan.name))
        )
        taken.update(step.task for step in steps)
        if steps:
            runnable.append(RunnableSteps(plan.plan, steps))
    return tuple(runnable)


def due_steps(progress: PlanProgress) -> tuple[StepDef, ...]:
    """Return steps that may run or have started, even if another plan owns their task."""
    plan, open_now = progress.plan, progress.open()
    interrupted = progress.control.interrupted
    if not open_now or () in interrupted:
        return ()
    if plan.kind is PlanKind.RECOVERY and not interrupted:
        # Without strategies, for speed: a thousand tasks may be lost together.
        return tuple(step for phase in plan.phases for step in phase.steps if step.name in open_now)
    turn = eligible(phase_children(progress, open_now))
    # Steps of tasks that the plan has stopped continue even if earlier steps become open again.
    begun = {name_of(launch) for launch, retiring in progress.state.stored.retired.items() if retiring == plan.name}
    phases = (phase for phase in plan.phases if (phase.name,) not in interrupted)
    return tuple(step for phase in phases for step in _due_in(progress, phase, open_now, begun, phase.name in turn))


def _due_in(
    progress: PlanProgress, phase: PhaseDef, open_now: AbstractSet[str], begun: AbstractSet[str], in_order: bool
) -> list[StepDef]:
    turn = frozenset(eligible(step_children(progress, phase, open_now))) if in_order else frozenset()
    names = turn | (begun & open_now)
    interrupted = progress.control.interrupted
    if not names:
        return []
    return [step for step in phase.steps if step.name in names and (phase.name, step.name) not in interrupted]


def phase_children(progress: PlanProgress, open_now: AbstractSet[str]) -> Children:
    """Return the phases of a plan."""
    phases = {phase.name: phase for phase in progress.plan.phases}
    released = progress.control.released

    def complete(name: str) -> bool:
        if progress.calm and progress.plan.kind is PlanKind.ROLL_OUT:
            return phases[name].by_name.keys().isdisjoint(progress.launches)
        # The last of serial steps is the most likely to be incomplete.
        return all(progress.complete((name, step.name), step) for step in reversed(phases[name].steps))

    return Children(
        strategy=progress.plan.strategy,
        names=tuple(phases),
        open=frozenset(name for name, phase in phases.items() if not phase.by_name.keys().isdisjoint(open_now)),
        complete=complete,
        after=progress.plan.after,
        released=frozenset(name for name in phases if (name,) in released),
        all_released=(ALL,) in released,
    )


def step_children(progress: PlanProgress, phase: PhaseDef, open_now: AbstractSet[str]) -> Children:
    """Return the steps of a phase."""
    steps = phase.by_name
    released = progress.control.released

    def complete(name: str) -> bool:
        return progress.complete((phase.name, name), steps[name])

    return Children(
        strategy=phase.strategy,
        names=tuple(steps),
        open=open_now & steps.keys(),
        complete=complete,
        after=phase.after,
        released=frozenset(node[1] for node in released if node[:1] == (phase.name,) and len(node) > 1),
        all_released=(phase.name, ALL) in released,
    )


def owning_plan(state: SchedulerState, progress: Mapping[str, PlanProgress], name: TaskName) -> str | None:
    """Return the plan whose step for the task has started and is open, or `None`."""
    record = state.stored.tasks.get(name)
    if record is None:
        return None
    retiring = state.stored.retired.get(record.id)
    launching = (
        not record.is_placeholder and state.is_live(record) and launched_status(state, name) is not Status.COMPLETE
    )
    plan = progress.get(retiring or (record.plan if launching else ""))
    if plan is None:
        return None
    step = plan.plan.by_task.get(name)
    return None if step is None or plan.complete(*step) else plan.plan.name


# --- Gangs


@dataclass(frozen=True, slots=True)
class Gang:
    """Tasks of one plan that are launched together or not at all; never empty."""

    #: The first plan if tasks of several plans need each other.
    plan: str
    tasks: tuple[TaskSpec, ...]


def pending_gangs(base: PlanBase, runnable: Iterable[RunnableSteps]) -> tuple[tuple[Gang, ...], Mapping[TaskName, str]]:
    """Return the gangs to place now, and for each task the plan that launches it."""
    runnable = tuple(runnable)
    # While the roll-out waits for an operator, outdated tasks keep their addresses.
    is_rolling = any(steps.plan.kind is PlanKind.ROLL_OUT for steps in runnable)
    moving = (base.open_tasks if is_rolling else base.records.facts.open) | base.recovery.lost
    keeps_options = not (is_rolling and base.state.spec.strategy.traits.has_peers)
    groups = [group for steps in runnable for group in _groups(base, steps, keeps_options)]
    gangs = _after_dispatcher(base, _joined(base, groups, moving), moving)
    return gangs, {name: _purpose(base, steps, name) for steps in runnable for name in _launches(steps)}


def _launches(runnable: RunnableSteps) -> Iterator[TaskName]:
    return (step.task for step in runnable.steps if step.work is Work.LAUNCH and step.task is not None)


def _purpose(base: PlanBase, runnable: RunnableSteps, name: TaskName) -> str:
    """Return the plan whose parameters the next launch gets.

    A task that is relaunched only because it was lost, or because addresses changed, keeps its last plan.
    """
    record, plan = base.state.stored.tasks.get(name), runnable.plan
    if record is None or plan.kind is PlanKind.CUSTOM:
        return plan.name
    if plan.kind is PlanKind.ROLL_OUT and record.config != index_of(base.state.spec).configs[name]:
        return plan.name
    is_restarted = record.serial <= base.records.control_of(plan).restarted_at(plan.by_task[name][0])
    return plan.name if is_restarted else record.plan


def _groups(base: PlanBase, runnable: RunnableSteps, keeps_options: bool) -> list[Gang]:
    """Return gangs of a plan's tasks; each waits until all its tasks have ended.

    `keeps_options`: recovery launches outdated tasks with their own options.
    """
    state, tasks = base.state, index_of(base.state.spec).tasks
    records, is_rollout = state.stored.tasks, runnable.plan.kind is PlanKind.ROLL_OUT
    if runnable.plan.kind is PlanKind.RECOVERY and keeps_options and state.spec.earlier:
        lost = (records[name] for name in _launches(runnable))
        tasks = {record.name: launched_task(state.spec, record) or tasks[record.name] for record in lost}
    names = [name for name in _launches(runnable) if not (is_rollout and base.runs_on(records.get(name)))]
    free = [name for name in names if not (name in records and state.is_live(records[name])) and state.is_ready(name)]
    all_alone = not runnable.plan.gang or not state.spec.strategy.traits.has_peers
    alone = {name for name in names if all_alone or tasks[name].job.kind.is_side_job}
    together = [name for name in names if name not in alone]
    singles = [Gang(runnable.plan.name, (tasks[name],)) for name in free if name in alone]
    complete = together and len(free) - len(singles) == len(together)
    return [*([Gang(runnable.plan.name, tuple(tasks[name] for name in together))] if complete else []), *singles]


def _joined(base: PlanBase, groups: Iterable[Gang], moving: AbstractSet[TaskName]) -> tuple[Gang, ...]:
    """Join gangs that need every address; hold them while a `moving` task has none."""
    dependents = index_of(base.state.spec).address_dependents
    together = [gang for gang in groups if any(task.name in dependents for task in gang.tasks)]
    if not together:
        return tuple(groups)
    # Tasks that their options do not have yet need no address.
    options = {id(task.options): task.options or base.state.spec for gang in together for task in gang.tasks}
    absent = moving & frozenset().union(*(index_of(item).cluster_members for item in options.values()))
    absent -= base.records.later_workers
    # Tasks without an address that can be placed now are launched in the same decision.
    together = [gang for gang in groups if gang in together or any(task.name in absent for task in gang.tasks)]
    one = Gang(together[0].plan, tuple(task for gang in together for task in gang.tasks))
    if not absent - {task.name for task in one.tasks}:
        return (one, *(gang for gang in groups if gang not in together))
    smaller = (_without(gang, dependents) for gang in groups)
    return tuple(gang for gang in smaller if gang.tasks)


def _after_dispatcher(base: PlanBase, gangs: tuple[Gang, ...], moving: AbstractSet[TaskName]) -> tuple[Gang, ...]:
    """Hold data readers until the dispatcher has an address or is in the same gang."""
    by_kind = index_of(base.state.spec).by_kind
    dispatchers = by_kind.get(JobKind.DISPATCHER, frozenset())
    if not dispatchers & moving:
        return gangs
    readers = frozenset().union(*(by_kind[kind] for kind in by_kind.keys() & DATA_READERS))
    allowed = (gang if dispatchers <= {task.name for task in gang.tasks} else _without(gang, readers) for gang in gangs)
    return tuple(gang for gang in allowed if gang.tasks)


def _without(gang: Gang, names: frozenset[TaskName]) -> Gang:
    return Gang(gang.plan, tuple(task for task in gang.tasks if task.name not in names))


# --- All plans of one state


class PlanView(PlanBase):
    """Plans of one state, computed on first use; `after` reuses the unchanged parts."""

    def after(self, state: SchedulerState) -> PlanView:
        """Return the view of another state."""
        view, last = PlanView(state, self), self.state
        is_same = view.records is self.records and view.recovery is self.recovery
        is_same = is_same and state.stored.statuses is last.stored.statuses
        return self if is_same and state.derived.delayed_tasks is last.derived.delayed_tasks else view

    @cached_property
    def progress(self) -> Mapping[str, PlanProgress]:
        """Plan -> its progress, without the uninstall plan."""
        return {plan.name: plan_progress(self, plan) for plan in self.definitions}

    @cached_property
    def runnable(self) -> tuple[RunnableSteps, ...]:
        """Runnable steps of every plan."""
        return runnable_steps(self, self.progress)

    def keeps_options(self, record: TaskRecord) -> bool:
        """Return whether a failed launch keeps its options until its turn (dcos-commons)."""
        is_outdated = record.name in self.records.facts.outdated and record.id not in self.state.stored.retired
        if not is_outdated or launched_task(self.state.spec, record) is None:
            return False
        due = {step.task for step in due_steps(self.progress[self.records.rollout.name])}
        # Peers of a task that the update restarts may fail because of it.
        return record.name not in due and not (due and self.state.spec.strategy.traits.has_peers)

    @cached_property
    def launched_steps(self) -> tuple[tuple[RunnableSteps, StepDef, TaskRecord], ...]:
        """Runnable steps of tasks that have been launched."""
        records = self.state.stored.tasks
        steps = ((runnable, step) for runnable in self.runnable for step in runnable.steps)
        return tuple(
            (runnable, step, records[step.task]) for runnable, step in steps if step.task and step.task in records
        )

    @cached_property
    def held_addresses(self) -> tuple[TaskName, ...]:
        """Tasks of the cluster to launch later; what needs every address waits for them."""
        due = {step.task for steps in self.runnable for step in steps.steps}
        return tuple(sorted((self.open_tasks | self.recovery.lost) & index_of(self.state.spec).cluster_members - due))

    @cached_property
    def gangs(self) -> tuple[Gang, ...]:
        """Gangs to place now, the most urgent first; empty if no offers are needed.

        Gangs are disjoint and independent: if one gang does not fit, the others are placed nevertheless.
        """
        return self._choice[0]

    @cached_property
    def pending_tasks(self) -> frozenset[TaskName]:
        """Names of the tasks to place now."""
        return frozenset(task.name for gang in self.gangs for task in gang.tasks)

    @cached_property
    def launching_plans(self) -> Mapping[TaskName, str]:
        """Task to place -> plan that launches it."""
        return self._choice[1]

    @cached_property
    def _choice(self) -> tuple[tuple[Gang, ...], Mapping[TaskName, str]]:
        return pending_gangs(self, self.runnable)


def view_of(state: SchedulerState, last: ComputedPlans | None = None) -> PlanView:
    """Return the view of a state, with all unchanged parts of the last view."""
    return last.after(state) if isinstance(last, PlanView) else PlanView(state)


# --- Due steps except launches: stop or forget tasks, complete plans
#
# Launches are made by core/offers, which places `PlanView.gangs`.


#: Seconds after which a KILL is repeated: calls may be lost (Mesos documentation, scheduler HTTP API).
KILL_INTERVAL = 10.0
#: Seconds after kill_grace in which a task must end if its agent answers. Longer than the 75 s in which Mesos detects a
#: missing agent (agent_ping_timeout times max_agent_ping_timeouts).
STOP_TIMEOUT = 80.0


def advance(state: SchedulerState, now: float, view: PlanView) -> Decision:
    """Run due steps except launches; run none while disconnected or after the result."""
    decision = decide(state)
    if not state.session.connected or state.stored.result is not None or state.process.finished:
        return decision
    while True:
        moved = _advance_once(decision.state, view)
        if not moved.changes:
            break
        decision = decision.followed_by(moved)
        view = view.after(decision.state)
    ended = decision.then(lambda after: kill_tasks(after, _retiring(after), now))
    return replace(ended, view=view)


def kill_tasks(state: SchedulerState, launches: Iterable[TaskRecord], now: float) -> Decision:
    """Kill live launches, and repeat the calls until the launches have ended."""
    if state.session.next_kill_at and now < state.session.next_kill_at:
        return decide(state)
    launches = tuple(launches)
    if not launches:
        return decide(state.with_session(next_kill_at=0.0) if state.session.next_kill_at else state)
    due = [record for record in launches if now >= state.session.kills.get(record.id, -KILL_INTERVAL) + KILL_INTERVAL]
    due.sort(key=attrgetter("id"))  # an order that a restart of the scheduler does not change
    times = {record.id: now for record in due}
    kills = {**state.of_current_launches(state.session.kills), **times}
    requested = {**times, **state.of_current_launches(state.session.kill_requested_at)}
    again = min(kills[record.id] for record in launches) + KILL_INTERVAL
    calls: tuple[Call, ...] = tuple(Kill(record.id, record.agent_id) for record in due)
    stuck = [record for record in due if _has_just_ignored(state, record, now)]
    calls += tuple(ShutdownExecutor(executor_of(record.id), record.agent_id) for record in stuck)
    text = "{0.name} on {0.hostname} has not ended although it was killed; its executor is shut down"
    outcomes = (Outcome("TaskStopped", text.format(record), record.name, warning=True) for record in stuck)
    after = state.with_session(kills=kills, next_kill_at=again, kill_requested_at=requested)
    return decide(after, calls=calls, outcomes=tuple(outcomes))


def _has_just_ignored(state: SchedulerState, record: TaskRecord, now: float) -> bool:
    """Return whether the time in which a KILL takes effect has just passed."""
    since, job = state.session.kill_requested_at.get(record.id), state.spec.job_of(record.job, record.index)
    if since is None or state.is_silent(record):
        return False
    end = since + (0.0 if job is None else job.settings.kill_grace) + STOP_TIMEOUT
    return state.session.kills[record.id] < end <= now


def _retiring(state: SchedulerState) -> Iterator[TaskRecord]:
    """Yield live launches that a plan has stopped."""
    for launch in state.stored.retired:
        record = state.stored.tasks.get(name_of(launch))
        if record is not None and record.id == launch and state.is_live(record):
            yield record


def _advance_once(state: SchedulerState, view: PlanView) -> Decision:
    """Run the due steps once; a change may make other steps due."""
    changes: list[Change] = []
    outcomes: list[Outcome] = []
    for runnable, step, record in view.launched_steps:
        if action := _action(state, runnable, step, record, view):
            changes.append(action[0])
            outcomes.append(action[1])
    for progress in view.progress.values():
        if _is_newly_complete(state, progress):
            # Deploy also completes update, which is idle until the options change.
            is_deploy = progress.plan.name == DEPLOY
            for plan in index_of(state.spec).launch_plans[:2] if is_deploy else (progress.plan,):
                control = replace(view.records.control_of(plan), completed=completion_target(state.spec, plan))
                changes.append(PlanControlled(plan.name, control))
            outcomes.append(Outcome("PlanComplete", f"plan {progress.plan.name} is complete"))
        elif progress.plan.name == UPDATE and progress.control.completed not in ("", index_of(state.spec).target):
            # A return to the options of the last completion must launch what is missing then.
            control = view.records.control_of(progress.plan)
            changes.append(PlanControlled(UPDATE, replace(control, completed="")))
    return decide(state, *changes, outcomes=tuple(outcomes))


def _action(
    state: SchedulerState, runnable: RunnableSteps, step: StepDef, record: TaskRecord, view: PlanView
) -> tuple[Change, Outcome] | None:
    """Return the change and outcome of a due step; `None` if nothing can be done yet."""
    if step.work is Work.ERASE:
        outcome = Outcome("TaskDecommissioned", f"{record.name} is decommissioned", record.name)
        return TaskForgotten(record.name), outcome
    if record.id in state.stored.retired or not state.is_live(record) or state.is_probably_used(record):
        return None
    if runnable.plan.kind is PlanKind.ROLL_OUT and view.runs_on(record):
        return None
    plan = runnable.plan.name
    message = f"plan {plan}: stopping {record.name} {_stop_purpose(state, step, record)}"
    return LaunchRetired(record.id, plan), Outcome("TaskStopped", message, record.name)


def _stop_purpose(state: SchedulerState, step: StepDef, record: TaskRecord) -> str:
    if step.work is not Work.LAUNCH:
        return "to decommission it"
    pausing = not record.is_placeholder and override_of(state, record.name) is not None
    return "to pause it; its resources are kept" if pausing else "to launch it again"


def _is_newly_complete(state: SchedulerState, progress: PlanProgress) -> bool:
    """Return whether a plan has just completed; the cheap checks come first."""
    plan = progress.plan
    if plan.kind not in (PlanKind.ROLL_OUT, PlanKind.CUSTOM) or progress.done or progress.open():
        return False
    if not progress.control.forced and state.at_goal_count() < sum(len(phase.steps) for phase in plan.phases):
        return False
    return all(progress.complete(node, step) for node, step in plan.steps())
