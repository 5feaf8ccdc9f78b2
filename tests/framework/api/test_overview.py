"""Overview of a service: view, and parsing by its readers."""

import json
from dataclasses import asdict

import pytest

from builders import a_spec, with_fields
from kit.api import a_record
from tf_scheduler.api.views.base import Snapshot
from tf_scheduler.api.views.overview import AgentRow, from_json, overview
from tf_scheduler.core.state.reducer import apply
from tf_scheduler.model.effects import TaskLaunched
from tf_scheduler.model.ids import AgentId
from tf_scheduler.model.offer import AgentSnapshot
from tf_scheduler.model.state import SchedulerState


@pytest.fixture
def state():
    chief = a_record(a_spec(), "chief-0")
    others = {AgentId(name): AgentSnapshot(name, "", "", 4000, 1_024_000, 2000, 5.0) for name in ("agent-1", "agent-2")}
    return apply(with_fields(SchedulerState(a_spec()), connected=True, agent_snapshots=others), TaskLaunched(chief))


def test_overview_round_trip(state) -> None:
    """Also with fields of a newer scheduler."""
    view = overview(Snapshot(state))
    document = json.loads(json.dumps(asdict(view)))

    assert view == from_json(document)
    assert view == from_json({**document, "new": 1, "tasks": [{**task, "new": 1} for task in document["tasks"]]})


def test_leader_is_launched_chief(state) -> None:
    assert "chief-0" == overview(Snapshot(state)).leader
    assert None is overview(Snapshot(SchedulerState(a_spec()))).leader


def test_unused_agents_have_last_offer(state) -> None:
    """While connected, because Mesos reports lost agents only then."""
    assert (AgentRow("agent-2", "", "", 4.0, 1024.0, 2.0, 5.0),) == overview(Snapshot(state)).agents
    assert () == overview(Snapshot(with_fields(state, connected=False))).agents


def test_unused_agents_are_limited(state) -> None:
    names = [f"host-{number:03}" for number in reversed(range(60))]
    view = overview(
        Snapshot(
            with_fields(
                state, agent_snapshots={AgentId(name): AgentSnapshot(name, "", "", 1, 1, 0, 5.0) for name in names}
            )
        )
    )

    assert [f"host-{number:03}" for number in range(50)] == [agent.hostname for agent in view.agents]
    assert 10 == view.more_agents
