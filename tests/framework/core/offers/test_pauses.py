"""Offers after a match that left tasks pending: when they are matched."""

import math
from itertools import count

import pytest

from builders import a_job, a_spec, an_offer, needs, with_fields
from tf_scheduler.core.offers.rounds import REFUSE_LONG
from tf_scheduler.core.scheduler import handle, next_deadline
from tf_scheduler.model.effects import Decision, Decline
from tf_scheduler.model.events import Event, OffersReceived, Subscribed, Tick
from tf_scheduler.model.ids import OfferId
from tf_scheduler.model.offer import MATCH_INTERVAL, PARTS_PER_SECOND, Offer, OfferRound, Unavailability
from tf_scheduler.model.spec import JobKind
from tf_scheduler.model.state import SchedulerState

NOW = 1000.0


def decide(state: SchedulerState, event: Event, now: float = NOW) -> Decision:
    return handle(state, event, now, map(str, count()).__next__)


def after(state: SchedulerState, *offers: Offer, now: float = NOW) -> SchedulerState:
    """Return the state after these offers, one by one."""
    for offer in offers:
        state = decide(state, OffersReceived((offer,)), now).state
    return state


def waiting() -> SchedulerState:
    """Return a connected service of four workers that were never launched."""
    spec = a_spec(jobs=(a_job(JobKind.WORKER, 4, needs=needs(cpus=0.9)),))
    return decide(SchedulerState(spec), Subscribed("fw-1")).state


def one(number: int, **options) -> Offer:
    """Return an offer for one of the workers."""
    return an_offer(f"offer-{number}", f"agent-{number}", **{"cpus": 1.9, **options})


def matches(state: SchedulerState) -> int:
    return len(state.process.evaluations)


def test_offers_are_matched_after_a_pause() -> None:
    """The first is matched at once; no further event is necessary for the others."""
    state = after(waiting(), one(1), one(2), one(3))
    assert (3, 1, NOW + 5 / PARTS_PER_SECOND) == (len(state.session.round.offers), matches(state), next_deadline(state))

    state = decide(state, Tick(), next_deadline(state) or 0.0).state

    assert (2, math.inf) == (matches(state), state.session.round.match_at)


@pytest.mark.parametrize(("held", "pause"), [(20, 0.01), (1000, 0.5), (9000, MATCH_INTERVAL)])
def test_pause_grows_with_the_cost_of_a_match(held: int, pause: float) -> None:
    """In proportion to the offers that are held, up to its maximum."""
    offers = (an_offer(f"offer-{number}") for number in range(held))
    failed = OfferRound().hold(offers, NOW).failed((), {}, NOW, again=NOW)

    assert NOW + pause == failed.due_at(hold_seconds=30.0)


def test_offer_that_completes_the_gang_is_used_after_the_pause() -> None:
    state = after(waiting(), one(1), one(2), one(3), one(4))

    state = decide(state, Tick(), next_deadline(state) or 0.0).state

    assert (4, None) == (len(state.stored.tasks), state.session.round.gangs or None)


def test_held_offers_are_matched_with_other_gangs() -> None:
    """A plan or a finished task may have changed the gangs."""
    state = with_fields(after(waiting(), one(1)), gangs=(), pause_until=NOW)

    assert 2 == matches(decide(state, Tick()).state)


def test_useless_offers_are_declined_after_the_pause() -> None:
    state = after(waiting(), one(1), one(2), one(3, cpus=0.1))

    decision = decide(state, Tick(), next_deadline(state) or 0.0)

    assert [Decline((OfferId("offer-3"),), REFUSE_LONG)] == list(decision.calls)
    held = decision.state.session.round
    assert (2, 2, ["agent-3-id"]) == (matches(decision.state), len(held.offers), list(held.unusable))


@pytest.mark.parametrize(("end", "seconds"), [(NOW + 30, 30.0), (NOW + 90_000, 3600.0), (None, 3600.0), (NOW - 1, 1.0)])
def test_offer_in_maintenance_is_refused_until_its_end(end: float | None, seconds: float) -> None:
    """A refusal for an hour would outlast a short window."""
    state, window = with_fields(after(waiting(), one(1)), pause_until=NOW), Unavailability(NOW - 600, end)

    decision = decide(state, OffersReceived((one(3, cpus=0.1, unavailability=window),)))

    assert [Decline((OfferId("offer-3"),), seconds)] == list(decision.calls)
