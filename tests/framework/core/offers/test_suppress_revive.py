"""Offers are suppressed while no task is pending, and revived for new tasks."""

from builders import a_running_state, a_spec, an_offer, with_fields
from tf_scheduler.core.offers.rounds import REVIVE_BURST, REVIVE_INTERVAL, update_demand
from tf_scheduler.core.plans.scheduling import view_of
from tf_scheduler.model.effects import Decline, Revive, Suppress
from tf_scheduler.model.offer import OfferRound
from tf_scheduler.model.state import SchedulerState

PENDING = with_fields(SchedulerState(a_spec()), connected=True)
NAMES = view_of(PENDING).pending_tasks


def update(state, now, names):
    return update_demand(state, now, names, view_of(state).gangs)


def test_no_pending_task_suppresses_once() -> None:
    decision = update(a_running_state(a_spec()), 1.0, frozenset())

    assert (Suppress(),) == decision.calls
    assert () == update(decision.state, 2.0, frozenset()).calls


def test_held_offers_are_declined_before_suppressing() -> None:
    offer = an_offer()
    state = with_fields(a_running_state(a_spec()), round=OfferRound().hold([offer], 1.0))

    decision = update(state, 2.0, frozenset())

    assert [Decline, Suppress] == [type(call) for call in decision.calls]
    assert OfferRound() == decision.state.session.round


def test_pending_task_revives_once() -> None:
    decision = update(PENDING, 1.0, NAMES)

    assert (Revive(),) == decision.calls
    assert () == update(decision.state, 2.0, NAMES).calls


def test_revives_after_a_burst_are_five_seconds_apart() -> None:
    """Each costs the master an allocation for all agents."""
    state = PENDING
    for _ in range(REVIVE_BURST):
        decision = update(with_fields(state, requested_tasks=frozenset()), 1.0, NAMES)
        assert (Revive(),) == decision.calls
        state = decision.state
    state, due = with_fields(state, requested_tasks=frozenset()), 1.0 + REVIVE_INTERVAL

    early = update(state, due - 0.1, NAMES)
    later = update(early.state, due, NAMES)

    assert ((), due) == (early.calls, early.state.session.revive_at)
    assert ((Revive(),), None) == (later.calls, later.state.session.revive_at)
    assert () == update(with_fields(later.state, requested_tasks=frozenset()), due + 0.1, NAMES).calls


def test_revive_starts_the_rounds_afresh() -> None:
    """The back-off of earlier rounds does not delay new tasks."""
    state = with_fields(PENDING, failures=3, back_off_until=90.0, suppressed=True)

    after = update(state, 1.0, NAMES).state

    assert OfferRound() == after.session.round
    assert (False, None, 1.0) == (
        after.session.suppressed,
        after.session.revive_at,
        after.session.no_offers_since,
    )


def test_suppressed_offers_are_revived_for_known_tasks() -> None:
    known = with_fields(PENDING, requested_tasks=NAMES, revive_at=9.0)

    assert (Revive(),) == update(with_fields(known, suppressed=True), 1.0, NAMES).calls
    quiet = update(known, 1.0, NAMES)
    assert ((), None, NAMES) == (quiet.calls, quiet.state.session.revive_at, quiet.state.session.requested_tasks)


def test_suppressed_session_forgets_what_was_pending() -> None:
    state = with_fields(a_running_state(a_spec()), reasons={"worker-0": ()}, no_offers_since=1.0, revive_at=5.0)

    session = update(state, 2.0, ()).state.session

    assert (OfferRound(), None, None) == (session.round, session.no_offers_since, session.revive_at)
    assert session.suppressed
