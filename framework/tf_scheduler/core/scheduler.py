"""The one door: an event happens to a state, and a decision comes out.

    event -> its steps -> plans (end what is outdated) -> demand (suppress or revive) -> finish (the end) -> Decision

Each step sees the state that the one before it left, and is entered only when its part of that state holds something.

Pure: the time and new ids are arguments, everything that shall happen is in the Decision.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from tf_scheduler.model.effects import ComputedPlans, Decision, FrameworkRegistered, Outcome
from tf_scheduler.model.events import (
    AgentFailed,
    Disconnected,
    Event,
    ExecutorFailed,
    InverseOfferRescinded,
    InverseOffersReceived,
    OfferRescinded,
    OffersReceived,
    OperationUpdated,
    PlanCommand,
    PodCommand,
    ProgressReported,
    ReloadSecrets,
    Request,
    ResetRequested,
    SecretsRequested,
    StatusUpdated,
    StopRequested,
    Subscribed,
    SubscriptionRefused,
    Tick,
    TornDown,
)
from tf_scheduler.model.ids import TaskId, TaskName, name_of
from tf_scheduler.model.state import PendingReconciliation, SchedulerState, SessionState
from tf_scheduler.model.task import Progress, TaskState

from . import framework_removal, job_end
from .launch import secret_tokens
from .offers import operations, reservations, rounds, suppress_revive
from .offers.reservations import settling_until, unreachable_at
from .offers.rounds import NO_OFFER_WARNING_SECONDS
from .plans import commands, execute, scheduling
from .plans.execute import KILL_INTERVAL
from .plans.queries import teardown_due
from .plans.scheduling import PlanView
from .recovery import elastic, maintenance, operator_commands, reconcile, recover, startup_timeout, status
from .state import after_job, pause
from .state.reducer import assert_never, decide

# --- progress
# What executors tell of the training, kept for those who look.


def record_progress(state: SchedulerState, event: ProgressReported) -> Decision:
    """Keep it, unless it is of another launch, or older than what we have."""
    record = state.stored.tasks.get(name_of(event.task_id))
    known = state.process.progress.get(event.task_id)
    if record is None or record.id != event.task_id or (known and known.sequence >= event.progress.sequence):
        return decide(state)
    return decide(
        replace(
            state, process=replace(state.process, progress={**state.process.progress, event.task_id: event.progress})
        )
    )


def current_progress(state: SchedulerState, heard: Mapping[TaskId, Progress]) -> dict[TaskId, Progress]:
    """What was heard of launches that are still those of their tasks."""
    return {record.id: heard[record.id] for record in state.stored.tasks.values() if record.id in heard}


def describe_progress(progress: Progress) -> str:
    """`step 120 of 500, 32.1 examples/s, loss 0.25, 12 s left`"""
    steps = f"step {progress.step}" if progress.total is None else f"step {progress.step} of {progress.total}"
    speed, unit = progress.examples_per_second, "examples"
    if speed is None:
        speed, unit = progress.steps_per_second, "steps"
    left = progress.seconds_left
    parts = (
        "" if progress.step is None else steps,
        "" if speed is None else f"{speed:.1f} {unit}/s",
        "" if progress.loss is None else f"loss {progress.loss:.4g}",
        "" if left is None else f"{left:.0f} s left",
    )
    return ", ".join(part for part in parts if part)


# --- scheduler


NewId = Callable[[], str]


@dataclass(slots=True)
class StepContext:
    """What the steps of one decision get in addition to the state."""

    #: The state before the event.
    before: SchedulerState
    #: Seconds since the epoch.
    now: float
    #: Returns a new unique string at each call.
    new_id: NewId
    #: The plans of the state that the step gets.
    view: PlanView


@dataclass(frozen=True, slots=True)
class Step:
    """One part of a decision; skipped unless `when` is true of the state that the step before it left."""

    function: Callable[[SchedulerState, StepContext], Decision]
    when: Callable[[SchedulerState], object] = lambda _: True


#: Nothing follows from these for the plans. Of an ExecutorFailed, what counts is the status of its task.
_ALONE = (ProgressReported, SecretsRequested, ReloadSecrets, ExecutorFailed)
_RIPEN = Step(
    lambda state, turn: decide(recover.mark_ready(state, turn.now)), when=lambda state: state.stored.recoveries
)
_RETAIN = Step(
    lambda state, turn: after_job.announce(state) if turn.before.stored.result is None else decide(state),
    when=lambda state: state.stored.result is not None,
)
_LEAVE = Step(lambda state, turn: maintenance.drain(state, turn.now), when=lambda state: state.session.windows)
#: What is due after some time. Held offers are matched again: the wait for a previous address may be over.
_TICK: tuple[Step, ...] = (
    Step(
        lambda state, turn: job_end.check_deadline(state, turn.now),
        when=lambda state: state.spec.finish.deadline is not None,
    ),
    Step(
        lambda state, turn: startup_timeout.expire(state, turn.now, turn.new_id),
        when=lambda state: state.derived.starting_launches,
    ),
    Step(
        lambda state, turn: status.expire_unreachable(state, turn.now, turn.new_id, turn.view),
        when=lambda state: TaskState.UNREACHABLE in state.derived.state_counts,
    ),
    Step(
        lambda state, turn: status.expire_unstarted(state, turn.now, turn.new_id, turn.view),
        when=lambda state: state.derived.silent_launches,
    ),
    _LEAVE,
    Step(
        lambda state, turn: elastic.reduce_size(state, turn.now, turn.view.gangs),
        when=lambda state: state.session.offers,
    ),
    Step(
        lambda state, turn: rounds.on_offers(state, (), turn.now, turn.new_id, turn.view),
        when=lambda state: state.session.offers and state.stored.recoveries,
    ),
    Step(
        lambda state, turn: reservations.expire_lost(state, turn.now),
        when=lambda state: state.session.missing_reservations,
    ),
    Step(
        lambda state, turn: rounds.expire(state, turn.now, turn.new_id, turn.view.gangs),
        when=lambda state: (
            state.stored.reservations
            or state.session.round_started is not None
            or state.session.no_offers_since is not None
        ),
    ),
    Step(lambda state, turn: operations.poll(state, turn.now), when=lambda state: state.stored.reservations),
    Step(lambda state, turn: reconcile.poll(state, turn.now), when=lambda state: state.session.connected),
)
#: What follows from the new state, whatever the event was.
_FOLLOW_UP: tuple[Step, ...] = (
    Step(lambda state, turn: pause.resume_dependents(state, turn.now), when=lambda state: state.derived.idle_tasks),
    Step(lambda state, _: elastic.restore_full_size(state), when=lambda state: state.stored.full_spec is not None),
    _RIPEN,
    Step(lambda state, turn: execute.advance(state, turn.now, turn.view), when=lambda state: state.session.connected),
    Step(
        lambda state, turn: suppress_revive.update(state, turn.now, turn.view.gangs),
        when=lambda state: state.session.connected,
    ),
    _RETAIN,
    Step(
        lambda state, turn: job_end.advance(state, turn.now),
        when=lambda state: not state.process.finished and (state.stored.result is not None or state.stored.removed),
    ),
)


def handle(
    state: SchedulerState, event: Event, now: float, new_id: NewId, view: ComputedPlans | None = None
) -> Decision:
    """Decide on one event.

    Args:
        state: What the last decision left.
        event: What has happened.
        now: Seconds since the epoch.
        new_id: Returns a new unique string at each call.
        view: The view of the last decision, which saves work; the decision is the same without it.
    """
    decision, turn = Decision(state), StepContext(state, now, new_id, scheduling.view_of(state, view))
    for step in _steps(event):
        if step.when(decision.state):
            turn.view = scheduling.view_of(decision.state, decision.view or turn.view)
            decision = decision.followed_by(step.function(decision.state, turn))
    request_id = event.request_id if isinstance(event, Request) else 0
    return replace(decision, request_id=request_id, view=scheduling.view_of(decision.state, decision.view or turn.view))


def _steps(event: Event) -> tuple[Step, ...]:
    """The steps of one event, in their order."""
    if isinstance(event, _ALONE):
        return _reaction(event)
    if isinstance(event, StatusUpdated) and event.more:
        return (*_reaction(event), _RETAIN)
    return (_RIPEN, *_reaction(event), *_FOLLOW_UP)


def _reaction(event: Event) -> tuple[Step, ...]:  # noqa: RET503 - assert_never does not return
    """The steps of the event itself, before what follows from the new state."""
    match event:
        case ProgressReported():
            return (Step(lambda state, _: record_progress(state, event)),)
        case SecretsRequested():
            return (Step(lambda state, turn: secret_tokens.redeem(state, event, turn.now)),)
        case ReloadSecrets():
            return (Step(lambda state, _: secret_tokens.reload_secrets(state)),)
        case ExecutorFailed():
            return ()
        case Tick():
            return _TICK
        case StatusUpdated():
            return (Step(lambda state, turn: status.on_update(state, event.status, turn.now, turn.new_id, turn.view)),)
        case OffersReceived():
            return (Step(lambda state, turn: rounds.on_offers(state, event.offers, turn.now, turn.new_id, turn.view)),)
        case OfferRescinded():
            return (Step(lambda state, _: rounds.on_rescinded(state, event.offer_id)),)
        case InverseOffersReceived():
            return (Step(lambda state, _: maintenance.on_inverse_offers(state, event.offers)), _LEAVE)
        case InverseOfferRescinded():
            return (Step(lambda state, _: maintenance.on_rescinded(state, event.offer_id)),)
        case OperationUpdated():
            return (Step(lambda state, turn: operations.on_status(state, event.status, turn.now, turn.new_id)),)
        case PlanCommand():
            return (Step(lambda state, turn: commands.handle(state, event, turn.view)),)
        case PodCommand():
            return (Step(lambda state, turn: operator_commands.handle(state, event, turn.now)),)
        case StopRequested():
            return (Step(lambda state, turn: job_end.request_stop(state, event.reason, turn.now)),)
        case ResetRequested():
            return (Step(lambda state, _: framework_removal.reset_framework(state)),)
        case AgentFailed():
            return (Step(lambda state, _: rounds.on_agent_failed(state, event.agent_id)),)
        case Subscribed():
            return (Step(lambda state, turn: _subscribed(state, event, turn.now, turn.view)),)
        case Disconnected() | SubscriptionRefused() | TornDown():
            return (Step(lambda state, _: _left(state, event)),)
        case _:
            assert_never(event)


def _left(state: SchedulerState, event: Disconnected | SubscriptionRefused | TornDown) -> Decision:
    """The connection is lost, for now or for good."""
    if isinstance(event, TornDown):
        return framework_removal.on_removed(state)
    after = replace(state, session=SessionState())
    if isinstance(event, Disconnected):
        # Also after TEARDOWN: it may be lost with the connection. The next subscription shows whether it was.
        return decide(after, outcomes=(Outcome(f"the connection to Mesos is lost: {event.reason}", warning=True),))
    after = replace(after, process=replace(after.process, refused=event.message))
    if event.is_framework_removed:
        return framework_removal.on_removed(after)
    ended = Outcome(f"Mesos ended the subscription: {event.message}", warning=True)
    return decide(replace(after, process=replace(after.process, finished=True)), outcomes=(ended,))


def _subscribed(state: SchedulerState, event: Subscribed, now: float, view: PlanView) -> Decision:
    """A new subscription knows neither our offers nor that we suppressed: SUBSCRIBE itself un-suppresses."""
    known = state.stored.framework_id == event.framework_id
    # Mesos may still apply filters of an earlier process whose end it did not see: only REVIVE clears them.
    requested_tasks = frozenset[TaskName]() if known else suppress_revive.pending_task_names(view.gangs)
    session = SessionState(
        connected=True,
        connected_at=now,
        region=event.region,
        requested_tasks=requested_tasks,
        no_offers_since=now,
        reconciliation=PendingReconciliation(started_at=now),
    )
    fresh = replace(state, session=session)
    registered = () if known else (FrameworkRegistered(event.framework_id),)
    told = Outcome(f"subscribed as framework {event.framework_id}")
    subscribed = decide(fresh, *registered, outcomes=(told,))
    if not known:
        return subscribed
    asked = subscribed.then(lambda after: reconcile.request(after, now))
    return asked.then(lambda after: operations.reconcile(after, now)) if state.stored.reservations else asked


# --- deadlines
# When the state wants a Tick. There is no polling: no deadline, no Tick.


def next_deadline(state: SchedulerState) -> float | None:
    """Seconds since the epoch of the earliest deadline; None when only an event can change anything."""
    return min(_deadlines(state), default=None) if not state.process.finished else None


def _deadlines(state: SchedulerState) -> Iterator[float]:
    if not state.session.connected:
        return
    if state.session.round_started is not None:
        yield state.session.round_started + state.spec.gang.hold_seconds
    if state.session.no_offers_since is not None:
        yield state.session.no_offers_since + NO_OFFER_WARNING_SECONDS
    if state.session.revive_at is not None:
        yield state.session.revive_at
    for item in state.stored.reservations.values():
        yield (
            unreachable_at(state, item)
            if item.id in state.process.expired_reservations
            else min(item.deadline, unreachable_at(state, item))
        )
        if item.id in state.session.unreserved:
            yield settling_until(state)
    yield from reconcile.deadlines(state)
    yield from operations.deadlines(state)
    yield from reservations.deadlines(state)
    if state.stored.result is None:
        yield from recover.deadlines(state)
        yield from maintenance.deadlines(state)
        yield from job_end.deadlines(state)
    else:
        yield from after_job.deadlines(state)
    if state.session.next_kill_at:
        yield state.session.next_kill_at
    if state.session.teardown_at is not None:
        yield state.session.teardown_at + KILL_INTERVAL
    elif (
        state.stored.result is not None
        and state.process.unreserved_at
        and not after_job.keeps_service(state)
        and teardown_due(state)
    ):
        yield settling_until(state)
