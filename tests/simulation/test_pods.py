"""Operator commands for single tasks: restart, replace (pauses: test_pausing.py)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import pytest

from builders import a_spec
from kit.worlds import deployed
from simulation import expect, send
from simulation.mesos import an_agent
from simulation.world import World, play
from tf_executor.contract.states import TaskState
from tf_scheduler.model.effects import ShutdownExecutor
from tf_scheduler.model.plan import Reply
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.model.task import PodVerb

ALL = ("ps-0", "worker-0", "worker-1", "chief-0")
RESTART, REPLACE, PAUSE, RESUME = PodVerb


def test_restarted_task_returns_to_old_address() -> None:
    """No address changes, so no peer restarts, and it is not a failure."""
    world = deployed()
    before = world.state.stored.tasks["worker-1"]

    play(
        world,
        send.pod(RESTART, "worker-1"),
        expect.answered(Reply.OK, "Received cmd: restart worker-1"),
        expect.killed("worker-1"),
        send.offers(),
        expect.launched("worker-1"),
        send.running(),
        expect.alive(*ALL),
    )

    after = world.state.stored.tasks["worker-1"]
    assert (before.address, 1) == (after.address, after.generation)
    assert before.id != after.id
    assert () == world.state.stored.recoveries["worker-1"].failures


def test_requested_kill_is_not_a_warning() -> None:
    """A requested exit needs no attention, unlike a failure."""
    world = deployed()
    play(world, send.pod(RESTART, "worker-1"), expect.killed("worker-1"))
    (outcome,) = [entry for entry in world.outcomes if "worker-1 on agent-1 was stopped" in entry.message]
    assert not outcome.warning
    play(world, send.status("worker-0", TaskState.FAILED, exit_code=3, message="exit code 3"))
    assert any(outcome.warning and outcome.task == "worker-0" for outcome in world.outcomes)


def test_restarted_ps_restarts_chief() -> None:
    """The chief restarts as after a loss of the ps; the answer lists the chief."""
    world = deployed()

    play(
        world,
        send.pod(RESTART, "ps-0"),
        expect.answered(Reply.OK, "together with chief-0"),
        expect.killed("ps-0", "chief-0"),
        send.offers(),
        expect.launched("ps-0", "chief-0"),
    )


def test_replaced_task_moves_to_another_agent() -> None:
    """The chief restarts with it, because it must know the new address."""
    world = deployed()
    before = world.state.stored.tasks["worker-1"]

    play(world, send.pod(REPLACE, "worker-1"), send.offers(), send.running(), send.offers(), send.running())

    after = world.state.stored.tasks["worker-1"]
    assert before.hostname != after.hostname
    assert 2 == after.generation == world.state.stored.tasks["chief-0"].generation
    assert set(ALL) == set(world.mesos.live())


@pytest.mark.parametrize(
    ("verb", "task", "reply", "words"),
    [
        (RESTART, "worker-9", Reply.NOT_FOUND, "Task worker-9 not found"),
        (RESTART, "worker-0", Reply.CONFLICT, "Task worker-0 has finished: it is never launched again"),
        (PAUSE, "worker-0", Reply.CONFLICT, "Task worker-0 has finished"),
        (RESUME, "worker-1", Reply.ALREADY, "Task worker-1 is not paused"),
        (PAUSE, "ps-0", Reply.ALREADY, "Task ps-0 is paused"),
        (REPLACE, "ps-0", Reply.CONFLICT, "Task ps-0 is paused: resume it first"),
    ],
)
def test_invalid_pod_command_is_refused_with_reason(verb: Any, task: Any, reply: Any, words: Any) -> None:
    """A refused command has no effect."""
    world = deployed()
    play(world, send.status("worker-0", TaskState.FINISHED), send.pod(PAUSE, "ps-0"))

    play(world, send.pod(verb, task), expect.answered(reply, words), expect.quiet())


def test_pod_command_without_running_job_is_refused() -> None:
    """Before the deployment and after the job."""
    world = World(a_spec(), an_agent())
    play(world, send.register(), send.pod(RESTART, "worker-0"), expect.answered(Reply.CONFLICT, "never launched"))
    play(world, send.offers(), send.running(), send.stop(), send.pod(RESTART, "worker-0"))
    play(world, expect.answered(Reply.CONFLICT, "the service has finished"))


def test_nothing_grows_with_restarts() -> None:
    """A service may run for years; what is known of replaced launches is forgotten."""
    world = play(deployed(), send.wait(100.0))
    sizes = []
    for _ in range(30):
        for name in ("worker-0", "worker-1"):
            # The wait has the status of the silent launch requested.
            play(world, send.pod(RESTART, name), expect.killed(name), send.offers(), send.wait(35.0), send.running())
        sizes.append(sizes_of(world.state))

    assert sizes[9] == sizes[-1]


def sizes_of(state: SchedulerState) -> dict[str, int]:
    """Return the size of every collection, without the limited list of evaluations."""
    parts = (state.stored, state.derived, state.session, state.session.reconciliation, state.process)
    values = {item.name: getattr(part, item.name) for part in parts for item in fields(part)}
    collections = {name: value for name, value in values.items() if isinstance(value, Mapping | frozenset | tuple)}
    return {name: len(value) for name, value in collections.items() if name != "evaluations"}


def test_kill_without_effect_shuts_the_executor_down_once() -> None:
    """It is repeated every 10 s; after the grace period and 80 s, somebody must know."""
    world = play(deployed(kills_at_once=False), send.pod(RESTART, "worker-1"), send.wait(75))
    assert [] == world.calls_of(ShutdownExecutor)

    play(world, send.wait(30), expect.outcome("worker-1 on agent-1 has not ended although it was killed"))

    assert 1 == len(world.calls_of(ShutdownExecutor))
