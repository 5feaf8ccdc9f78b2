"""The one door: an event happens to a state, and a decision comes out.

    event -> its handler -> plans (end what is outdated) -> demand (suppress or revive) -> finish (the end) -> Decision

Pure: the time and new ids are arguments, everything that shall happen is in the Decision.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tf_scheduler.model.effects import Decision, FrameworkRegistered, Outcome
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
    Refused,
    RenewSecrets,
    ResetRequested,
    SecretsAsked,
    StatusUpdated,
    StopRequested,
    Subscribed,
    Tick,
    TornDown,
)
from tf_scheduler.model.ids import TaskName
from tf_scheduler.model.inquiry import Inquiry
from tf_scheduler.model.state import SchedulerState

from . import (
    demand,
    ending,
    handover,
    keeping,
    maintenance,
    offers,
    operations,
    overdue,
    plans,
    progress,
    reconcile,
    removal,
    renew,
    rounds,
    shrink,
    status,
    taken,
)
from .recovery import heal, orders, pausing
from .reduce import decide, then

NewId = Callable[[], str]


def handle(state: SchedulerState, event: Event, now: float, new_id: NewId) -> Decision:
    """Decide on one event. `now` in seconds since the epoch; `new_id` gives a new unique string at each call."""
    if isinstance(event, ProgressReported):
        # For people only, and frequent: nothing follows from it.
        return progress.reported(state, event)
    if isinstance(event, SecretsAsked):
        return handover.asked(state, event, now)
    if isinstance(event, RenewSecrets):
        return renew.renew(state)
    if isinstance(event, ExecutorFailed):
        # A hint, one for each executor: what counts is the status of its task.
        return decide(state)
    if isinstance(event, StatusUpdated) and event.more:
        return _with_keeping(state, status.updated(state, event.status, now, new_id))
    decision = _handle(heal.ripen(state, now), event, now, new_id)
    decision = then(decision, lambda after: pausing.wake(after, now))
    decision = then(decision, shrink.grow)
    decision = then(decision, lambda after: decide(heal.ripen(after, now)))
    decision = then(decision, lambda after: plans.act(after, now))
    decision = then(decision, lambda after: demand.demand(after, now))
    decision = _with_keeping(state, decision)
    return then(decision, lambda after: ending.finish(after, now))


def _with_keeping(before: SchedulerState, decision: Decision) -> Decision:
    """With what is kept after the job, if its end was just decided."""
    decided = before.result is None and decision.state.result is not None
    return then(decision, keeping.told) if decided else decision


def _handle(state: SchedulerState, event: Event, now: float, new_id: NewId) -> Decision:
    match event:
        case Subscribed():
            return _subscribed(state, event, now)
        case OffersReceived():
            return offers.received(state, event.offers, now, new_id)
        case OfferRescinded():
            return offers.rescinded(state, event.offer_id)
        case InverseOffersReceived():
            return then(maintenance.asked(state, event.offers), lambda after: maintenance.leave(after, now))
        case InverseOfferRescinded():
            return maintenance.cancelled(state, event.offer_id)
        case StatusUpdated():
            return status.updated(state, event.status, now, new_id)
        case OperationUpdated():
            return operations.updated(state, event.status, now, new_id)
        case Tick():
            return _ticked(state, now, new_id)
        case PlanCommand():
            return plans.command(state, event)
        case PodCommand():
            return orders.order(state, event, now)
        case StopRequested():
            return ending.stop(state, event.reason, now)
        case ResetRequested():
            return removal.reset(state)
        case Disconnected() | Refused() | TornDown():
            return _left(state, event)
        case AgentFailed():
            told = Outcome(f"agent {event.agent_id} is gone", warning=True)
            return decide(offers.agent_gone(state, event.agent_id), outcomes=(told,))
    raise TypeError(event)


def _left(state: SchedulerState, event: Disconnected | Refused | TornDown) -> Decision:
    """The connection is lost, for now or for good."""
    match event:
        case TornDown():
            return removal.removed(state)
        case Refused() if event.removed:
            return removal.removed(replace(_without_connection(state), refused=event.message))
        case Disconnected():
            # Also after TEARDOWN: it may be lost with the connection. The next subscription tells.
            told = Outcome(f"the connection to Mesos is lost: {event.reason}", warning=True)
            return decide(_without_connection(state), outcomes=(told,))
        case Refused():
            told = Outcome(f"Mesos ended the subscription: {event.message}", warning=True)
            return decide(replace(_without_connection(state), refused=event.message, over=True), outcomes=(told,))
    raise TypeError(event)


def _ticked(state: SchedulerState, now: float, new_id: NewId) -> Decision:
    """Whatever is due. Held offers are looked at again: a task may have waited for its old address long enough."""
    decision = then(overdue.ended(state, now), lambda after: status.given_up(after, now, new_id))
    decision = then(decision, lambda after: maintenance.leave(after, now))
    decision = then(decision, lambda after: shrink.shrink(after, now))
    if state.offers and state.recoveries:
        decision = then(decision, lambda after: offers.received(after, (), now, new_id))
    decision = then(decision, lambda after: taken.due(after, now))
    decision = then(decision, lambda after: rounds.release(after, now, new_id))
    decision = then(decision, lambda after: operations.due(after, now))
    return then(decision, lambda after: reconcile.due(after, now))


def _subscribed(state: SchedulerState, event: Subscribed, now: float) -> Decision:
    """A new subscription knows neither our offers nor that we suppressed: SUBSCRIBE itself un-suppresses."""
    fresh = replace(_without_connection(state), connected=True, connected_at=now, region=event.region)
    known = state.framework_id == event.framework_id
    # What an earlier life declined may be filtered still, if Mesos did not see it die: then only REVIVE helps.
    asked_for = frozenset[TaskName]() if known else demand.names_wanted(fresh)
    fresh = replace(fresh, asked_for=asked_for, unoffered_since=now, inquiry=Inquiry(began_at=now))
    registered = () if known else (FrameworkRegistered(event.framework_id),)
    told = Outcome(f"subscribed as framework {event.framework_id}")
    subscribed = decide(fresh, *registered, outcomes=(told,))
    if not known:
        return subscribed
    asked = then(subscribed, lambda after: reconcile.ask(after, now))
    return then(asked, lambda after: operations.ask(after, now))


def _without_connection(state: SchedulerState) -> SchedulerState:
    return replace(
        state,
        connected=False,
        suppressed=False,
        offers={},
        gathering=replace(state.gathering, started=None),
        unoffered_since=None,
        passed={},
        glimpses={},
        windows={},
        returned=frozenset(),
        missed={},
        pending={},
        kills={},
        kill_at=0.0,
        asked={},
        teardown_at=None,
    )
