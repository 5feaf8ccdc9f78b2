"""Decide on one event: `handle` runs its stages, and returns a decision.

    event -> its own stages -> plans (stop outdated launches) -> suppress or revive offers -> end of the job -> decision

Each stage gets the state that the previous stage returned. A stage is skipped if its part of the state is empty.

`handle` is pure: the time and new ids are arguments, and all effects are in the decision.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace

from tf_executor.contract.reports import Progress
from tf_executor.contract.states import TaskState, assert_never
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
from .offers.rounds import NO_OFFER_WARNING_SECONDS
from .plans import plan_commands, scheduling
from .plans.scheduling import KILL_INTERVAL, PlanView
from .recovery import operator_commands, reconcile, recover, replacement, startup_timeout, status
from .recovery.startup_timeout import Wait
from .state import after_job
from .state.reducer import decide
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
        recorded = state.with_process(usage={**state.process.usage, record.name: (launch, event.usage)})
    else:
        last = state.process.progress.get(launch)
        if last and last.sequence >= event.progress.sequence:
            return decide(state)
        recorded, progress = state, {**state.process.progress, launch: event.progress}
        if event.progress.is_of_training:
            recorded = state.with_process(progress=progress, last_progress=(record.name, now))
        elif event.progress.saves is not None:
            recorded = state.with_process(progress=progress)
        answered = live_workers.record_members(state, launch, event.progress) if state.spec.live else ()
        recorded, outcomes = _record_storage(recorded, record, event.progress.storage_error)
        if last is None or last.first_step is None:
            outcomes += _check_restored(state, record, event.progress)
    decision = decide(recorded, *answered, outcomes=outcomes)
    return decision.then(lambda after: status.on_sign_of_life(after, launch, event.agent_id, now))


def _check_restored(state: SchedulerState, record: TaskRecord, progress: Progress) -> tuple[Outcome, ...]:
    """Return an outcome if the relaunched leader has not restored the last checkpoint."""
    before = state.stored.recoveries.get(record.name)
    saved_step = None if before is None or before.launch == record.id else before.saved_step
    if not progress.has_begun_again(saved_step) or not state.spec.is_leader(record.job, record.index):
        return ()
    message = f"{record.name}: {progress.describe_continuation(saved_step)}"
    return (Outcome("NotRestored", message, record.name, warning=True),)


def _record_storage(
    state: SchedulerState, record: TaskRecord, error: str | None
) -> tuple[SchedulerState, tuple[Outcome, ...]]:
    """Record whether checkpoints are stored; return an outcome if that has changed."""
    name, before = record.name, state.storage_error(record.name)
    if error is None or error == before:
        return state, ()
    state = state.with_process(storage_errors={**state.process.storage_errors, name: (record.id, error)})
    if error and before:
        return state, ()
    if error:
        return state, (Outcome("StorageFailed", f"{name}: {error}", name, warning=True),)
    again = "checkpoints are stored again" if state.has_run(record) else "the storage answers again"
    return state, (Outcome("StorageRestored", f"{name}: {again}", name),)


def restored_progress(state: SchedulerState, reported: Mapping[TaskId, Progress]) -> SchedulerState:
    """Return the state with stored progress of launches that are still current."""
    current = {record.id: reported[record.id] for record in state.stored.tasks.values() if record.id in reported}
    newest = max(current, key=lambda launch: current[launch].time, default=None)
    last = None if newest is None else (name_of(newest), current[newest].time)
    return state.with_process(progress=current, last_progress=last)


# --- Stages


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


class _Stages:
    """The decision on one event, stage by stage."""

    def __init__(self, state: SchedulerState, now: UnixTime, new_id: NewId, view: ComputedPlans | None) -> None:
        self.before, self.now, self.new_id = state, now, new_id
        self.decision, self._last_view = Decision(state), view

    @property
    def state(self) -> SchedulerState:
        """The state after the previous stages."""
        return self.decision.state

    @property
    def view(self) -> PlanView:
        """The plans of this state."""
        self._last_view = view = scheduling.view_of(self.state, self.decision.view or self._last_view)
        return view

    def add(self, decision: Decision) -> None:
        """Continue with the state of this decision."""
        self.decision = self.decision.followed_by(decision)


def handle(
    state: SchedulerState, event: events.Event, now: float, new_id: NewId, view: ComputedPlans | None = None
) -> Decision:
    """Decide on one event.

    Args:
        state: The state of the last decision.
        event: The event.
        now: Unix time.
        new_id: Returns a new unique string at each call.
        view: The plans of the last decision. They save work; the decision is the same without them.
    """
    stages = _Stages(state, now, new_id, view)
    is_refusal = isinstance(event, events.ExecutorFailed) and (event.has_wrong_digest or event.has_no_interpreter)
    if isinstance(event, _ALONE) and not is_refusal:
        stages.add(_react(stages, event))
        current = view
    else:
        _handle_whole(stages, event)
        current = stages.view
    request_id = event.request_id if isinstance(event, events.Request) else 0
    return replace(stages.decision, request_id=request_id, view=current)


def _handle_whole(stages: _Stages, event: events.Event) -> None:
    """Handle an event that has consequences for plans."""
    has_more = isinstance(event, events.StatusUpdated) and event.more
    if not has_more and stages.state.derived.delayed_tasks:
        stages.add(decide(recover.mark_ready(stages.state, stages.now)))
    if isinstance(event, events.Tick):
        _check_timeouts(stages)
    elif isinstance(event, events.OffersReceived):
        if stages.state.session.windows:
            stages.add(decide(recover.forget_windows(stages.state, event.offers)))
        if stages.state.spec.grows:
            stages.add(cluster_size.take_idle_agents(stages.state, event.offers, stages.now, stages.view))
        stages.add(_react(stages, event))
    else:
        stages.add(_react(stages, event))
    if stages.state.derived.state_counts.get(TaskState.FINISHED) and stages.state.stored.result is None:
        stages.add(status.conclude(stages.state, stages.now))
    if isinstance(event, events.InverseOffersReceived):
        _drain(stages)
    if has_more:
        _retain(stages)
    else:
        _follow_up(stages)


def _drain(stages: _Stages) -> None:
    if stages.state.session.windows:
        stages.add(recover.drain(stages.state, stages.now))


def _retain(stages: _Stages) -> None:
    if stages.state.stored.result is not None and stages.before.stored.result is None:
        stages.add(after_job.announce(stages.state))


def _check_timeouts(stages: _Stages) -> None:
    """Handle due timeouts; a stage is skipped if its part of the state is empty."""
    now = stages.now
    if stages.state.spec.finish.deadline is not None:
        stages.add(job_end.check_deadline(stages.state, now))
    if stages.state.session.connected and now >= stages.state.derived.next_check_at:
        _check_launches(stages)
    _drain(stages)
    if stages.state.spec.live:
        stages.add(live_workers.direct_chief(stages.state, now, stages.view))
    if stages.state.stored.resized.until is not None:
        stages.add(cluster_size.resize_at_checkpoint(stages.state, now))
    if stages.state.session.round.offers:
        stages.add(cluster_size.reduce_size(stages.state, now, stages.view.gangs))
        _place(stages)
        stages.add(rounds.expire(stages.state, now, stages.new_id))
    if stages.state.session.no_offers_since is not None:
        stages.add(rounds.warn_no_offers(stages.state, now, stages.view.gangs))
    if stages.state.session.connected:
        stages.add(reconcile.poll(stages.state, now))


def _check_launches(stages: _Stages) -> None:
    """Handle the launches that took too long to answer, start, join or return."""
    now, new_id = stages.now, stages.new_id
    state, overdue = startup_timeout.overdue_launches(stages.state, now)
    stages.add(decide(state))
    stages.add(startup_timeout.warn_no_server(stages.state, now))
    stages.add(startup_timeout.relaunch_late(stages.state, overdue[Wait.JOIN], now, new_id))
    if stages.state.stored.result is None:
        stages.add(status.expire_unreachable(stages.state, overdue[Wait.RETURN], now, new_id, stages.view))
        stages.add(status.expire_unstarted(stages.state, overdue[Wait.START], now, new_id, stages.view))
    stages.add(reconcile.ask_about(stages.state, overdue[Wait.ANSWER], now))


def _place(stages: _Stages) -> None:
    """Match held offers, and again after a launch, which may let others follow."""
    limit = stages.state.spec.hold_seconds
    stages.add(decide(rounds.with_gangs(stages.state, stages.view.gangs, stages.now)))
    while stages.view.gangs and stages.state.session.round.due_at(limit) <= stages.now:
        stages.add(rounds.match(stages.state, stages.view, stages.now, stages.new_id))


def _follow_up(stages: _Stages) -> None:
    """Handle the consequences of the new state, after every event."""
    now = stages.now
    if stages.state.session.connected:
        _place(stages)
    if JobKind.DISPATCHER in index_of(stages.state.spec).by_kind:
        stages.add(replacement.restart_readers(stages.state, stages.before, now))
    if stages.state.derived.idle_tasks:
        stages.add(operator_commands.resume_dependents(stages.state, now))
    if stages.state.stored.resized.count is not None:
        stages.add(cluster_size.restore_full_size(stages.state))
    if stages.state.derived.delayed_tasks:
        stages.add(decide(recover.mark_ready(stages.state, stages.now)))
    if stages.state.session.connected:
        stages.add(scheduling.advance(stages.state, now, stages.view))
    if stages.state.session.connected:
        tasks = stages.view.pending_tasks or cluster_size.growth(stages.state, now)
        stages.add(rounds.update_demand(stages.state, now, tasks, stages.view.gangs))
    _retain(stages)
    state = stages.state
    if not state.process.finished and (state.stored.result is not None or state.stored.removed):
        stages.add(job_end.advance(state, now))


def _react(stages: _Stages, event: events.Event) -> Decision:  # noqa: C901, RET503 - a case per event; no return
    """Handle the event itself."""
    state, now, new_id = stages.state, stages.now, stages.new_id
    match event:
        case events.ProgressReported() | events.UsageReported():
            return record_report(state, event, now)
        case events.SecretsRequested():
            return _on_secrets_requested(state, event, now)
        case events.ReloadSecrets() | events.AcknowledgeExposures():
            return secret_tokens.command(state, event)
        case events.ExecutorFailed() if event.has_wrong_digest or event.has_no_interpreter:
            return recover.on_executor_refused(state, event, now)
        case events.ExecutorFailed() | events.Tick():
            return decide(state)
        case events.FrameworksWait():
            return cluster_size.give_back(state, event.names, now)
        case events.StatusUpdated():
            return status.on_update(state, event.status, now, new_id, stages.view)
        case events.OffersReceived():
            return rounds.on_offers(state, event, now, stages.view.gangs)
        case events.ConnectionProblem():
            return connection_problems.handle(state, event, now, new_id, stages.view)
        case events.SharedUserFound():
            return secret_tokens.report_shared_user(state, event)
        case events.OfferRescinded():
            return rounds.on_rescinded(state, event.offer_id)
        case events.InverseOffersReceived():
            return recover.on_inverse_offers(state, event.offers)
        case events.InverseOfferRescinded():
            return recover.on_inverse_offer_rescinded(state, event.offer_id)
        case events.PlanCommand():
            return plan_commands.handle(state, event, stages.view)
        case events.PodCommand() | events.ExecRequested() | events.ScaleRequested():
            return operator_commands.handle(state, event, now)
        case events.StopRequested():
            return job_end.request_stop(state, event.reason, now)
        case events.FrameworkAdopted():
            return framework.adopt(state, event, now, new_id, stages.view)
        case events.ResetRequested():
            return framework.reset_framework(state)
        case events.AgentFailed():
            return rounds.on_agent_failed(state, event.agent_id)
        case events.Subscribed():
            return framework.on_subscribed(state, event, now, stages.view)
        case events.Disconnected() | events.SubscriptionRefused() | events.TornDown():
            return framework.on_disconnected(state, event, now)
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
    yield state.derived.next_check_at
    yield session.round.due_at(state.spec.hold_seconds)
    if session.round.offers:
        yield session.round.since + state.spec.hold_seconds
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
