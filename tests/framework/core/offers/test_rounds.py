"""Snapshots of the cluster's agents, for display."""

import pytest

from builders import a_spec, an_offer
from tf_scheduler.core.offers import rounds
from tf_scheduler.core.scheduler import handle
from tf_scheduler.model.events import AgentFailed, Disconnected, OffersReceived, Subscribed
from tf_scheduler.model.offer import AgentSnapshot
from tf_scheduler.model.resources import thousandths
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


def test_every_agent_that_offered_is_remembered(state):
    """With the offered resources, also when no task was to be placed there."""
    assert {"agent-1-id", "agent-2-id"} == set(state.session.agent_snapshots)
    amounts = {"cpus": thousandths(4), "mem": thousandths(8192), "gpus": thousandths(2)}
    assert (
        AgentSnapshot("agent-2", region="", zone="a", **amounts, at=1000.0)
        == state.session.agent_snapshots["agent-2-id"]
    )


def test_last_offer_of_agent_counts(state):
    """Simultaneous offers of an agent to two roles count as one."""
    halves = (an_offer("offer-3", "agent-2", cpus=1), an_offer("offer-4", "agent-2", cpus=2, gpus=1))
    snapshot = after(state, OffersReceived(halves), now=1001.0).session.agent_snapshots["agent-2-id"]

    assert (thousandths(3), thousandths(1), 1001.0) == (snapshot.cpus, snapshot.gpus, snapshot.at)


def test_removed_agent_is_forgotten(state):
    """Mesos reports it to every framework."""
    assert ["agent-1-id"] == list(after(state, AgentFailed("agent-2-id")).session.agent_snapshots)


def test_lost_connection_clears_snapshots(state):
    """Agents may be removed meanwhile."""
    assert {} == after(state, Disconnected("the master went away")).session.agent_snapshots


def test_number_of_snapshots_is_limited():
    """The agents that offered last."""
    state = SchedulerState(a_spec())
    first = rounds.record_offers(
        state, [an_offer(agent=f"agent-{number}") for number in range(rounds.MAX_AGENT_SNAPSHOTS)], 1.0
    )
    then = rounds.record_offers(first, [an_offer(agent="agent-0"), an_offer(agent="new")], 2.0)

    assert rounds.MAX_AGENT_SNAPSHOTS == len(then.session.agent_snapshots)
    assert "agent-1-id" not in then.session.agent_snapshots
    assert ["agent-0-id", "new-id"] == list(then.session.agent_snapshots)[-2:]
    assert then == rounds.record_offers(then, (), 3.0)
