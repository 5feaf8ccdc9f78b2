"""Suppress offers when no task is pending, and revive them for new pending tasks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tf_scheduler.core.plans.scheduling import Gang
from tf_scheduler.core.state.backoff import next_token_at, take_token
from tf_scheduler.core.state.reducer import decide
from tf_scheduler.model.effects import Decision, Revive, Suppress
from tf_scheduler.model.ids import TaskName
from tf_scheduler.model.offer import OfferRound
from tf_scheduler.model.state import SchedulerState

from .rounds import REFUSE_LONG, REFUSE_SHORT, declines, unreserve_unneeded


def update(state: SchedulerState, now: float, gangs: Iterable[Gang]) -> Decision:
    """Revive for new pending tasks; if none is pending, release offers and suppress."""
    names = pending_task_names(gangs)
    if names:
        return _revive(state, names, now)
    decision = _release_all(state, now) if state.session.offers or state.stored.reservations else decide(state)
    return decision.then(lambda after: _revive(after, names, now) if after.stored.reservations else _suppress(after))


def pending_task_names(gangs: Iterable[Gang]) -> frozenset[TaskName]:
    """Return the names of the tasks to place now."""
    return frozenset(task.name for gang in gangs for task in gang.tasks)


def _revive(state: SchedulerState, names: frozenset[TaskName], now: float) -> Decision:
    """Revive if offers are suppressed, or if declined offers may fit new tasks."""
    news = names - state.session.requested_tasks
    if not news and not state.session.suppressed:
        return decide(state.with_session(requested_tasks=names, revive_at=None))
    bucket = take_token(state.process.revive_tokens, now)
    if bucket is None:
        return decide(state.with_session(revive_at=next_token_at(state.process.revive_tokens, now)))
    fresh = replace(state.process.offer_round, failures=0, back_off_until=0.0)
    after = state.with_session(requested_tasks=names, suppressed=False, revive_at=None, no_offers_since=now)
    return decide(after.with_process(revive_tokens=bucket, offer_round=fresh), calls=(Revive(),))


def _release_all(state: SchedulerState, now: float) -> Decision:
    decision = unreserve_unneeded(state, tuple(state.session.offers.values()), (), now)
    left, seconds = decision.state, REFUSE_SHORT if decision.state.stored.reservations else REFUSE_LONG
    return decision.followed_by(decide(_without_round(left), calls=declines(list(left.session.offers), seconds)))


def _suppress(state: SchedulerState) -> Decision:
    after = _without_round(state).with_session(
        suppressed=True, requested_tasks=frozenset(), revive_at=None, no_offers_since=None, rejected_offers={}
    )
    return decide(after, calls=() if state.session.suppressed else (Suppress(),))


def _without_round(state: SchedulerState) -> SchedulerState:
    return state.with_session(offers={}, pending={}, round_started=None).with_process(offer_round=OfferRound())
