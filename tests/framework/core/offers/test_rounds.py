"""Offer rounds: offers held, used or declined; agent snapshots for display."""

from dataclasses import replace

import pytest

from builders import LOGIN, a_job, a_record, a_running_state, a_spec, a_status, an_offer, with_fields
from tf_executor.contract.states import TaskState
from tf_executor.contract.strategies import Strategy
from tf_scheduler.core.launch.launch import plan_launches
from tf_scheduler.core.offers import rounds
from tf_scheduler.core.offers.matcher import match_gangs
from tf_scheduler.core.plans.scheduling import view_of
from tf_scheduler.core.recovery.replacement import PREVIOUS_ADDRESS_WAIT, replace_launch
from tf_scheduler.core.scheduler import handle
from tf_scheduler.core.state.reducer import apply
from tf_scheduler.model.effects import Accept, Decline, RecoveryDecided, StatusStored, TaskLaunched
from tf_scheduler.model.events import Disconnected, OffersReceived, Subscribed, Tick
from tf_scheduler.model.ids import AgentId, OfferId
from tf_scheduler.model.offer import AgentSnapshot, ExecutorLogin
from tf_scheduler.model.resources import thousandths
from tf_scheduler.model.secrets import SecretDelivery, SecretSpec
from tf_scheduler.model.spec import JobKind
from tf_scheduler.model.state import SchedulerState


def after(state, *events, now=1000.0):
    for event in events:
        state = handle(state, event, now, iter(map(str, range(100))).__next__).state
    return state


@pytest.fixture
def state():
    """One task, launched on agent-1; agent-2 has offered, too."""
    return after(
        SchedulerState(a_spec(workers=1, ps=0, chief=0)),
        Subscribed("fw-1"),
        OffersReceived((an_offer(), an_offer("offer-2", "agent-2", gpus=2, zone="a"))),
    )


def test_every_agent_that_offered_is_remembered(state) -> None:
    """With the offered resources, also when no task was to be placed there."""
    assert {"agent-1-id", "agent-2-id"} == set(state.session.agent_snapshots)
    amounts = {"cpus": thousandths(4), "mem": thousandths(8192), "gpus": thousandths(2)}
    assert (
        AgentSnapshot("agent-2", region="", zone="a", **amounts, at=1000.0, address="10.0.0.1")
        == state.session.agent_snapshots["agent-2-id"]
    )


def test_last_offer_of_agent_counts(state) -> None:
    """Simultaneous offers of an agent to two roles count as one."""
    halves = (an_offer("offer-3", "agent-2", cpus=1), an_offer("offer-4", "agent-2", cpus=2, gpus=1))
    snapshot = after(state, OffersReceived(halves), now=1001.0).session.agent_snapshots["agent-2-id"]

    assert (thousandths(3), thousandths(1), 1001.0) == (snapshot.cpus, snapshot.gpus, snapshot.at)


def test_lost_connection_clears_snapshots(state) -> None:
    """Agents may be removed meanwhile."""
    assert {} == after(state, Disconnected("the master went away")).session.agent_snapshots


def test_number_of_snapshots_is_limited() -> None:
    """The newest are kept."""
    state = SchedulerState(a_spec())
    first = rounds.record_offers(
        state, [an_offer(agent=f"agent-{number}") for number in range(rounds.MAX_AGENT_SNAPSHOTS)], 1.0
    )
    then = rounds.record_offers(first, [an_offer(agent="agent-0"), an_offer(agent="new")], 2.0)

    assert rounds.MAX_AGENT_SNAPSHOTS == len(then.session.agent_snapshots)
    assert "agent-1-id" not in then.session.agent_snapshots
    assert ["agent-0-id", "new-id"] == list(then.session.agent_snapshots)[-2:]
    assert then == rounds.record_offers(then, (), 3.0)


# --- Rounds

NEW = SchedulerState(a_spec())
NAMES = {task.name for task in NEW.spec.tasks()}


def new_id():
    return "id"


def hold(state, *names, now=1000.0):
    return state.with_round(state.session.round.hold(map(an_offer, names), now))


def receive(state, *offers, now=1000.0):
    """Receive offers, and match those that are held."""
    received = rounds.on_offers(state, OffersReceived(offers), now, view_of(state).gangs)
    if not received.state.session.round.offers:
        return received
    return received.then(lambda after: rounds.match(after, view_of(after), now, new_id))


def test_declines_is_one_call_or_none() -> None:
    assert (Decline(("o-1", "o-2"), 5.0),) == rounds.declines([OfferId("o-1"), OfferId("o-2")], 5.0)
    assert () == rounds.declines([], 5.0)


def test_round_lasts_from_first_to_last_offer() -> None:
    first = hold(NEW, "o-1")
    second = hold(first, "o-2", now=1003.0)
    third = hold(second.with_round(second.session.round.without({"o-1", "o-2"})), "o-3", now=1004.0)

    assert [1000.0, 1000.0, 1004.0] == [state.session.round.since for state in (first, second, third)]


