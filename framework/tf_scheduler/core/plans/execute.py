"""Run due plan steps except launches: stop or forget tasks, complete plans.

Launches are made by core/offers, which places `PlanView.gangs`.
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

#: Seconds after which a KILL is repeated: calls may be lost (Mesos documentation, scheduler HTTP API).
KILL_INTERVAL = 10.0


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
    times = {record.id: now for record in due}
    kills = {**state.of_current_launches(state.session.kills), **times}
    requested = {**times, **state.of_current_launches(state.session.kill_requested_at)}
    again = min(kills[record.id] for record in launches) + KILL_INTERVAL
    calls = tuple(Kill(record.id, record.agent_id) for record in due)
    return decide(state.with_session(kills=kills, next_kill_at=again, kill_requested_at=requested), calls=calls)


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
        if action := _action(state, runnable, step, record):
            changes.append(action[0])
            outcomes.append(action[1])
    for progress in view.progress.values():
        if _is_newly_complete(state, progress):
            for plan in _with_update(state, progress.plan):
                control = replace(view.records.control_of(plan), completed=completion_target(state.spec, plan))
                changes.append(PlanControlled(plan.name, control))
            outcomes.append(Outcome("PlanComplete", f"plan {progress.plan.name} is complete"))
        elif progress.plan.name == UPDATE and progress.control.completed not in ("", index_of(state.spec).target):
            # A return to the options of the last completion must launch what is missing then.
            control = view.records.control_of(progress.plan)
            changes.append(PlanControlled(UPDATE, replace(control, completed="")))
    return decide(state, *changes, outcomes=tuple(outcomes))


def _action(
    state: SchedulerState, runnable: RunnableSteps, step: StepDef, record: TaskRecord
) -> tuple[Change, Outcome] | None:
    """Return the change and outcome of a due step; `None` if nothing can be done yet."""
    if step.work is Work.ERASE:
        outcome = Outcome("TaskDecommissioned", f"{record.name} is decommissioned", record.name)
        return TaskForgotten(record.name), outcome
    if record.id in state.stored.retired or not state.is_live(record) or state.uses(record):
        return None
    plan = runnable.plan.name
    message = f"plan {plan}: stopping {record.name} {_purpose(state, step, record)}"
    return LaunchRetired(record.id, plan), Outcome("TaskStopped", message, record.name)


def _purpose(state: SchedulerState, step: StepDef, record: TaskRecord) -> str:
    if step.work is not Work.LAUNCH:
        return "to decommission it"
    pausing = not record.is_placeholder and override_of(state, record.name) is not None
    return "to pause it; its resources are kept" if pausing else "to launch it again"


def _is_newly_complete(state: SchedulerState, progress: PlanProgress) -> bool:
    """Return whether a plan has just completed; cheap checks first."""
    plan = progress.plan
    if plan.kind not in (PlanKind.ROLL_OUT, PlanKind.CUSTOM) or progress.done or progress.open():
        return False
    if not progress.control.forced and state.at_goal() < sum(len(phase.steps) for phase in plan.phases):
        return False
    return all(progress.complete(node, step) for node, step in plan.steps())


def _with_update(state: SchedulerState, plan: PlanDef) -> tuple[PlanDef, ...]:
    """Return the plan; deploy also completes update, idle until the options change."""
    return index_of(state.spec).launch_plans[:2] if plan.name == DEPLOY else (plan,)
