"""Handle status updates: store, acknowledge, kill unknown launches, end the job."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from tf_scheduler.core.plans.scheduling import PlanView
from tf_scheduler.core.state.reducer import decide
from tf_scheduler.core.state.restart_units import trains_together
from tf_scheduler.model import effects
from tf_scheduler.model.ids import NewId, TaskId, name_of
from tf_scheduler.model.spec import JobKind
from tf_scheduler.model.state import Result, SchedulerState, Verdict
from tf_scheduler.model.task import SILENT_STATES, TaskRecord, TaskState, TaskStatus

from . import reconcile, recover, startup_timeout, success
from .reactions import Reaction, reaction_to
from .replacement import restart_address_wait

#: Expected ends, reported without a warning; KILLED is what the scheduler has stopped.
_AS_WISHED = (TaskState.FINISHED, TaskState.KILLED)


def on_update(state: SchedulerState, status: TaskStatus, now: float, new_id: NewId, view: PlanView) -> effects.Decision:
    """Handle a status update according to `reactions.REACTIONS`.

    Stored updates are only acknowledged again, and answers without news are ignored.
    """
    if state.session.reconciliation.awaits(status.id):
        state = reconcile.mark_answered(state, status.id)
    record = state.stored.tasks.get(name_of(status.id))
    if record is not None and record.id != status.id:
        record = None
    if record is not None and record.is_placeholder and status.state is TaskState.FINISHED:
        status = replace(status, state=TaskState.FAILED, message="the placeholder process of the paused task exited")
    stored = None if record is None else state.stored.statuses.get(status.id)
    if stored is not None and (status.uuid and stored.uuid == status.uuid):
        return decide(state, calls=_acknowledge(status))
    reaction = reaction_to(status, stored, is_current=record is not None)
    if reaction is Reaction.KILL:
        return _kill_unwanted(state, status)
    if record is None or reaction is Reaction.IGNORE:
        return decide(state, calls=_acknowledge(status), outcomes=_late_success(status, stored))
    if stored is not None and stored.state is status.state and not status.uuid:
        return decide(state)
    if reaction is Reaction.WAIT:
        # By the scheduler's clock: the master sends a new time with each answer.
        is_silent = stored is not None and stored.state in SILENT_STATES
        status = replace(status, timestamp=stored.timestamp if stored is not None and is_silent else now)
    if status.out_of_memory and status.state is TaskState.FAILED:
        status = replace(status, message=f"{status.message or 'out of memory'}; raise {record.group}.mem")
    if stored is not None and not status.addresses:
        status = replace(status, addresses=stored.addresses)
    if status.state is TaskState.RUNNING and status.healthy is None:
        status = startup_timeout.with_start_time(status, stored, now)
    changes: list[effects.Change] = [effects.StatusStored(status)]
    if (
        reaction is Reaction.FINISH
        and state.is_replaced(record)
        and not trains_together(state.spec.strategy, record.job)
    ):
        cancelled = replace(state.stored.recoveries[record.name], launch=TaskId(""))
        changes.append(effects.RecoveryDecided(cancelled))
    decision = decide(state, *changes, calls=_acknowledge(status))
    change = recover.StatusChange(record, status, stored, now, new_id)
    return decision.then(lambda after: _react(after, change, view))


def expire_unreachable(state: SchedulerState, now: float, new_id: NewId, view: PlanView) -> effects.Decision:
    """Count tasks as lost that were silent for too long, also when asked again."""
    state, silent = recover.unreachable_too_long(state, now)
    lost = [recover.lost(state, status) for status in silent if reconcile.was_asked_again(state, status)]
    unasked = [status for status in silent if not reconcile.was_asked_again(state, status)]
    decision = reconcile.ask_again(state, unasked, now) if unasked else decide(state)
    return decision.then(lambda after: _conclude(after, lost, now, new_id, view))


def expire_unstarted(state: SchedulerState, now: float, new_id: NewId, view: PlanView) -> effects.Decision:
    """Mark launches not started in time as lost; kill them in case they start later."""
    state, unstarted = startup_timeout.unstarted_launches(state, now)
    kills = tuple(effects.Kill(status.id, status.agent_id) for status in unstarted if status.agent_id is not None)
    return _conclude(state, unstarted, now, new_id, view).then(lambda after: decide(after, calls=kills))


def _conclude(
    state: SchedulerState, statuses: Iterable[TaskStatus], now: float, new_id: NewId, view: PlanView
) -> effects.Decision:
    """Handle statuses that the scheduler concludes itself as if Mesos had sent them."""
    decision = decide(state)
    for status in statuses:
        decision = decision.then(partial(on_update, status=status, now=now, new_id=new_id, view=view))
    return decision


def _acknowledge(status: TaskStatus) -> tuple[effects.Call, ...]:
    """Acknowledge only updates with a uuid (Mesos documentation, scheduler HTTP API)."""
    if not status.uuid or status.agent_id is None:
        return ()
    return (effects.Acknowledge(status.id, status.agent_id, status.uuid),)


def _kill_unwanted(state: SchedulerState, status: TaskStatus) -> effects.Decision:
    acknowledge = _acknowledge(status)
    if status.agent_id is None:
        return decide(state, calls=acknowledge)
    outcome = effects.Outcome(
        "ForeignTaskKilled", f"killing {status.id}: it runs, but is not a current launch of this service", warning=True
    )
    return decide(state, calls=(*acknowledge, effects.Kill(status.id, status.agent_id)), outcomes=(outcome,))


def _late_success(status: TaskStatus, stored: TaskStatus | None) -> tuple[effects.Outcome, ...]:
    """Report a success that is ignored, because the launch had failed or was replaced."""
    if status.state is not TaskState.FINISHED or (stored is not None and stored.state is TaskState.FINISHED):
        return ()
    why = "it was replaced" if stored is None else f"it {stored.state.phrase} before"
    return (effects.Outcome("LateSuccess", f"{status.id} has finished, which is ignored: {why}", warning=True),)


def _react(state: SchedulerState, change: recover.StatusChange, view: PlanView) -> effects.Decision:
    record, status, now = change.record, change.status, change.now
    sentence = describe(record, status)
    warns = status.is_frozen or (status.state.has_ended and status.state not in _AS_WISHED)
    outcome = effects.Outcome("TaskStatus", sentence, record.name, warning=warns)
    if state.stored.result is not None:
        return decide(state, *_collateral(state.stored.result, record, status, now), outcomes=(outcome,))
    if not status.state.has_ended:
        return decide(state, outcomes=(outcome,))
    if status.state is not TaskState.FINISHED:
        view = view.after(state)
        if view.needs(record) and not state.is_replaced(record):
            return recover.on_task_end(state, change)
        plan, recovery = view.replacing_plan(record), restart_address_wait(state, record, status, now)
        changes: list[effects.Change] = [effects.LaunchRetired(record.id, plan)] if plan else []
        changes += [effects.RecoveryDecided(recovery)] if recovery else []
        return decide(state, *changes, outcomes=(outcome,))
    if success.completes_job(state, record):
        return decide(state, effects.ResultDecided(Result(Verdict.SUCCEEDED, sentence, now)), outcomes=(outcome,))
    return decide(state, outcomes=(outcome,))


def _collateral(result: Result, record: TaskRecord, status: TaskStatus, now: float) -> tuple[effects.Change, ...]:
    """Add a task that fails soon after the job to the result, as a collateral failure."""
    soon = now - result.decided_at < recover.COLLATERAL_SECONDS
    if result.verdict is not Verdict.FAILED or status.state is not TaskState.FAILED or not soon:
        return ()
    return (effects.ResultDecided(result.with_collateral(record.name)),)


def describe(record: TaskRecord, status: TaskStatus) -> str:
    """Return a message such as `worker-1 on agent-2 has failed: exit code 3`."""
    why = status.message or status.reason
    if record.job is JobKind.TENSORBOARD and status.state is TaskState.RUNNING:
        why = f"http://{record.address}/"
    if record.is_placeholder and status.state is TaskState.RUNNING:
        return f"{record.name} on {record.hostname} is paused: a placeholder keeps its resources"
    phrase = "is frozen" if status.is_frozen else status.state.phrase
    return f"{record.name} on {record.hostname} {phrase}{f': {why}' if why else ''}"
