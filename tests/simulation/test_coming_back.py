"""Relaunches of lost tasks: address, peers, and whether a failure counts."""

from __future__ import annotations

from typing import Any

from builders import a_spec
from kit.worlds import deployed
from simulation import expect, send
from simulation.mesos import an_agent
from simulation.world import World, play
from tf_executor.contract.states import TaskState
from tf_scheduler.core.recovery.replacement import PREVIOUS_ADDRESS_WAIT

FAILED = TaskState.FAILED
KILLED_HARD = {"signal": 9, "message": "killed by signal 9 (SIGKILL)"}


def port_of(world: Any, name: Any) -> Any:
    return int(world.state.stored.tasks[name].address.rpartition(":")[2])


def test_lost_task_waits_briefly_for_old_address() -> None:
    """The port may be taken only briefly; a new address would cost a chief restart."""
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


def test_two_lost_workers_are_relaunched_separately() -> None:
    """Recovery does not wait for the whole gang."""
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


def test_executor_exit_before_program_counts_as_user_error() -> None:
    """No agent could start the program; a later executor exit counts against no task."""
    ended = {"reason": "REASON_EXECUTOR_TERMINATED"}
    world = play(World(a_spec(), an_agent()), send.register(), send.offers(), send.status("worker-0", FAILED, **ended))
    assert 1 == len(world.state.stored.recoveries["worker-0"].failures)

    world = deployed()
    play(world, send.status("worker-0", FAILED, **ended))
    assert () == world.state.stored.recoveries["worker-0"].failures
