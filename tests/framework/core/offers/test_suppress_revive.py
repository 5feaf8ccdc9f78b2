"""Offers are suppressed while no task is pending, and revived for new tasks."""

from builders import a_running_state, a_spec, an_offer, with_fields
from tf_scheduler.core.offers.rounds import update_demand as update
from tf_scheduler.core.plans.scheduling import view_of
from tf_scheduler.core.state.backoff import SECONDS_PER_TOKEN
from tf_scheduler.model.effects import Decline, Revive, Suppress
from tf_scheduler.model.offer import TokenBucket
from tf_scheduler.model.state import SchedulerState

PENDING = with_fields(SchedulerState(a_spec()), connected=True)
NAMES = view_of(PENDING).pending_tasks


def test_no_pending_task_suppresses_once() -> None:
    decision = update(a_running_state(a_spec()), 1.0, frozenset())

    assert (Suppress(),) == decision.calls
    assert () == update(decision.state, 2.0, frozenset()).calls


def test_held_offers_are_declined_before_suppressing() -> None:
    offer = an_offer()
    state = with_fields(a_running_state(a_spec()), offers={offer.id: offer}, round_started=1.0)

    decision = update(state, 2.0, frozenset())

    assert [Decline, Suppress] == [type(call) for call in decision.calls]
    assert ({}, None) == (decision.state.session.offers, decision.state.session.round_started)


def test_pending_task_revives_once() -> None:
    decision = update(PENDING, 1.0, NAMES)

    assert (Revive(),) == decision.calls
    assert () == update(decision.state, 2.0, NAMES).calls


def test_revive_waits_for_token() -> None:
    state = with_fields(PENDING, revive_tokens=TokenBucket(0.0, 1.0, 1.0))

    decision = update(state, 2.0, NAMES)

    assert ((), 1.0 + SECONDS_PER_TOKEN) == (decision.calls, decision.state.session.revive_at)
