"""Plans as they are shown: every status, and a sentence for every step."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace

from tf_scheduler.core import keeping
from tf_scheduler.core.recovery.pausing import shown, why
from tf_scheduler.model.ids import TaskName
from tf_scheduler.model.plan import Node, Override, Phase, Plan, Status, Step
from tf_scheduler.model.state import SchedulerState

from .claims import owner, phases_of, steps_of
from .define import Kind, PhaseDef, PlanDef, StepDef, Work, definitions, uninstall
from .standing import Standing, standing
from .strategy import Children, held, in_turn
from .tables import Parts, aggregate

_NOT_BEGUN = (Status.PENDING, Status.PREPARED)
_NOTHING: frozenset[str] = frozenset()


def plans(state: SchedulerState) -> tuple[Plan, ...]:
    """Every plan that there is now, in the order in which they have the say."""
    found = definitions(state)
    by_name = {plan.name: plan for plan in found}
    return tuple(_plan(state, plan, by_name) for plan in found)


def plan_named(state: SchedulerState, name: str) -> Plan | None:
    """One of them; None: there is none of that name."""
    by_name = {plan.name: plan for plan in definitions(state)}
    return _plan(state, by_name[name], by_name) if name in by_name else None


def uninstall_plan(state: SchedulerState) -> Plan:
    """The plan that ends the service, also before it is in force."""
    return _plan(state, uninstall(state.tasks, state.reservations), {})


def status_at(plan: Plan, node: Node) -> Status:
    """The status of the plan, of a phase, or of a step; the node must exist."""
    if not node:
        return plan.status
    phase = next(phase for phase in plan.phases if phase.name == node[0])
    return phase.status if len(node) == 1 else next(step.status for step in phase.steps if step.name == node[1])


def where(state: SchedulerState, name: TaskName) -> str:
    """`running on agent-2`: what is known of the last launch of a task."""
    record, status = state.tasks.get(name), state.status(name)
    if record is None:
        return ""
    if status is None:
        return f"launching on {record.hostname}"
    return f"{status.state.spoken} on {record.hostname}{f': {status.message}' if status.message else ''}"


def _plan(state: SchedulerState, plan: PlanDef, by_name: Mapping[str, PlanDef]) -> Plan:
    now = standing(state, plan)
    phases = tuple(_phase(now, phase, by_name) for phase in plan.phases)
    statuses = {phase.name: phase.status for phase in phases}
    children = _known(phases_of(now, _NOTHING), statuses)
    canaries = [name for name in held(children) if statuses[name] in _NOT_BEGUN]
    statuses.update(dict.fromkeys(canaries, Status.WAITING))
    told = tuple(replace(phase, status=statuses[phase.name]) for phase in phases)
    status = _whole(children, statuses, () in now.control.interrupted)
    # As the SDK tells options that may not change so: in the plan that would roll them out, while those before hold.
    rejected = state.rejected if plan.kind is Kind.ROLL_OUT else ()
    return Plan(plan.name, Status.ERROR if rejected else status, told, plan.strategy, rejected)


def _phase(now: Standing, phase: PhaseDef, by_name: Mapping[str, PlanDef]) -> Phase:
    base = {step.name: now.status((phase.name, step.name), step) for step in phase.steps}
    children = _known(steps_of(now, phase, _NOTHING), base)
    canaries = frozenset(held(children))
    found = ((step, _step(now, phase, step, base[step.name], canaries, by_name)) for step in phase.steps)
    steps = tuple(_overridden(now.state, step, told) for step, told in found)
    statuses = {step.name: step.status for step in steps}
    status = _whole(children, statuses, (phase.name,) in now.control.interrupted)
    return Phase(phase.name, status, steps, phase.strategy)


def _known(children: Children, statuses: Mapping[str, Status]) -> Children:
    """The same children, with statuses that are computed already; all that are not complete count as open."""
    return replace(
        children,
        open=frozenset(name for name, status in statuses.items() if status is not Status.COMPLETE),
        complete=lambda name: statuses[name] is Status.COMPLETE,
    )


def _whole(children: Children, statuses: Mapping[str, Status], interrupted: bool) -> Status:
    turn = frozenset(statuses[name] for name in in_turn(children))
    return aggregate(Parts(frozenset(statuses.values()), turn, interrupted))


def _step(
    now: Standing,
    phase: PhaseDef,
    step: StepDef,
    status: Status,
    canaries: AbstractSet[str],
    by_name: Mapping[str, PlanDef],
) -> Step:
    if status is Status.DELAYED:
        return Step(step.name, status, _why_not(now, step, status, by_name), step.task)
    if status not in _NOT_BEGUN:
        return Step(step.name, status, _so_far(now, step), step.task)
    if now.control.interrupted and (phase.name, step.name) in now.control.interrupted:
        return Step(step.name, Status.WAITING, "interrupted: waits for an operator's continue", step.task)
    if step.name in canaries:
        words = f"canary: waits for an operator's continue of its phase: plan resume {now.plan.name} {phase.name}"
        return Step(step.name, Status.WAITING, words, step.task)
    return Step(step.name, status, _why_not(now, step, status, by_name), step.task)


def _overridden(state: SchedulerState, step: StepDef, told: Step) -> Step:
    """With the SDK's word for a task that is paused, and why it is."""
    name = step.task
    word = shown(state, name) if name is not None and step.work is Work.LAUNCH else None
    if name is None or word is None:
        return told
    kept = f"its place on {state.tasks[name].hostname} is kept"
    known = kept if word is Override.PAUSED else where(state, name)
    reasons = map(str, state.pending.get(name, ()))
    message = "; ".join((known, why(state, name), *reasons))
    return replace(told, message=message, override=word)


def _so_far(now: Standing, step: StepDef) -> str:
    if step.work is Work.DEREGISTER or step.task is None:
        return ""
    record = now.state.tasks.get(step.task)
    known = where(now.state, step.task)
    return known if step.work is Work.LAUNCH or record is None else f"{record.id}: {known}"


def _why_not(now: Standing, step: StepDef, status: Status, by_name: Mapping[str, PlanDef]) -> str:
    state, name = now.state, step.task
    if name is None:
        return _before_farewell(state) if step.work is Work.DEREGISTER else ""
    if step.work is not Work.LAUNCH:
        return _so_far(now, step)
    other = owner(state, by_name, name)
    if other not in (None, now.plan.name):
        return f"plan {other} works on it"
    if name in now.lost and status is Status.DELAYED:
        return f"{where(state, name)}; {state.recoveries[name].why}"
    if name in state.pending:
        return "; ".join(map(str, state.pending[name]))
    record = state.tasks.get(name)
    if record is None:
        return ""
    again = record.id in state.retired or name in now.lost
    return f"{where(state, name)}; {'is to be launched again' if again else _to_do(now)}"


def _before_farewell(state: SchedulerState) -> str:
    if state.live_count() or state.reservations:
        return "waits for the end of all tasks"
    if keeping.stays(state):
        return "finish.then is idle: waits for an operator to uninstall the service, or to force this to be complete"
    return "waits for Mesos"


def _to_do(now: Standing) -> str:
    """What a plan wants of a task that runs. Plans of the user find nothing wrong with it."""
    if now.plan.kind is not Kind.CUSTOM:
        return "it is outdated"
    if () in now.control.interrupted:
        return "waits for an operator to start or continue the plan"
    return "the plan launches it again when it is its turn"
