"""One service at a glance, as those who follow it read it."""

import json

import pytest

from builders import a_spec
from tf_scheduler.api.glance import from_json, to_json
from tf_scheduler.api.overview import overview
from tf_scheduler.core.reduce import apply
from tf_scheduler.model.effects import TaskLaunched
from tf_scheduler.model.ids import AgentId, TaskId, TaskName
from tf_scheduler.model.spec import JobKind
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.model.task import TaskRecord


@pytest.fixture
def state():
    chief = TaskRecord(
        TaskName("chief-0"), TaskId("chief-0__1"), JobKind.CHIEF, 0, AgentId("a"), "agent-1", "10.0.0.1:1", 1, (), 0.0
    )
    return apply(SchedulerState(a_spec()), TaskLaunched(chief))


def test_it_survives_the_wire(state):
    """What was asked over HTTP is what was there, also with fields that only a newer scheduler has."""
    shown = overview(state)
    document = json.loads(json.dumps(to_json(shown)))

    assert shown == from_json(document)
    assert shown == from_json({**document, "new": 1, "tasks": [{**task, "new": 1} for task in document["tasks"]]})


def test_the_leader_is_the_chief_once_it_is_launched(state):
    """Its log tells how training goes."""
    assert "chief-0" == overview(state).leader
    assert None is overview(SchedulerState(a_spec())).leader