def test_failed_rounds_back_off_longer_each_time() -> None:
    once = rounds.expire(hold(NEW, "o-1", now=970.0), 1000.0, new_id)
    twice = rounds.expire(hold(once.state, "o-2", now=970.0), 1000.0, new_id)
    first, second = (decision.state.session.round for decision in (once, twice))

    assert ((1, 2), {}) == ((first.failures, second.failures), twice.state.session.round.offers)
    assert 1000.0 < first.back_off_until < second.back_off_until
    assert (Decline(("o-2",), second.back_off_until - 1000.0),) == twice.calls


def test_missing_offers_are_reported_once() -> None:
    state, due = with_fields(NEW, no_offers_since=1000.0), 1000.0 + rounds.NO_OFFER_WARNING_SECONDS
    early, late = (rounds.warn_no_offers(state, now, view_of(state).gangs) for now in (due - 0.1, due))

    assert () == early.outcomes
    assert {"TaskPending"} == {outcome.kind for outcome in late.outcomes}
    assert (NAMES, None) == (set(late.state.session.round.reasons), late.state.session.no_offers_since)


def test_on_offers_launches_gang_that_fits() -> None:
    decision = receive(NEW, an_offer())
    (call,) = decision.calls

    assert isinstance(call, Accept)
    assert NAMES == {launch.record.name for launch in call.launches}
    assert NAMES == {change.record.name for change in decision.changes if isinstance(change, TaskLaunched)}
    assert ({}, {}) == (decision.state.session.round.offers, decision.state.session.round.reasons)


def test_on_offers_holds_offer_for_incomplete_gang() -> None:
    """One task fits, so the offer may be useful together with others."""
    decision = receive(NEW, an_offer(cpus=1))

    assert () == decision.calls
    held = decision.state.session.round
    assert (["offer-1"], NAMES) == (list(held.offers), set(held.reasons))


@pytest.mark.parametrize(
    ("state", "seconds"),
    [(a_running_state(NEW.spec), rounds.REFUSE_LONG), (with_fields(NEW, back_off_until=1010.0), 10.0)],
    ids=["no pending task", "back-off"],
)
def test_on_offers_declines_when_nothing_may_launch(state, seconds) -> None:
    assert (Decline(("offer-1",), seconds),) == receive(state, an_offer()).calls


def test_on_rescinded_forgets_only_that_offer() -> None:
    after_event = rounds.on_rescinded(hold(NEW, "o-1", "o-2"), "o-1").state

    assert ["o-2"] == list(after_event.session.round.offers)


def test_removed_agent_is_forgotten() -> None:
    """Otherwise reasons would name an agent that does not exist."""
    declined = receive(NEW, an_offer(cpus=0.2)).state

    decision = rounds.on_agent_failed(declined, "agent-1-id")

    assert ({}, {}) == (decision.state.session.round.unusable, decision.state.session.agent_snapshots)
    assert [("AgentRemoved", "agent agent-1 was removed")] == [(item.kind, item.message) for item in decision.outcomes]


@pytest.mark.parametrize(
    ("workers", "text"), [(3, "worker-0 and 2 more are pending: needs"), (1, "worker-0 is pending: needs")]
)
def test_pending_tasks_with_same_reasons_are_one_outcome(workers: int, text: str) -> None:
    """A thousand waiting workers are one line of the log."""
    spec = a_spec(workers=workers, ps=0, chief=0)
    state = with_fields(SchedulerState(spec), connected=True, no_offers_since=1000.0)

    due = 1000.0 + rounds.NO_OFFER_WARNING_SECONDS
    (outcome,) = rounds.warn_no_offers(state, due, view_of(state).gangs).outcomes

    assert outcome.message.startswith(text)
    assert ("TaskPending", True, "worker-0") == (outcome.kind, outcome.warning, outcome.task)


def test_wait_for_previous_address_ends_for_its_gang() -> None:
    """A task of the gang that was never launched waits with it."""
    spec = a_spec(strategy=Strategy.MULTI_WORKER_MIRRORED, jobs=(a_job(JobKind.WORKER, 2),))
    state = apply(with_fields(SchedulerState(spec), connected=True), TaskLaunched(a_record(spec, "worker-0")))
    state = apply(state, StatusStored(a_status("worker-0__1", TaskState.FAILED)))
    state = apply(state, RecoveryDecided(replace_launch(state, state.stored.tasks["worker-0"], "lost", 10.0)))

    waiting = after(state, OffersReceived((an_offer(cpus=8),)), now=10.0)
    placed = after(waiting, Tick(), now=10.0 + PREVIOUS_ADDRESS_WAIT)

    assert ({"worker-0", "worker-1"}, 10.0 + PREVIOUS_ADDRESS_WAIT) == (
        set(waiting.session.round.reasons),
        waiting.session.round.match_at,
    )
    assert {"worker-0", "worker-1"} == set(placed.stored.tasks)


