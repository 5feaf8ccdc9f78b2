"""What is lost comes back: where, with whom, and on whose account."""

from __future__ import annotations

from typing import Any

from builders import a_spec
from kit.worlds import deployed
from simulation import expect, send
from simulation.mesos import an_agent
from simulation.world import World, play
from tf_scheduler.core.recovery.replacement import PREVIOUS_ADDRESS_WAIT
from tf_scheduler.model.task import TaskState

FAILED = TaskState.FAILED
KILLED_HARD = {"signal": 9, "message": "killed by signal 9 (SIGKILL)"}


def port_of(world: Any, name: Any) -> Any:
    return int(world.state.stored.tasks[name].address.rpartition(":")[2])


def test_a_lost_task_waits_a_little_for_its_old_address() -> None:
    """Somebody has its port for a moment: elsewhere would cost the chief a restart."""
    world = deployed()
    port = port_of(world, "worker-1")
    hostname = world.state.stored.tasks["worker-1"].hostname

    play(
        world,
        send.status("worker-1", FAILED, **KILLED_HARD),
        send.ports_taken(hostname, (port, port)),
        send.offers(),
        expect.launched(),
        expect.killed(),
        send.wait(PREVIOUS_ADDRESS_WAIT + 1.0),
        expect.launched("worker-1"),
        expect.killed("chief-0"),
        send.offers(),
        expect.launched("chief-0"),
    )

    assert [2, 2] == [world.state.stored.tasks[name].generation for name in ("worker-1", "chief-0")]


def test_two_lost_workers_are_launched_again_one_by_one() -> None:
    """Lost tasks are placed independently."""
    world = deployed(None, an_agent("agent-1", cpus=8))
    port = port_of(world, "worker-1")

    play(
        world,
        send.status("worker-0", FAILED, **KILLED_HARD),
        send.status("worker-1", FAILED, **KILLED_HARD),
        send.ports_taken("agent-1", (port, port)),
        send.offers(),
        expect.launched("worker-0"),
    )


def test_executor_end_before_program_is_user_error() -> None:
    """It could not be started there: that is the same the next time. Later its end is nobody's fault."""
    ended = {"reason": "REASON_EXECUTOR_TERMINATED"}
    world = play(World(a_spec(), an_agent()), send.register(), send.offers(), send.status("worker-0", FAILED, **ended))
    assert 1 == len(world.state.stored.recoveries["worker-0"].failures)

    world = deployed()
    play(world, send.status("worker-0", FAILED, **ended))
    assert () == world.state.stored.recoveries["worker-0"].failures
