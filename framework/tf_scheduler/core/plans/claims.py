"""Which steps may be worked on now: the strategies' turn, the operators' interrupts, and one plan per task."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from tf_scheduler.core.memo import remembered, remembered_of_plans
from tf_scheduler.model.ids import TaskName, name_of
from tf_scheduler.model.plan import Status
from tf_scheduler.model.state import SchedulerState

from .control import ALL
from .define import Kind, PhaseDef, PlanDef, StepDef, by_task, definitions
from .standing import Standing, launched_status, standing
from .strategy import Children, in_turn


@dataclass(frozen=True, slots=True)
class Claim:
    """What one plan may work on now."""

    plan: PlanDef
    steps: tuple[StepDef, ...]


@remembered_of_plans
def claims(state: SchedulerState) -> tuple[Claim, ...]:
    """What every plan may work on now, in the order of the plans; without those that may work on nothing.

    A task is worked on by one plan at a time: by the one that has begun with it, else by the first that wants it.
    """
    if state.result is not None:
        return ()
    plans = definitions(state)
    by_name = {plan.name: plan for plan in plans}
    taken: set[TaskName] = set()
    found: list[Claim] = []
    for plan in plans:
        steps = tuple(step for step in due(state, plan) if not _elsewhere(state, by_name, plan, step, taken))
        taken.update(step.task for step in steps if step.task is not None)
        if steps:
            found.append(Claim(plan, steps))
    return tuple(found)


def due(state: SchedulerState, plan: PlanDef) -> tuple[StepDef, ...]:
    """Steps whose turn it is, and those that have begun, whoever else wants their tasks."""
    now = standing(state, plan)
    open_now = now.open()
    interrupted = now.control.interrupted
    if not open_now or () in interrupted:
        return ()
    if plan.kind is Kind.RECOVERY and not interrupted:
        # All at once, each for itself: a thousand may be lost together.
        return tuple(step for phase in plan.phases for step in phase.steps if step.name in open_now)
    turn, begun = in_turn(phases_of(now, open_now)), _begun(state, plan)
    phases = (phase for phase in plan.phases if (phase.name,) not in interrupted)
    return tuple(step for phase in phases for step in _due_in(now, phase, open_now, begun, phase.name in turn))


def _begun(state: SchedulerState, plan: PlanDef) -> AbstractSet[str]:
    """Tasks that the plan has told to end: their steps go on, even if one before them is open again meanwhile."""
    return {name_of(launch) for launch, retiring in state.retired.items() if retiring == plan.name}


def _due_in(
    now: Standing, phase: PhaseDef, open_now: AbstractSet[str], begun: AbstractSet[str], in_order: bool
) -> list[StepDef]:
    turn = frozenset(in_turn(steps_of(now, phase, open_now))) if in_order else frozenset()
    names = turn | (begun & open_now)
    interrupted = now.control.interrupted
    if not names:
        return []
    return [step for step in phase.steps if step.name in names and (phase.name, step.name) not in interrupted]


def phases_of(now: Standing, open_now: AbstractSet[str]) -> Children:
    """The phases of a plan, for its strategy."""
    phases = {phase.name: phase for phase in now.plan.phases}
    released = now.control.released

    def complete(name: str) -> bool:
        # From the last: of steps in a row, that is the one that is not complete yet.
        return all(now.complete((name, step.name), step) for step in reversed(phases[name].steps))

    return Children(
        strategy=now.plan.strategy,
        names=tuple(phases),
        open=frozenset(name for name, phase in phases.items() if not open_now.isdisjoint(_by_name(phase))),
        complete=complete,
        after=now.plan.after,
        released=frozenset(name for name in phases if (name,) in released),
        all_released=(ALL,) in released,
    )


def steps_of(now: Standing, phase: PhaseDef, open_now: AbstractSet[str]) -> Children:
    """The steps of a phase, for its strategy."""
    steps = _by_name(phase)
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


@remembered
def _by_name(phase: PhaseDef) -> Mapping[str, StepDef]:
    return {step.name: step for step in phase.steps}


def _elsewhere(
    state: SchedulerState,
    plans: Mapping[str, PlanDef],
    plan: PlanDef,
    step: StepDef,
    taken: AbstractSet[TaskName],
) -> bool:
    """Whether the step's task is another plan's at the moment."""
    if step.task is None:
        return False
    return step.task in taken or owner(state, plans, step.task) not in (None, plan.name)


def owner(state: SchedulerState, plans: Mapping[str, PlanDef], name: TaskName) -> str | None:
    """The plan that has begun with a task and has not completed its step; None: nobody works on it."""
    record = state.tasks.get(name)
    if record is None:
        return None
    retiring = state.retired.get(record.id)
    launching = not record.idle and state.is_live(record) and launched_status(state, name) is not Status.COMPLETE
    plan = plans.get(retiring or (record.plan if launching else ""))
    found = None if plan is None else by_task(plan).get(name)
    if plan is None or found is None or standing(state, plan).complete(*found):
        return None
    return plan.name
