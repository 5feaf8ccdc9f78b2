"""Reports of refused calls and of clocks that differ."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from builders import a_spec, a_status, an_offer, with_fields
from tf_executor.contract.states import TaskState
from tf_scheduler.api.views import service
from tf_scheduler.api.views.base import Snapshot
from tf_scheduler.core.connection_problems import (
    REPORT_AGAIN,
    call_name,
    describe,
    refusal_message,
)
from tf_scheduler.core.scheduler import handle
from tf_scheduler.model.effects import (
    Accept,
    AcceptInverseOffers,
    Acknowledge,
    Decision,
    Decline,
    Kill,
    Reconcile,
    Suppress,
    Teardown,
)
from tf_scheduler.model.events import (
    CallFailed,
    CallsAccepted,
    ClockDrifted,
    ClockStepped,
    Event,
    EventSkipped,
    FrameworksHidden,
    OffersReceived,
    StatusUpdated,
    Subscribed,
)
from tf_scheduler.model.ids import FrameworkId
from tf_scheduler.model.state import SchedulerState

METRICS = Path(__file__).parents[3] / "docs" / "reference" / "metrics.md"
STATE = with_fields(SchedulerState(a_spec()), framework_id="fw-1", connected=True, suppressed=True)
#: 14:03:20 UTC.
NOW = 14 * 3600 + 200.0
KILL = Kill("worker-0__1", "agent-1")
REFUSED = CallFailed(KILL, "Unauthorized", 401)


def play(state: SchedulerState, *events: Event, now: float = NOW) -> Decision:
    """Handle the events; return the last decision with all outcomes."""
    decision = Decision(state)
    for event in events:
        decision = decision.followed_by(handle(decision.state, event, now, lambda: "id"))
    return decision


def reasons(state: SchedulerState) -> list[str]:
    return list(service.health(Snapshot(state), {"verbose": True}).body["reasons"])


def test_refused_call_is_reported_once() -> None:
    decision = play(STATE, REFUSED, REFUSED, CallFailed(Suppress(), "Unauthorized", 401))

    (outcome,) = decision.outcomes
    assert ("CallRefused", True) == (outcome.kind, outcome.warning)
    assert "Mesos refused KILL: 401 Unauthorized" in outcome.message
    metric = outcome.message.split()[-1]
    assert f"`{metric}`" in METRICS.read_text()
    assert 3 == decision.state.process.refused_calls.count
    assert "Mesos has refused calls since 14:03 UTC: 401 Unauthorized" == refusal_message(decision.state)


def test_each_cause_is_reported() -> None:
    """Another status may need another remedy."""
    decision = play(STATE, REFUSED, CallFailed(KILL, "Forbidden", 403), REFUSED)

    assert 2 == len(decision.outcomes)
    assert "401 Unauthorized" == decision.state.process.refused_calls.cause


def test_cause_is_reported_again_after_a_while() -> None:
    before = play(STATE, REFUSED).state

    assert () == play(before, REFUSED, now=NOW + REPORT_AGAIN - 1).outcomes
    assert 1 == len(play(before, REFUSED, now=NOW + REPORT_AGAIN).outcomes)


def test_accepted_call_ends_the_refusals() -> None:
    decision = play(STATE, REFUSED, REFUSED, CallsAccepted())

    assert "" == refusal_message(decision.state)
    assert "Mesos accepts calls again; it had refused 2 since 14:03 UTC" == decision.outcomes[-1].message


def test_alternating_answers_are_not_reported_each_time() -> None:
    """A master that refuses only some calls must not fill the journal."""
    decision = play(STATE, *(REFUSED, CallsAccepted()) * 50)

    assert ["CallRefused", "CallsAccepted"] == [outcome.kind for outcome in decision.outcomes]


def test_health_reports_refused_calls() -> None:
    state = play(STATE, REFUSED).state

    assert 317 == service.health(Snapshot(state), {}).code
    assert "Mesos has refused calls since 14:03 UTC: 401 Unauthorized; running tasks continue" in reasons(state)
    assert 317 != service.health(Snapshot(play(state, CallsAccepted()).state), {}).code


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (45.2, "is 45 s behind that of the Mesos master"),
        (0.6, "is 1 s behind that of the Mesos master"),
        (-3600.0, "is 1 h ahead of that of the Mesos master"),
    ],
)
def test_clock_drift_is_reported_until_it_ends(seconds: float, words: str) -> None:
    decision = play(STATE, ClockDrifted(seconds))

    (outcome,) = decision.outcomes
    assert outcome.warning
    assert words in outcome.message
    assert words in reasons(decision.state)[-1]
    after = play(decision.state, ClockDrifted(0.0))
    assert [False] == [outcome.warning for outcome in after.outcomes]
    assert 1 == len(reasons(after.state))


def test_other_unanswered_call_changes_nothing() -> None:
    """The driver sends it again."""
    decision = play(STATE, CallFailed(KILL, "timed out", may_be_done=True))

    assert () == decision.changes
    assert KILL not in decision.calls
    assert ["KILL was not answered: timed out"] == [outcome.message for outcome in decision.outcomes]


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (KILL, "KILL"),
        (Acknowledge("t", "a", "u"), "ACKNOWLEDGE"),
        (Reconcile({}), "RECONCILE"),
        (AcceptInverseOffers((), 5.0), "ACCEPT_INVERSE_OFFERS"),
    ],
)
def test_call_has_its_mesos_name(call, name: str) -> None:
    assert name == call_name(call)


def test_unsent_call_is_described() -> None:
    assert "TEARDOWN was not sent: not connected" == describe(CallFailed(Teardown(), "not connected"))


def launched() -> tuple[SchedulerState, Accept]:
    """A worker was launched, and Mesos has reported nothing about it."""
    subscribed = play(SchedulerState(a_spec(workers=1, ps=0, chief=0)), Subscribed(FrameworkId("fw-1")))
    decision = play(subscribed.state, OffersReceived((an_offer(),)))
    (call,) = [call for call in decision.calls if isinstance(call, Accept)]
    return decision.state, call


@pytest.mark.parametrize("failed", [{"status": 403}, {"status": 0}])
def test_launches_of_refused_accept_end_as_dropped(failed) -> None:
    """They would wait for the start timeout, and their offers with them."""
    state, call = launched()

    decision = play(state, CallFailed(call, "Forbidden", **failed))

    (stored,) = decision.state.stored.statuses.values()
    assert (TaskState.DROPPED, describe(CallFailed(call, "Forbidden", **failed))) == (stored.state, stored.message)
    assert [call.offer_ids] == [item.offer_ids for item in decision.calls if isinstance(item, Decline)]
    assert ["worker-0"] == list(decision.state.stored.recoveries)


def test_launches_of_unanswered_accept_are_asked_about() -> None:
    """They may run; the DECLINE makes the offers of a late ACCEPT invalid."""
    state, call = launched()
    (launch,) = call.launches

    decision = play(state, CallFailed(call, "timeout", may_be_done=True))

    assert {} == decision.state.stored.statuses
    assert [Decline, Reconcile] == [type(item) for item in decision.calls]
    assert {launch.record.id: launch.record.agent_id} == decision.calls[1].tasks
    answered = play(state, StatusUpdated(a_status(launch.record.id)))
    assert [Decline] == [
        type(item) for item in play(answered.state, CallFailed(call, "timeout", may_be_done=True)).calls
    ]


def test_failed_accept_is_repaired_without_connection() -> None:
    """Calls would fail, too; after the next subscription everything is asked for."""
    state, call = launched()
    state = with_fields(state, connected=False)

    assert () == play(state, CallFailed(call, "timeout", may_be_done=True)).calls
    (stored,) = play(state, CallFailed(call, "not connected")).state.stored.statuses.values()
    assert TaskState.DROPPED is stored.state


@pytest.mark.parametrize(("status", "failures"), [(0, 0), (401, 1)], ids=["not sent", "refused"])
def test_launch_that_was_not_sent_does_not_count(status: int, failures: int) -> None:
    """A connection that is lost again and again must not raise the back-off."""
    state, call = launched()

    recoveries = play(state, CallFailed(call, "not connected", status)).state.stored.recoveries.values()

    assert [failures] == [item.consecutive_failures for item in recoveries]


def test_time_of_refusals_is_that_of_a_day() -> None:
    state = play(STATE, REFUSED, now=25 * 3600 + 61 * 60.0).state

    assert "Mesos has refused calls since 02:01 UTC: 401 Unauthorized" == refusal_message(state)


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (FrameworksHidden("no permission"), "the master does not show frameworks: no permission;"),
        (EventSkipped("UPDATE", "no state"), "skipped an event of Mesos that cannot be decoded: UPDATE: no state"),
        (ClockStepped(90.4), "was set forward by 1 min 30 s"),
        (ClockStepped(-90.4), "was set back by 1 min 30 s"),
    ],
)
def test_event_that_changes_nothing_is_a_warning(event: Event, words: str) -> None:
    decision = play(STATE, event)

    (outcome,) = decision.outcomes
    assert (type(event).__name__, True) == (outcome.kind, outcome.warning)
    assert (STATE, ()) == (decision.state, decision.calls)
    assert words in outcome.message


def test_launches_that_were_replaced_since_are_left_alone() -> None:
    """Or the options no longer have the task."""
    state, call = launched()
    (record,) = state.stored.tasks.values()
    newer = with_fields(state, tasks={record.name: replace(record, id="worker-0__newer")})
    removed = with_fields(state, tasks={})

    ended = [play(each, CallFailed(call, "Forbidden", status=403)).state.stored.statuses for each in (newer, removed)]

    assert [{}, {}] == ended
