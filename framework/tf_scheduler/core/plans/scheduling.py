"""Which tasks are to be placed now."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import cached_property

from tf_scheduler.core.state.restart_units import DATA_READERS
from tf_scheduler.core.state.spec_index import index_of
from tf_scheduler.model.effects import ComputedPlans
from tf_scheduler.model.ids import TaskName, name_of
from tf_scheduler.model.plan import Dependencies, PhaseDef, PlanDef, PlanKind, PlanStrategy, Status, StepDef, Work
from tf_scheduler.model.spec import JobKind, ServiceSpec, Strategy, TaskSpec
from tf_scheduler.model.state import SchedulerState

from .definitions import PlanBase, PlanInputs, are_same
from .rollout import ALL
from .step_status import PlanProgress, launched_status, plan_progress

# --- scheduling
# Which steps may be worked on now: the strategies' turn, the operators' interrupts, and one plan per task.


# --- strategy
# Whose turn it is among the phases of a plan, or the steps of a phase.


#: So many children of a canary wait for an operator each (dcos-commons, CanaryStrategy).
CANARIES = 2


@dataclass(frozen=True, slots=True)
class Children:
    """The children of one plan or phase, by name."""

    strategy: PlanStrategy
    #: All, in their order.
    names: Sequence[str]
    #: Those with work left.
    open: AbstractSet[str]
    #: Whether one is complete. Asked as late as possible: it may cost.
    complete: Callable[[str], bool]
    after: Dependencies = field(default_factory=dict)
    #: Canaries that an operator let go.
    released: AbstractSet[str] = frozenset()
    #: An operator let all go.
    all_released: bool = False


def eligible(children: Children) -> tuple[str, ...]:
    """Those with work left that may be worked on now, in their order."""
    if not children.open:
        return ()
    if children.strategy.is_canary and not children.all_released:
        return tuple(name for name in children.names if name in children.open and name in children.released)
    if children.strategy is PlanStrategy.DEPENDENCY:
        return tuple(name for name in children.names if name in children.open and _ready(children, name))
    if children.strategy in (PlanStrategy.PARALLEL, PlanStrategy.PARALLEL_CANARY):
        return tuple(name for name in children.names if name in children.open)
    return _first(children)


def held_back(children: Children) -> tuple[str, ...]:
    """Canaries that wait for an operator, in their order; the rest follows them by itself."""
    if not children.strategy.is_canary or children.all_released:
        return ()
    count = CANARIES - len(children.released)
    waiting = (name for name in children.names if name not in children.released and not children.complete(name))
    return tuple(name for name, _ in zip(waiting, range(max(count, 0)), strict=False))


def _ready(children: Children, name: str) -> bool:
    return all(children.complete(other) for other in children.after.get(name, ()))


def _first(children: Children) -> tuple[str, ...]:
    """Serial: the first with work left, if all before it are complete. Looked at from its side: the one that it
    waits for is the one right before it."""
    position = next(place for place, name in enumerate(children.names) if name in children.open)
    before = children.names[:position]
    return (children.names[position],) if all(map(children.complete, reversed(before))) else ()


# --- claims


@dataclass(frozen=True, slots=True)
class RunnableSteps:
    """What one plan may work on now."""

    plan: PlanDef
    steps: tuple[StepDef, ...]


def runnable_steps(base: PlanBase, progress: Mapping[str, PlanProgress]) -> tuple[RunnableSteps, ...]:
    """What every plan may work on now, in the order of the plans; without those that may work on nothing.

    A task is worked on by one plan at a time: by the one that has begun with it, else by the first that wants it.
    """
    if base.inputs.result is not None:
        return ()
    taken: set[TaskName] = set()
    found: list[RunnableSteps] = []
    for now in progress.values():
        steps = tuple(
            step for step in due_steps(now) if not _owned_by_other(base.inputs, progress, now.plan, step, taken)
        )
        taken.update(step.task for step in steps if step.task is not None)
        if steps:
            found.append(RunnableSteps(now.plan, steps))
    return tuple(found)


def due_steps(now: PlanProgress) -> tuple[StepDef, ...]:
    """Steps whose turn it is, and those that have begun, whoever else wants their tasks."""
    plan, open_now = now.plan, now.open()
    interrupted = now.control.interrupted
    if not open_now or () in interrupted:
        return ()
    if plan.kind is PlanKind.RECOVERY and not interrupted:
        # All at once, each for itself: a thousand may be lost together.
        return tuple(step for phase in plan.phases for step in phase.steps if step.name in open_now)
    turn, begun = eligible(phase_children(now, open_now)), _begun(now)
    phases = (phase for phase in plan.phases if (phase.name,) not in interrupted)
    return tuple(step for phase in phases for step in _due_in(now, phase, open_now, begun, phase.name in turn))


def _begun(now: PlanProgress) -> AbstractSet[str]:
    """Tasks that the plan has told to end: their steps go on, even if one before them is open again meanwhile."""
    return {name_of(launch) for launch, retiring in now.inputs.retired.items() if retiring == now.plan.name}


def _due_in(
    now: PlanProgress, phase: PhaseDef, open_now: AbstractSet[str], begun: AbstractSet[str], in_order: bool
) -> list[StepDef]:
    turn = frozenset(eligible(step_children(now, phase, open_now))) if in_order else frozenset()
    names = turn | (begun & open_now)
    interrupted = now.control.interrupted
    if not names:
        return []
    return [step for step in phase.steps if step.name in names and (phase.name, step.name) not in interrupted]


def phase_children(now: PlanProgress, open_now: AbstractSet[str]) -> Children:
    """The phases of a plan, for its strategy."""
    phases = {phase.name: phase for phase in now.plan.phases}
    released = now.control.released

    def complete(name: str) -> bool:
        # From the last: of steps in a row, that is the one that is not complete yet.
        return all(now.complete((name, step.name), step) for step in reversed(phases[name].steps))

    return Children(
        strategy=now.plan.strategy,
        names=tuple(phases),
        open=frozenset(name for name, phase in phases.items() if not open_now.isdisjoint(phase.by_name)),
        complete=complete,
        after=now.plan.after,
        released=frozenset(name for name in phases if (name,) in released),
        all_released=(ALL,) in released,
    )


def step_children(now: PlanProgress, phase: PhaseDef, open_now: AbstractSet[str]) -> Children:
    """The steps of a phase, for its strategy."""
    steps = phase.by_name
    released = now.control.released

    def complete(name: str) -> bool:
        return now.complete((phase.name, name), steps[name])

    return Children(
        strategy=phase.strategy,
        names=tuple(steps),
        open=open_now & steps.keys(),
        complete=complete,
        after=phase.after,
        released=frozenset(node[1] for node in released if node[:1] == (phase.name,) and len(node) > 1),
        all_released=(phase.name, ALL) in released,
    )


def _owned_by_other(
    inputs: PlanInputs,
    progress: Mapping[str, PlanProgress],
    plan: PlanDef,
    step: StepDef,
    taken: AbstractSet[TaskName],
) -> bool:
    """Whether the step's task is another plan's at the moment."""
    if step.task is None:
        return False
    return step.task in taken or owning_plan(inputs, progress, step.task) not in (None, plan.name)


def owning_plan(inputs: PlanInputs, progress: Mapping[str, PlanProgress], name: TaskName) -> str | None:
    """The plan that has begun with a task and has not completed its step; None: nobody works on it."""
    record = inputs.tasks.get(name)
    if record is None:
        return None
    retiring = inputs.retired.get(record.id)
    launching = (
        not record.is_placeholder and inputs.is_live(record) and launched_status(inputs, name) is not Status.COMPLETE
    )
    now = progress.get(retiring or (record.plan if launching else ""))
    found = None if now is None else now.plan.by_task.get(name)
    if now is None or found is None or now.complete(*found):
        return None
    return now.plan.name


# --- gangs


@dataclass(frozen=True, slots=True)
class Gang:
    """Tasks that are launched all or none, on behalf of one plan. Never empty."""

    #: Of several plans whose tasks need each other: the first of them.
    plan: str
    tasks: tuple[TaskSpec, ...]


def pending_gangs(base: PlanBase, runnable: Iterable[RunnableSteps]) -> tuple[tuple[Gang, ...], Mapping[TaskName, str]]:
    """The gangs that are to be placed now, and for each of their tasks the plan that wants it."""
    runnable = tuple(runnable)
    groups = [group for steps in runnable for group in _groups(base, steps)]
    gangs = _after_dispatcher(base, _joined(base, groups))
    return gangs, {name: _purpose(base, steps, name) for steps in runnable for name in _launches(steps)}


def _launches(claim: RunnableSteps) -> Iterator[TaskName]:
    return (step.task for step in claim.steps if step.work is Work.LAUNCH and step.task is not None)


def _purpose(base: PlanBase, claim: RunnableSteps, name: TaskName) -> str:
    """The plan whose parameters the next launch carries.

    A task that is launched again only because the addresses of others have changed, or because it was lost, keeps
    those of the plan that launched it last.
    """
    record, plan = base.inputs.tasks.get(name), claim.plan
    if record is None or plan.kind is PlanKind.CUSTOM or record.config != index_of(base.inputs.spec).configs[name]:
        return plan.name
    ordered = record.serial <= base.records.control_of(plan).restarted_at(plan.by_task[name][0])
    return plan.name if ordered else record.plan


def _groups(base: PlanBase, claim: RunnableSteps) -> list[Gang]:
    """The tasks of one plan that can be launched. Those of a gang wait until all of them have ended."""
    names = list(_launches(claim))
    gone = [name for name in names if not _lives(base.inputs, name) and base.inputs.is_ready(name)]
    tasks = index_of(base.inputs.spec).tasks
    alone = {name for name in names if not claim.plan.gang or _goes_alone(base.inputs.spec, tasks[name])}
    together = [name for name in names if name not in alone]
    found = [Gang(claim.plan.name, (tasks[name],)) for name in gone if name in alone]
    complete = together and len(gone) - len(found) == len(together)
    return [*([Gang(claim.plan.name, tuple(tasks[name] for name in together))] if complete else []), *found]


def _goes_alone(spec: ServiceSpec, task: TaskSpec) -> bool:
    """Whether nobody waits for the task, whatever the plan says of gangs."""
    return task.job.kind.is_side_job or spec.strategy is Strategy.INDEPENDENT


def _lives(inputs: PlanInputs, name: TaskName) -> bool:
    record = inputs.tasks.get(name)
    return record is not None and inputs.is_live(record)


def _joined(base: PlanBase, groups: Iterable[Gang]) -> tuple[Gang, ...]:
    """Tasks that must know every address go together, and only when every address is known with theirs."""
    knowers = index_of(base.inputs.spec).knowers
    together = [gang for gang in groups if any(task.name in knowers for task in gang.tasks)]
    if not together:
        return tuple(groups)
    absent = (base.open_tasks | base.recovery.lost) & index_of(base.inputs.spec).members
    # Those whose addresses are still open, but that can be placed now, go with them: one decision for all.
    together = [gang for gang in groups if gang in together or any(task.name in absent for task in gang.tasks)]
    one = Gang(together[0].plan, tuple(task for gang in together for task in gang.tasks))
    if not absent - {task.name for task in one.tasks}:
        return (one, *(gang for gang in groups if gang not in together))
    others = (_without(gang, knowers) for gang in groups)
    return tuple(gang for gang in others if gang.tasks)


def _after_dispatcher(base: PlanBase, gangs: tuple[Gang, ...]) -> tuple[Gang, ...]:
    """Who reads from a data service is launched with its dispatcher, or when that has an address."""
    tasks = index_of(base.inputs.spec).tasks
    dispatchers = frozenset(name for name, task in tasks.items() if task.job.kind is JobKind.DISPATCHER)
    if not dispatchers & (base.open_tasks | base.recovery.lost):
        return gangs
    readers = frozenset(name for name, task in tasks.items() if task.job.kind in DATA_READERS)
    found = (gang if dispatchers <= {task.name for task in gang.tasks} else _without(gang, readers) for gang in gangs)
    return tuple(gang for gang in found if gang.tasks)


def _without(gang: Gang, names: frozenset[TaskName]) -> Gang:
    return Gang(gang.plan, tuple(task for task in gang.tasks if task.name not in names))


# --- plan_view
# Plans of one state, computed once and handed down: `after` keeps what a new state leaves as it is.


class PlanView(PlanBase):
    """What the plans make of one state. Each part is computed when it is first read."""

    def after(self, state: SchedulerState) -> PlanView:
        """The view of another state."""
        inputs = PlanInputs.of(state)
        return self if are_same(inputs, self.inputs) else PlanView(inputs, self)

    @cached_property
    def progress(self) -> Mapping[str, PlanProgress]:
        """Plan -> how far it is; without the uninstall plan."""
        return {plan.name: plan_progress(self, plan) for plan in self.definitions}

    @cached_property
    def runnable(self) -> tuple[RunnableSteps, ...]:
        """What every plan may work on now."""
        return runnable_steps(self, self.progress)

    @cached_property
    def gangs(self) -> tuple[Gang, ...]:
        """The gangs that are to be placed now, the more urgent first; empty: no offers are needed.

        Gangs are independent: one that finds no place does not keep the others from theirs. No task is in two of them.
        """
        return self._choice[0]

    @cached_property
    def purposes(self) -> Mapping[TaskName, str]:
        """Wanted task -> the plan that wants it."""
        return self._choice[1]

    @cached_property
    def _choice(self) -> tuple[tuple[Gang, ...], Mapping[TaskName, str]]:
        return pending_gangs(self, self.runnable)


def view_of(state: SchedulerState, last: ComputedPlans | None = None) -> PlanView:
    """The view of a state, with the parts of the last view that still hold."""
    return last.after(state) if isinstance(last, PlanView) else PlanView(PlanInputs.of(state))
