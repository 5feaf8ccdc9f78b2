"""Offers: held for a short while until a whole gang fits, else given back. Every offer is answered once.

round      from the first offer that is held, for `gang.hold_seconds`; then everything is given back at once
back-off   after a round without success: offers are declined until it is over, so that others have their turn
demand     suppress when nothing is to be placed; revive, with a token bucket, when something new is
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from tf_scheduler.model.effects import Accept, Decision, Outcome, ReservationDropped, TaskLaunched
from tf_scheduler.model.evaluation import KEPT_EVALUATIONS, Evaluation, Gathering
from tf_scheduler.model.ids import AgentId, OfferId
from tf_scheduler.model.offer import HeldOffer, Offer
from tf_scheduler.model.state import SchedulerState

from . import glimpses, maintenance, taken
from .attempt import Attempt, attempt, useful
from .declines import REFUSE_LONG, REFUSE_SHORT, declines
from .launch import accepts, plan_launches
from .plans import Gang, wanted
from .reduce import decide, then
from .rounds import give_back, holding

NewId = Callable[[], str]


def received(state: SchedulerState, offers: Iterable[Offer], now: float, new_id: NewId) -> Decision:
    """Place the gangs that fit now; hold what may help the others for a while; decline what nobody needs."""
    offers = tuple(offers)
    gangs = wanted(state)
    state = replace(state, unoffered_since=None) if offers else state
    state = glimpses.seen(state, offers, now)
    seen = taken.looked_for(maintenance.seen(state, offers), offers, now)
    given_back = give_back(seen, offers, gangs, now)
    answered = {offer_id for call in given_back.calls if isinstance(call, Accept) for offer_id in call.offer_ids}
    rest = tuple(offer for offer in offers if offer.id not in answered)
    return then(given_back, lambda after: _consider(after, rest, gangs, now, new_id))


def rescinded(state: SchedulerState, offer_id: OfferId) -> Decision:
    """Forget the offer; a launch on it that is under way comes back as TASK_DROPPED."""
    return decide(holding(state, {key: held for key, held in state.offers.items() if key != offer_id}))


def agent_gone(state: SchedulerState, agent_id: AgentId) -> SchedulerState:
    """Without what is remembered of its offers."""
    passed = {key: offer for key, offer in state.passed.items() if key != agent_id}
    return glimpses.gone(replace(state, passed=passed), agent_id)


def _consider(
    state: SchedulerState, offers: Sequence[Offer], gangs: Sequence[Gang], now: float, new_id: NewId
) -> Decision:
    wait = state.gathering.back_off_until - now
    if not gangs or wait > 0:
        return decide(state, calls=declines([offer.id for offer in offers], wait if gangs else REFUSE_LONG))
    held = {**state.offers, **{offer.id: HeldOffer(offer, now) for offer in offers}}
    found = attempt(state, gangs, [entry.offer for entry in held.values()], now)
    state = _noted(holding(state, held, now), found.evaluation(now, len(held)))
    return then(_launch(state, found, now, new_id), lambda after: _settle(after, gangs, offers, now))


def _launch(state: SchedulerState, found: Attempt, now: float, new_id: NewId) -> Decision:
    """Launch the gangs that are complete; say why the others wait."""
    state = replace(state, pending=found.reasons)
    if not found.placements:
        return decide(state)
    launches = plan_launches(state, found.placements, now, new_id)
    calls = accepts(found.placements, launches, REFUSE_SHORT if found.reasons else REFUSE_LONG)
    used = {offer_id for call in calls for offer_id in call.offer_ids}
    told = (
        Outcome(
            f"{item.task.name} goes to {item.agent.hostname} at {launch.record.address}: {item.why}", item.task.name
        )
        for item, launch in zip(found.placements, launches, strict=True)
    )
    return decide(
        replace(state, offers={key: held for key, held in state.offers.items() if key not in used}),
        *(TaskLaunched(launch.record) for launch in launches),
        *(ReservationDropped(item.reservation) for item in found.placements if item.reservation),
        calls=calls,
        outcomes=tuple(told),
    )


def _settle(state: SchedulerState, gangs: Sequence[Gang], fresh: Sequence[Offer], now: float) -> Decision:
    """End the round when no task waits; else decline those of the new offers that none of the waiting could use."""
    if not state.pending:
        return decide(replace(state, gathering=Gathering(), passed={}))
    waiting = [gang for gang in gangs if any(task.name in state.pending for task in gang.tasks)]
    agents = useful(state, waiting, fresh, now)
    useless = [offer.id for offer in fresh if offer.id in state.offers and offer.agent_id not in agents]
    passed = {offer.agent_id: offer for offer in fresh if offer.agent_id not in agents}
    kept = {key: held for key, held in state.offers.items() if key not in set(useless)}
    after = replace(holding(state, kept), passed={**state.passed, **passed})
    return decide(after, calls=declines(useless, REFUSE_LONG))


def _noted(state: SchedulerState, evaluation: Evaluation) -> SchedulerState:
    return replace(state, evaluations=(*state.evaluations, evaluation)[-KEPT_EVALUATIONS:])
