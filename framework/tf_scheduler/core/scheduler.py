"""Decide on one event: `handle` runs a table of stages, and returns a decision.

    event -> its own stages -> plans (stop outdated launches) -> suppress or revive offers -> end of the job -> decision

Each stage gets the state that the previous one left, and is skipped if its part of that state is empty.

Pure: the time and new ids are arguments, and all effects are in the decision.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from tf_executor.contract.reports import Progress
from tf_executor.contract.states import assert_never
from tf_scheduler.model import events
from tf_scheduler.model.effects import Change, ComputedPlans, Decision, Outcome
from tf_scheduler.model.ids import NewId, TaskId, UnixTime, name_of
from tf_scheduler.model.spec import JobKind
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.model.task import TaskRecord

from . import connection_problems, framework, job_end
from .elastic import cluster_size, live_workers
from .launch import secret_tokens
from .offers import rounds
from .offers.matcher import MATCH_INTERVAL
from .offers.rounds import NO_OFFER_WARNING_SECONDS
from .plans import commands, scheduling
from .plans.scheduling import KILL_INTERVAL, PlanView
from .recovery import (
    operator_commands,
    reconcile,
    recover,
    replacement,
    startup_timeout,
    status,
)
from .state import after_job
from .state.reducer import copy_of, decide
from .state.spec_index import index_of

# --- Training progress


def record_report(state: SchedulerState, event: events.ProgressReported | events.UsageReported, now: float) -> Decision:
    """Record progress or usage for display; kill launches that are not current."""
    record, launch = state.stored.tasks.get(name_of(event.task_id)), event.task_id
    answered: tuple[Change, ...] = ()
    outcomes: tuple[Outcome, ...] = ()
    if record is None or record.id != launch:
        recorded = state
    elif isinstance(event, events.UsageReported):
        usage = copy_of(state.process.usage)
        usage[record.name] = launch, event.usage
        recorded = state.with_process(usage=usage)
    else:
        last, progress = state.process.progress.get(launch), copy_of(state.process.progress)
        if last and last.sequence >= event.progress.sequence:
            return decide(state)
        progress[launch] = event.progress
        recorded = state
        if event.progress.is_of_training:
            recorded = state.with_process(progress=progress, last_progress=(record.name, now))
        elif event.progress.saves is not None:
            recorded = state.with_process(progress=progress)
        answered = live_workers.record_members(state, launch, event.progress) if state.spec.live else ()
        recorded, outcomes = _record_storage(recorded, record, event.progress.storage_error)
    decision = decide(recorded, *answered, outcomes=outcomes)
    return decision.then(lambda after: status.on_sign_of_life(after, launch, event.agent_id, now))


def _record_storage(
    state: SchedulerState, record: TaskRecord, error: str | None
) -> tuple[SchedulerState, tuple[Outcome, ...]]:
    """Record whether checkpoints are stored; return outcomes for a change."""
    name, before = record.name, state.storage_error(record.name)
    if error is None or error == before:
        return state, ()
    state = state.with_process(storage_errors={**state.process.storage_errors, name: (record.id, error)})
    if error and before:
        return state, ()
    if error:
        return state, (Outcome("StorageFailed", f"{name}: {error}", name, warning=True),)
    return state, (Outcome("StorageRestored", f"{name}: checkpoints are stored again", name),)


def restored_progress(state: SchedulerState, reported: Mapping[TaskId, Progress]) -> SchedulerState:
    """Return the state with stored progress of launches that are still current."""
    current = {record.id: reported[record.id] for record in state.stored.tasks.values() if record.id in reported}
    newest = max(current, key=lambda launch: current[launch].time, default=None)
    last = None if newest is None else (name_of(newest), current[newest].time)
    return state.with_process(progress=current, last_progress=last)


# --- Stages


@dataclass(slots=True)
class StageContext:
    """Arguments of the stages of one decision, in addition to the state."""

    #: The state before the event.
    before: SchedulerState
    now: UnixTime
    new_id: NewId
    #: The plans of the state that the stage gets.
    view: PlanView


StageFunction = Callable[[SchedulerState, StageContext], Decision]


@dataclass(frozen=True, slots=True)
class DecisionStage:
    """One part of a decision; skipped unless `when` is true of the current state."""

    function: StageFunction
    when: Callable[[SchedulerState], object] = lambda _: True


#: Events without consequences for plans. An executor's failure is handled with the status of its task.
_ALONE = (
    events.ProgressReported,
    events.UsageReported,
    events.SecretsRequested,
    events.ReloadSecrets,
    events.ExecRequested,
    events.AcknowledgeExposures,
    events.ExecutorFailed,
    events.EventSkipped,
    events.FrameworksHidden,
    events.ClockStepped,
    events.SharedUserFound,
    events.CallsAccepted,
    events.ClockDrifted,
)
_MARK_READY = DecisionStage(
    lambda state, ctx: decide(recover.mark_ready(state, ctx.now)), lambda state: state.derived.delayed_tasks
)
_RETAIN = DecisionStage(
    lambda state, ctx: after_job.announce(state) if ctx.before.stored.result is None else decide(state),
    lambda state: state.stored.result is not None,
)
_DRAIN = DecisionStage(lambda state, ctx: recover.drain(state, ctx.now), lambda state: state.session.windows)
#: Timeouts. Held offers are matched again because the wait for a previous address may be over, or to update reasons.
_TICK: tuple[DecisionStage, ...] = (
    DecisionStage(
        lambda state, ctx: job_end.check_deadline(state, ctx.now), lambda state: state.spec.finish.deadline is not None
    ),
    DecisionStage(
        lambda state, ctx: startup_timeout.relaunch_late(state, ctx.now, ctx.new_id),
        lambda state: state.derived.starting_count,
    ),
    DecisionStage(
        lambda state, ctx: status.expire_unreachable(state, ctx.now, ctx.new_id, ctx.view),
        SchedulerState.has_silent_tasks,
    ),
    DecisionStage(
        lambda state, ctx: status.expire_unstarted(state, ctx.now, ctx.new_id, ctx.view),
        lambda state: state.unstarted_count(),
    ),
    _DRAIN,
    DecisionStage(
        lambda state, ctx: live_workers.direct_chief(state, ctx.now, ctx.view), lambda state: state.spec.live
    ),
    DecisionStage(
        lambda state, ctx: cluster_size.resize_at_checkpoint(state, ctx.now),
        lambda state: state.stored.resized.until is not None,
    ),
    DecisionStage(
        lambda state, ctx: cluster_size.reduce_size(state, ctx.now, ctx.view.gangs), lambda state: state.session.offers
    ),
    DecisionStage(
        lambda state, ctx: rounds.on_offers(state, events.OffersReceived(()), ctx.now, ctx.new_id, ctx.view),
        lambda state: (state.session.offers and state.stored.recoveries) or _match_due_at(state) < math.inf,
    ),
    DecisionStage(
        lambda state, ctx: rounds.expire_round(state, ctx.now, ctx.new_id, ctx.view.gangs),
        lambda state: state.session.round_started is not None or state.session.no_offers_since is not None,
    ),
    DecisionStage(lambda state, ctx: reconcile.poll(state, ctx.now), lambda state: state.session.connected),
)
#: Consequences of the new state, after every event.
_FOLLOW_UP: tuple[DecisionStage, ...] = (
    DecisionStage(
        lambda state, ctx: replacement.restart_readers(state, ctx.before, ctx.now),
        lambda state: JobKind.DISPATCHER in index_of(state.spec).by_kind,
    ),
    DecisionStage(
        lambda state, ctx: operator_commands.resume_dependents(state, ctx.now), lambda state: state.derived.idle_tasks
    ),
    DecisionStage(
        lambda state, _: cluster_size.restore_full_size(state), lambda state: state.stored.resized.count is not None
    ),
    _MARK_READY,
    DecisionStage(
        lambda state, ctx: scheduling.advance(state, ctx.now, ctx.view), lambda state: state.session.connected
    ),
    DecisionStage(
        lambda state, ctx: rounds.update_demand(
            state, ctx.now, ctx.view.pending_tasks or cluster_size.growth(state, ctx.now)
        ),
        lambda state: state.session.connected,
    ),
    _RETAIN,
    DecisionStage(
        lambda state, ctx: job_end.advance(state, ctx.now),
        lambda state: not state.process.finished and (state.stored.result is not None or state.stored.removed),
    ),
)


def handle(
    state: SchedulerState, event: events.Event, now: float, new_id: NewId, view: ComputedPlans | None = None
) -> Decision:
    """Decide on one event.

    Args:
        state: The state of the last decision.
        event: The event.
        now: Unix time.
        new_id: Returns a new unique string at each call.
        view: The view of the last decision, which saves work; the decision is the same without it.
    """
    decision, ctx = Decision(state), StageContext(state, now, new_id, scheduling.view_of(state, view))
    for stage in _stages(event):
        if stage.when(decision.state):
            ctx.view = scheduling.view_of(decision.state, decision.view or ctx.view)
            decision = decision.followed_by(stage.function(decision.state, ctx))
    request_id = event.request_id if isinstance(event, events.Request) else 0
    return replace(decision, request_id=request_id, view=scheduling.view_of(decision.state, decision.view or ctx.view))


def _stages(event: events.Event) -> tuple[DecisionStage, ...]:
    """Return the stages of one event in order."""
    if isinstance(event, events.Tick):
        own: tuple[DecisionStage, ...] = _TICK
    elif isinstance(event, events.InverseOffersReceived):
        own = (DecisionStage(_reaction(event)), _DRAIN)
    elif isinstance(event, events.FrameworksWait):
        own = (DecisionStage(lambda state, ctx: cluster_size.give_back(state, event.names, ctx.now)),)
    elif isinstance(event, events.OffersReceived):
        forget_windows = DecisionStage(
            lambda state, _: decide(recover.forget_windows(state, event.offers)),
            lambda state: state.session.windows,
        )
        take_idle = DecisionStage(
            lambda state, ctx: cluster_size.take_idle_agents(state, event.offers, ctx.now, ctx.view),
            lambda state: state.spec.grows,
        )
        own = (forget_windows, take_idle, DecisionStage(_reaction(event)))
    else:
        own = (DecisionStage(_reaction(event)),)
    if isinstance(event, events.ExecutorFailed) and (event.has_wrong_digest or event.has_no_interpreter):
        own = (DecisionStage(lambda state, ctx: recover.on_executor_refused(state, event, ctx.now)),)
    elif isinstance(event, _ALONE):
        return own
    if isinstance(event, events.StatusUpdated) and event.more:
        return (*own, _RETAIN)
    return (_MARK_READY, *own, *_FOLLOW_UP)


def _reaction(event: events.Event) -> StageFunction:  # noqa: C901, RET503 - a case per event; no return
    """Return the function that handles the event itself."""
    match event:
        case events.ProgressReported() | events.UsageReported():
            return lambda state, ctx: record_report(state, event, ctx.now)
        case events.SecretsRequested():
            return lambda state, ctx: _on_secrets_requested(state, event, ctx.now)
        case events.ReloadSecrets() | events.AcknowledgeExposures():
            return lambda state, _: secret_tokens.command(state, event)
        case events.ExecutorFailed() | events.FrameworksWait() | events.Tick():
            return lambda state, _: decide(state)
        case events.StatusUpdated():
            return lambda state, ctx: status.on_update(state, event.status, ctx.now, ctx.new_id, ctx.view)
        case events.OffersReceived():
            return lambda state, ctx: rounds.on_offers(state, event, ctx.now, ctx.new_id, ctx.view)
        case events.ConnectionProblem():
            return lambda state, ctx: connection_problems.handle(state, event, ctx.now, ctx.new_id, ctx.view)
        case events.SharedUserFound():
            return lambda state, _: secret_tokens.report_shared_user(state, event)
        case events.OfferRescinded():
            return lambda state, _: rounds.on_rescinded(state, event.offer_id)
        case events.InverseOffersReceived():
            return lambda state, _: recover.on_inverse_offers(state, event.offers)
        case events.InverseOfferRescinded():
            return lambda state, _: recover.on_inverse_offer_rescinded(state, event.offer_id)
        case events.PlanCommand():
            return lambda state, ctx: commands.handle(state, event, ctx.view)
        case events.PodCommand() | events.ExecRequested() | events.ScaleRequested():
            return lambda state, ctx: operator_commands.handle(state, event, ctx.now)
        case events.StopRequested():
            return lambda state, ctx: job_end.request_stop(state, event.reason, ctx.now)
        case events.FrameworkAdopted():
            return lambda state, ctx: framework.adopt(state, event, ctx.now, ctx.new_id, ctx.view)
        case events.ResetRequested():
            return lambda state, _: framework.reset_framework(state)
        case events.AgentFailed():
            return lambda state, _: rounds.on_agent_failed(state, event.agent_id)
        case events.Subscribed():
            return lambda state, ctx: framework.on_subscribed(state, event, ctx.now, ctx.view)
        case events.Disconnected() | events.SubscriptionRefused() | events.TornDown():
            return lambda state, _: framework.on_disconnected(state, event)
        case _:
            assert_never(event)


def _on_secrets_requested(state: SchedulerState, event: events.SecretsRequested, now: float) -> Decision:
    """Answer a request for secrets; kill the launch if it is known to be abandoned."""
    decision = secret_tokens.redeem(state, event, now)
    abandoned = state.stored.abandoned.get(event.task_id)
    if abandoned is None:
        return decision
    return decision.then(lambda after: status.on_sign_of_life(after, abandoned.id, abandoned.agent_id, now))


# --- Deadlines


def next_deadline(state: SchedulerState) -> float | None:
    """Return the Unix time of the next Tick; `None` if only events change the state."""
    deadline = math.inf if state.process.finished else min(_deadlines(state), default=math.inf)
    return None if deadline == math.inf else deadline


def _deadlines(state: SchedulerState) -> Iterator[float]:
    session = state.session
    if not session.connected:
        return
    if session.round_started is not None:
        yield session.round_started + state.spec.gang.hold_seconds
    yield _match_due_at(state)
    if session.no_offers_since is not None:
        yield session.no_offers_since + NO_OFFER_WARNING_SECONDS
    if session.revive_at is not None:
        yield session.revive_at
    yield from reconcile.deadlines(state)
    if state.stored.result is None:
        yield from recover.deadlines(state)
        yield from job_end.deadlines(state)
        yield from cluster_size.deadlines(state)
        yield from live_workers.deadlines(state)
    else:
        yield from after_job.deadlines(state)
    if session.next_kill_at:
        yield session.next_kill_at
    if session.teardown_at is not None:
        yield session.teardown_at + KILL_INTERVAL


def _match_due_at(state: SchedulerState) -> float:
    """Return when a match must update the reasons of pending tasks."""
    last = state.session.failed_match
    return last.at + MATCH_INTERVAL if last is not None and last.is_outdated else math.inf
