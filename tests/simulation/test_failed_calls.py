"""Calls that Mesos refuses or does not answer, or that are not sent."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from builders import a_spec
from kit.worlds import deployed, pass_time
from simulation import expect, send
from simulation.mesos import an_agent
from simulation.world import World, play
from tf_executor.contract.states import Status, TaskState
from tf_scheduler.core.plans.scheduling import KILL_INTERVAL
from tf_scheduler.model.effects import Accept, Acknowledge, Call, Decline, Kill, Launch, Reconcile
from tf_scheduler.model.events import CallFailed
from tf_scheduler.model.ids import TaskName
from tf_scheduler.model.task import PodVerb

NAMES = ("ps-0", "worker-0", "chief-0")
Details = Mapping[str, Any]
UNAUTHORIZED: Details = {"problem": "Unauthorized", "status": 401}
UNSENT: Details = {"problem": "not connected"}
UNANSWERED: Details = {"problem": "timed out", "may_be_done": True}


def failing(kind: type, details: Details, times: int = 1) -> Callable[[Call], CallFailed | None]:
    """Fail the first calls of one type."""
    left = [None] * times

    def fail(call: Call) -> CallFailed | None:
        if not isinstance(call, kind) or not left:
            return None
        left.pop()
        return CallFailed(call, **details)

    return fail


def a_world() -> World:
    return play(World(a_spec(workers=1), an_agent("agent-1")), send.register())


def launches(world: World) -> list[Launch]:
    return [launch for call in world.calls_of(Accept) for launch in call.launches]


def await_running(world: World) -> list[TaskName]:
    """Wait until every task runs; return the names of new launches."""
    world.decisions.clear()
    pass_time(world, 60.0)
    names = sorted(launch.record.name for launch in launches(world))
    play(world, send.running(), expect.alive(*NAMES))
    return names


@pytest.mark.parametrize("details", [UNAUTHORIZED, UNSENT], ids=["refused", "unsent"])
def test_launches_of_failed_accept_end_immediately(details: Details) -> None:
    """Without waiting for the start timeout of 10 minutes; no agent or task is blamed."""
    world = a_world()
    world.failing = failing(Accept, details)
    play(world, send.offers())

    (accept,) = world.calls_of(Accept)
    statuses = [world.state.status(name) for name in NAMES]
    assert {TaskState.DROPPED} == {status.state for status in statuses}
    assert all(details["problem"] in status.message for status in statuses)
    assert accept.offer_ids in [call.offer_ids for call in world.calls_of(Decline)]
    assert {} == world.mesos.tasks

    await_running(world)
    assert {} == world.state.stored.agent_failures
    assert not [item for item in world.state.stored.recoveries.values() if item.failures]


def test_unanswered_accept_that_mesos_took_is_not_repeated() -> None:
    """Its launches are asked for; to launch them again would run them twice."""
    world = a_world()
    world.failing, world.answers_are_lost = failing(Accept, UNANSWERED), True
    play(world, send.offers())
    world.answers_are_lost = False

    names = {launch.record.id for launch in launches(world)}
    assert names in [set(call.tasks) for call in world.calls_of(Reconcile)]
    assert names == set(world.mesos.tasks)
    assert [] == await_running(world)
    assert names == set(world.mesos.tasks)


def test_unanswered_accept_that_was_lost_is_repeated() -> None:
    """Mesos answers that it does not know the launches, and their offers are declined."""
    world = a_world()
    world.failing = failing(Accept, UNANSWERED)
    play(world, send.offers())

    (accept,) = world.calls_of(Accept)
    assert accept.offer_ids in [call.offer_ids for call in world.calls_of(Decline)]
    assert {TaskState.GONE} == {world.state.status(name).state for name in NAMES}
    assert sorted(NAMES) == await_running(world)


def test_refused_accept_of_old_connection_changes_nothing_else() -> None:
    """The failure is handled after the launches were found and replaced."""
    world = a_world()
    play(world, send.offers())
    (accept,) = world.calls_of(Accept)
    play(world, send.running())
    world.disconnect()
    before = world.state.stored

    decision = world.step(CallFailed(accept, "not connected"))

    assert before == world.state.stored
    assert () == decision.calls


@pytest.mark.parametrize("details", [UNAUTHORIZED, UNANSWERED], ids=["refused", "unanswered"])
def test_failed_kill_is_repeated(details: Details) -> None:
    world = deployed(a_spec(workers=1))
    world.failing = failing(Kill, details)
    play(world, send.pod(PodVerb.RESTART, "worker-0"), expect.alive(*NAMES))

    play(world, send.wait(KILL_INTERVAL), expect.plan("recovery", Status.IN_PROGRESS))

    assert [TaskState.KILLED] == [
        task.state for task in world.mesos.tasks.values() if task.launch.record.name == "worker-0"
    ]


def test_failed_acknowledgement_is_repeated() -> None:
    """Mesos sends the update again, and the scheduler acknowledges it again."""
    world = deployed()
    world.failing = failing(Acknowledge, UNAUTHORIZED)
    play(world, send.status("worker-0", TaskState.RUNNING, healthy=True))
    (lost,) = world.calls_of(Acknowledge)

    play(world, send.updates_again())

    assert [lost] == world.calls_of(Acknowledge)
    assert not [task for task in world.mesos.tasks.values() if task.updates]


def test_all_calls_refused_for_a_minute_do_no_harm() -> None:
    """A revoked token: each task runs once after it is valid again."""
    world = a_world()
    world.failing = lambda call: CallFailed(call, **UNAUTHORIZED)
    play(world, send.offers())
    pass_time(world, 60.0)
    assert {} == world.mesos.tasks
    assert world.state.process.refused_calls is not None

    world.failing = lambda _: None
    world.disconnect()
    world.register()
    await_running(world)
    assert len(NAMES) == len(world.mesos.tasks)
