"""A status update -> what is stored, acknowledged, killed, and whether it ends the job."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial

from tf_scheduler.core.plans.scheduling import PlanView
from tf_scheduler.core.state.reducer import decide
from tf_scheduler.model.effects import (
    Acknowledge,
    Call,
    Change,
    Decision,
    Kill,
    LaunchRetired,
    Outcome,
    RecoveryDecided,
    ResultDecided,
    StatusStored,
)
from tf_scheduler.model.ids import name_of
from tf_scheduler.model.spec import JobKind
from tf_scheduler.model.state import Result, SchedulerState, Verdict
from tf_scheduler.model.task import TaskRecord, TaskState, TaskStatus

from . import reconcile, recover, startup_timeout, success
from .replacement import restart_address_wait

#: Ends that nobody has to look at: Mesos calls killed what we have told to end.
_AS_WISHED = (TaskState.FINISHED, TaskState.KILLED)


def on_update(
    state: SchedulerState, status: TaskStatus, now: float, unique: Callable[[], str], view: PlanView
) -> Decision:
    """First rule that fits, wins:

    a launch that is not ours (any more), or that we have given up, is killed; an update that we stored is only
    acknowledged again; what Mesos answers about a launch that has ended, or as we know it, changes nothing;
    everything else is stored and judged.
    """
    if status.id in state.session.reconciliation.unanswered:
        state = reconcile.mark_answered(state, status.id)
    record = state.stored.tasks.get(name_of(status.id))
    if record is None or record.id != status.id:
        return _stray(state, status)
    if record.is_placeholder and status.state is TaskState.FINISHED:
        status = replace(status, state=TaskState.FAILED, message="what kept its place while it was paused has ended")
    stored = state.stored.statuses.get(status.id)
    if stored is not None and stored.state is TaskState.LOST and not status.state.has_ended:
        return _stray(state, status)
    if stored is not None and (stored.state.has_ended or (status.uuid and stored.uuid == status.uuid)):
        return decide(state, calls=_acknowledge(status))
    if stored is not None and stored.state is status.state and not status.uuid:
        return decide(state)
    if status.state is TaskState.UNREACHABLE:
        # Since when, by our clock; asked again, the master tells it anew.
        since = stored.timestamp if stored is not None and stored.state is TaskState.UNREACHABLE else now
        status = replace(status, timestamp=since)
    if stored is not None and not status.addresses:
        status = replace(status, addresses=stored.addresses)
    if status.state is TaskState.RUNNING and status.healthy is None:
        status = startup_timeout.with_start_time(status, stored, now)
    known = decide(state, StatusStored(status), calls=_acknowledge(status))
    return known.then(lambda after: _judge(after, record, status, stored, now, unique, view))


def expire_unreachable(state: SchedulerState, now: float, unique: Callable[[], str], view: PlanView) -> Decision:
    """Count tasks as lost whose agent has not answered for too long."""
    return _believe(state, recover.unreachable_too_long(state, now), now, unique, view)


def expire_unstarted(state: SchedulerState, now: float, unique: Callable[[], str], view: PlanView) -> Decision:
    """Count launches as lost that have not started in time, and kill them: an agent may start one later."""
    unstarted = startup_timeout.unstarted_launches(state, now)
    kills = tuple(Kill(status.id, status.agent_id) for status in unstarted if status.agent_id is not None)
    return _believe(state, unstarted, now, unique, view).then(lambda after: decide(after, calls=kills))


def _believe(
    state: SchedulerState, statuses: Iterable[TaskStatus], now: float, unique: Callable[[], str], view: PlanView
) -> Decision:
    """Handle statuses that the scheduler concludes itself as if Mesos had sent them."""
    decision = decide(state)
    for status in statuses:
        decision = decision.then(partial(on_update, status=status, now=now, unique=unique, view=view))
    return decision


def _acknowledge(status: TaskStatus) -> tuple[Call, ...]:
    """Updates with a uuid are acknowledged, those without never (Mesos documentation, scheduler HTTP API)."""
    if not status.uuid or status.agent_id is None:
        return ()
    return (Acknowledge(status.id, status.agent_id, status.uuid),)


def _stray(state: SchedulerState, status: TaskStatus) -> Decision:
    acknowledge = _acknowledge(status)
    if status.state.has_ended or status.agent_id is None:
        return decide(state, calls=acknowledge)
    told = Outcome(f"{status.id} runs, but this service did not ask for it: killed", warning=True)
    return decide(state, calls=(*acknowledge, Kill(status.id, status.agent_id)), outcomes=(told,))


def _judge(
    state: SchedulerState,
    record: TaskRecord,
    status: TaskStatus,
    before: TaskStatus | None,
    now: float,
    unique: Callable[[], str],
    view: PlanView,
) -> Decision:
    sentence = describe(record, status)
    told = Outcome(sentence, record.name, warning=status.state.has_ended and status.state not in _AS_WISHED)
    if state.stored.result is not None:
        return decide(state, *_collateral(state.stored.result, record, status, now), outcomes=(told,))
    if not status.state.has_ended:
        return decide(state, outcomes=(told,))
    if status.state is not TaskState.FINISHED:
        view = view.after(state)
        if view.needs(record) and not state.is_replaced(record):
            return recover.on_task_end(state, record, status, before, now, unique)
        plan, settling = view.replacing_plan(record), restart_address_wait(state, record, status, now)
        changes: list[Change] = [LaunchRetired(record.id, plan)] if plan else []
        changes += [RecoveryDecided(settling)] if settling else []
        return decide(state, *changes, outcomes=(told,))
    if success.completes_job(state, record):
        return decide(state, ResultDecided(Result(Verdict.SUCCEEDED, sentence, now)), outcomes=(told,))
    return decide(state, outcomes=(told,))


def _collateral(result: Result, record: TaskRecord, status: TaskStatus, now: float) -> tuple[Change, ...]:
    """Whoever fails by itself soon after the failure of the job fails because of it: the first one is blamed."""
    soon = now - result.decided_at < recover.COLLATERAL_SECONDS
    if result.verdict is not Verdict.FAILED or status.state is not TaskState.FAILED or not soon:
        return ()
    return (ResultDecided(replace(result, collateral=(*result.collateral, record.name))),)


def describe(record: TaskRecord, status: TaskStatus) -> str:
    """`worker-1 on agent-2 failed: exit code 3`"""
    why = status.message or status.reason
    if record.job is JobKind.TENSORBOARD and status.state is TaskState.RUNNING:
        why = f"http://{record.address}/"
    if record.is_placeholder and status.state is TaskState.RUNNING:
        return f"{record.name} on {record.hostname} is paused: no program runs there, its place is kept"
    return f"{record.name} on {record.hostname} is {status.state.label}{f': {why}' if why else ''}"
