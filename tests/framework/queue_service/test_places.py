"""Whether a job finds its places, now or after others have stopped."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders import a_spec, an_offer, scalar
from kit.api import launched
from tf_executor.contract.states import TaskState
from tf_scheduler.core.placement.agents import merge_offers
from tf_scheduler.model.resources import Needs, thousandths
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.queue_service.places import Places


def running(cpus: float) -> SchedulerState:
    """Return a job whose task holds some CPUs of agent-1."""
    state = launched(TaskState.RUNNING)
    held = (scalar("cpus", cpus), scalar("mem", 100))
    tasks = {name: replace(record, resources=held) for name, record in state.stored.tasks.items()}
    return replace(state, stored=replace(state.stored, tasks=tasks))


def test_mismatch_names_what_an_agent_lacks() -> None:
    assert "cpus" in Places.of(merge_offers([an_offer(cpus=0.5)]), None).mismatch(a_spec())
    assert "" == Places.of(merge_offers([an_offer()]), None).mismatch(a_spec())


@pytest.mark.parametrize(("left", "expected"), [(1, "the quota of the role leaves 2"), (2, "")])
def test_stopped_jobs_give_back_their_quota(left: int, expected: str) -> None:
    places = Places.of(merge_offers([an_offer(cpus=8)]), {"cpus": thousandths(left), "mem": thousandths(1e6)})
    needs = Needs(cpus=thousandths(3))
    assert f"the quota of the role leaves {left}" in places.shortage(needs)

    freed = places.without([running(1)])

    assert thousandths(9) == freed.free.cpus
    assert expected in freed.shortage(needs)
    assert bool(expected) == bool(freed.shortage(needs))
