"""What the plans do by themselves: tell tasks to end, forget those that have, and note that they are complete.

Launching is the offers' part: they ask `wanted`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from tf_scheduler.core.recovery.pausing import shown
from tf_scheduler.core.reduce import decide, then
from tf_scheduler.model.effects import Change, Decision, Kill, LaunchRetired, Outcome, PlanControlled, TaskForgotten
from tf_scheduler.model.ids import name_of
from tf_scheduler.model.plan_names import DEPLOY, UPDATE
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.model.task import TaskRecord

from .claims import Claim, claims
from .control import control_of, target_of
from .define import Kind, PlanDef, StepDef, Work, definitions, launch_plans
from .standing import standing

#: Seconds after which a KILL is sent again: calls may be lost (Mesos documentation, scheduler HTTP API).
KILL_AGAIN = 10.0


def act(state: SchedulerState, now: float) -> Decision:
    """Everything that the plans want to do now, beside launching. Nothing without a connection, or at the end."""
    decision = decide(state)
    if not state.connected or state.result is not None or state.over:
        return decision
    while True:
        before = decision
        decision = then(before, _move)
        if len(decision.changes) == len(before.changes):
            break
    return then(decision, lambda after: end(after, _retiring(after), now))


def end(state: SchedulerState, doomed: Iterable[TaskRecord], now: float) -> Decision:
    """Tell launches to end, again and again until they have; `doomed` live all."""
    if state.kill_at and now < state.kill_at:
        return decide(state)
    doomed = tuple(doomed)
    if not doomed:
        return decide(replace(state, kill_at=0.0) if state.kill_at else state)
    due = [record for record in doomed if now >= state.kills.get(record.id, -KILL_AGAIN) + KILL_AGAIN]
    kills = {**state.kills, **{record.id: now for record in due}}
    asked = {**{record.id: now for record in due}, **state.asked}
    again = min(kills[record.id] for record in doomed) + KILL_AGAIN
    calls = tuple(Kill(record.id, record.agent_id) for record in due)
    return decide(replace(state, kills=kills, kill_at=again, asked=asked), calls=calls)


def _retiring(state: SchedulerState) -> Iterator[TaskRecord]:
    """Launches that a plan has told to end, and that have not."""
    for launch in state.retired:
        record = state.tasks.get(name_of(launch))
        if record is not None and record.id == launch and state.is_live(record):
            yield record


def _move(state: SchedulerState) -> Decision:
    """One round: each change may give another step its turn."""
    changes: list[Change] = []
    outcomes: list[Outcome] = []
    for claim in claims(state):
        for step in claim.steps:
            if done := _work(state, claim, step):
                changes.append(done[0])
                outcomes.append(done[1])
    for plan in definitions(state):
        if _is_newly_complete(state, plan):
            changes += [_completed(state, done) for done in _with_update(state, plan)]
            outcomes.append(Outcome(f"plan {plan.name} is complete"))
    return decide(state, *changes, outcomes=tuple(outcomes))


def _work(state: SchedulerState, claim: Claim, step: StepDef) -> tuple[Change, Outcome] | None:
    """What a step whose turn it is has to have done now."""
    record = None if step.task is None else state.tasks.get(step.task)
    if record is None:
        return None
    plan = claim.plan.name
    if step.work is Work.ERASE:
        return TaskForgotten(record.name), Outcome(f"{record.name} is decommissioned", record.name)
    if record.id in state.retired or not state.is_live(record):
        return None
    aim = _aim(state, step, record)
    return LaunchRetired(record.id, plan), Outcome(f"plan {plan}: {record.name} is told to end, {aim}", record.name)


def _aim(state: SchedulerState, step: StepDef, record: TaskRecord) -> str:
    if step.work is not Work.LAUNCH:
        return "to be decommissioned"
    pausing = not record.idle and shown(state, record.name) is not None
    return "for it is paused: its place is kept" if pausing else "to be launched again"


def _is_newly_complete(state: SchedulerState, plan: PlanDef) -> bool:
    """Whether all of it is done for the first time. What costs least is looked at first."""
    if plan.kind not in (Kind.ROLL_OUT, Kind.CUSTOM):
        return False
    now = standing(state, plan)
    if now.done or now.open():
        return False
    if not now.control.forced and state.at_goal() < sum(len(phase.steps) for phase in plan.phases):
        return False
    return all(now.complete(node, step) for node, step in plan.steps())


def _with_update(state: SchedulerState, plan: PlanDef) -> tuple[PlanDef, ...]:
    """What deploy has completed needs no update until the options change."""
    update = next(other for other in launch_plans(state.spec) if other.name == UPDATE)
    return (plan, update) if plan.name == DEPLOY else (plan,)


def _completed(state: SchedulerState, plan: PlanDef) -> PlanControlled:
    return PlanControlled(plan.name, replace(control_of(state, plan), completed=target_of(state, plan)))