@pytest.mark.parametrize(("until", "expected"), [(15.0, 15.0), (11.0, 20.0)], ids=["waits", "waited long enough"])
def test_held_offers_are_matched_when_first_address_wait_ends(until: float, expected: float) -> None:
    """A task that only waits for another one of its gang does not count."""
    spec = a_spec(strategy=Strategy.MULTI_WORKER_MIRRORED, jobs=(a_job(JobKind.WORKER, 2),))
    state = with_fields(SchedulerState(spec), connected=True)
    for number, end in enumerate((20.0, until)):
        record = a_record(spec, f"worker-{number}", agent_id="gone-id", address=f"10.0.0.9:{31000 + number}")
        state = apply(state, TaskLaunched(record), StatusStored(a_status(record.id, TaskState.FAILED)))
        item = replace(replace_launch(state, record, "lost", 10.0), previous_address_until=end)
        state = apply(state, RecoveryDecided(item))

    state = after(state, OffersReceived((an_offer(cpus=8),)), now=12.0)

    assert expected == state.session.round.match_at


# --- Executor login

SECRET = SecretSpec("env:KEY", env="KEY", jobs=frozenset({"worker"}))
OPEN, UNKNOWN = ExecutorLogin(False), ExecutorLogin(None, "http://10.0.0.1:5051/flags does not answer")


def a_service_with_secret(**delivery):
    spec = a_spec(workers=1, ps=0, chief=0, secrets=(SECRET,), secret_delivery=SecretDelivery("http://s", **delivery))
    return after(SchedulerState(spec), Subscribed("fw-1"))


@pytest.mark.parametrize(
    ("login", "reason"), [(OPEN, "lacks the flag --authenticate_http_executors"), (UNKNOWN, "/flags does not answer")]
)
def test_agent_without_executor_login_gets_no_task_with_secrets(login, reason: str) -> None:
    """Any process there could subscribe as the executor, and read the task's token."""
    decision = receive(a_service_with_secret(), an_offer(login=login))

    (call,) = decision.calls
    assert Decline(("offer-1",), rounds.REFUSE_UNSAFE) == call
    assert reason in str(decision.state.session.round.reasons["worker-0"][0])
    (outcome,) = decision.outcomes
    assert outcome.message.startswith("agent agent-1 may not authenticate executors")
    assert () == receive(decision.state, an_offer("offer-2", login=login)).outcomes


def test_agent_with_executor_login_gets_task_with_secrets() -> None:
    assert () == receive(a_service_with_secret(), an_offer(cpus=0.1, login=LOGIN)).outcomes
    offers = (an_offer(login=OPEN), an_offer("offer-2", "agent-2"))
    (launch,) = [call for call in receive(a_service_with_secret(), *offers).calls if isinstance(call, Accept)]

    assert ("offer-2",) == launch.offer_ids


def test_task_without_secrets_ignores_executor_login() -> None:
    other = replace(SECRET, jobs=frozenset({"chief"}))
    for secrets in ((), (other,), (replace(SECRET, source="reference:key"),)):
        state = after(SchedulerState(a_spec(workers=1, ps=0, chief=0, secrets=secrets)), Subscribed("fw-1"))
        assert any(isinstance(call, Accept) for call in receive(state, an_offer(login=OPEN)).calls)


def test_accepted_agent_without_executor_login_is_warned_of_once() -> None:
    """One event for each agent, which the health repeats until the agent is removed."""
    state = a_service_with_secret(requires_executor_login=False)
    first = receive(state, an_offer(login=OPEN))
    again = rounds._warn_unprotected(first.state, *matched(state, an_offer(login=OPEN)))
    gone = rounds.on_agent_failed(first.state, AgentId("agent-1-id")).state

    assert any(isinstance(call, Accept) for call in first.calls)
    (outcome,) = [item for item in first.outcomes if item.kind == "SecretsUnprotected"]
    assert outcome.warning
    assert "agent agent-1 gets secrets, but may not authenticate executors" in outcome.message
    assert {"agent-1-id": "agent-1"} == first.state.process.unprotected_agents
    assert () == again.outcomes
    assert {} == gone.process.unprotected_agents


def matched(state, *offers):
    """A match of the offers, and its launches."""
    match = match_gangs(state, view_of(state).gangs, offers, 1000.0)
    return match, plan_launches(state, match.placements, 1000.0, new_id)


def test_newest_offer_of_agent_has_executor_login() -> None:
    """An agent may be restarted with another flag while an offer is held."""
    older, newer = an_offer(cpus=0.1, login=LOGIN), an_offer("offer-2", login=OPEN)
    held = receive(a_service_with_secret(), older).state

    assert not any(isinstance(call, Accept) for call in receive(held, newer).calls)


def test_agent_that_authenticates_executors_now_is_not_reported_any_more() -> None:
    """It was restarted with the flag, or did not answer before."""
    first = receive(a_service_with_secret(requires_executor_login=False), an_offer(login=OPEN)).state

    again = receive(first, an_offer("offer-2", login=LOGIN)).state

    assert ({"agent-1-id": "agent-1"}, {}) == (first.process.unprotected_agents, again.process.unprotected_agents)
