"""What the plans do by themselves: tell tasks to end, forget those that have, and note that they are complete.

Launching is the offers' part: they place `PlanView.gangs`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from tf_scheduler.core.state.pause import override_of
from tf_scheduler.core.state.reducer import decide
from tf_scheduler.core.state.spec_index import index_of
from tf_scheduler.model.effects import Change, Decision, Kill, LaunchRetired, Outcome, PlanControlled, TaskForgotten
from tf_scheduler.model.ids import name_of
from tf_scheduler.model.plan import DEPLOY, UPDATE, PlanDef, PlanKind, StepDef, Work
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.model.task import TaskRecord

from .rollout import completion_target
from .scheduling import PlanView, RunnableSteps
from .step_status import PlanProgress

#: Seconds after which a KILL is sent again: calls may be lost (Mesos documentation, scheduler HTTP API).
KILL_INTERVAL = 10.0


def advance(state: SchedulerState, now: float, view: PlanView) -> Decision:
    """Everything that the plans want to do now, beside launching. Nothing without a connection, or at the end."""
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


def kill_tasks(state: SchedulerState, doomed: Iterable[TaskRecord], now: float) -> Decision:
    """Tell launches to end, again and again until they have; `doomed` live all."""
    if state.session.next_kill_at and now < state.session.next_kill_at:
        return decide(state)
    doomed = tuple(doomed)
    if not doomed:
        return decide(
            replace(state, session=replace(state.session, next_kill_at=0.0)) if state.session.next_kill_at else state
        )
    due = [record for record in doomed if now >= state.session.kills.get(record.id, -KILL_INTERVAL) + KILL_INTERVAL]
    kills = {**state.session.kills, **{record.id: now for record in due}}
    asked = {**{record.id: now for record in due}, **state.session.kill_requested_at}
    again = min(kills[record.id] for record in doomed) + KILL_INTERVAL
    calls = tuple(Kill(record.id, record.agent_id) for record in due)
    return decide(
        replace(state, session=replace(state.session, kills=kills, next_kill_at=again, kill_requested_at=asked)),
        calls=calls,
    )


def _retiring(state: SchedulerState) -> Iterator[TaskRecord]:
    """Launches that a plan has told to end, and that have not."""
    for launch in state.stored.retired:
        record = state.stored.tasks.get(name_of(launch))
        if record is not None and record.id == launch and state.is_live(record):
            yield record


def _advance_once(state: SchedulerState, view: PlanView) -> Decision:
    """One round: each change may give another step its turn."""
    changes: list[Change] = []
    outcomes: list[Outcome] = []
    for runnable in view.runnable:
        for step in runnable.steps:
            if done := _work(state, runnable, step):
                changes.append(done[0])
                outcomes.append(done[1])
    for now in view.progress.values():
        if _is_newly_complete(state, now):
            changes += [_completed(view, done) for done in _with_update(state, now.plan)]
            outcomes.append(Outcome(f"plan {now.plan.name} is complete"))
    return decide(state, *changes, outcomes=tuple(outcomes))


def _work(state: SchedulerState, runnable: RunnableSteps, step: StepDef) -> tuple[Change, Outcome] | None:
    """What a step whose turn it is has to have done now."""
    record = None if step.task is None else state.stored.tasks.get(step.task)
    if record is None:
        return None
    plan = runnable.plan.name
    if step.work is Work.ERASE:
        return TaskForgotten(record.name), Outcome(f"{record.name} is decommissioned", record.name)
    if record.id in state.stored.retired or not state.is_live(record):
        return None
    aim = _aim(state, step, record)
    return LaunchRetired(record.id, plan), Outcome(f"plan {plan}: {record.name} is told to end, {aim}", record.name)


def _aim(state: SchedulerState, step: StepDef, record: TaskRecord) -> str:
    if step.work is not Work.LAUNCH:
        return "to be decommissioned"
    pausing = not record.is_placeholder and override_of(state, record.name) is not None
    return "for it is paused: its place is kept" if pausing else "to be launched again"


def _is_newly_complete(state: SchedulerState, now: PlanProgress) -> bool:
    """Whether all of a plan is done for the first time. What costs least is checked first."""
    plan = now.plan
    if plan.kind not in (PlanKind.ROLL_OUT, PlanKind.CUSTOM) or now.done or now.open():
        return False
    if not now.control.forced and state.at_goal() < sum(len(phase.steps) for phase in plan.phases):
        return False
    return all(now.complete(node, step) for node, step in plan.steps())


def _with_update(state: SchedulerState, plan: PlanDef) -> tuple[PlanDef, ...]:
    """What deploy has completed needs no update until the options change."""
    update = next(other for other in index_of(state.spec).launch_plans if other.name == UPDATE)
    return (plan, update) if plan.name == DEPLOY else (plan,)


def _completed(view: PlanView, plan: PlanDef) -> PlanControlled:
    control = replace(view.records.control_of(plan), completed=completion_target(view.inputs.spec, plan))
    return PlanControlled(plan.name, control)
