"""Programs whose port another process holds, as their executor reports."""

from __future__ import annotations

from typing import Any

import pytest

from builders import a_job, a_spec
from kit import worlds
from simulation import expect, send
from simulation.mesos import an_agent
from simulation.world import World, play
from tf_executor.contract.states import TaskState
from tf_executor.contract.strategies import Strategy
from tf_scheduler.model.resources import VirtualNetwork
from tf_scheduler.model.spec import JobKind, RestartPolicy, ServiceSpec

ALL = ("ps-0", "worker-0", "worker-1", "chief-0")
SENTENCE = "port 31001 of the task is in use by another process"
IN_USE = send.status("worker-1", TaskState.FAILED, message=SENTENCE, port_taken=True)
#: Until every back-off is over.
AGAIN = (send.wait(8.0), send.offers(), send.running())


def on_one_agent(spec: ServiceSpec | None = None) -> World:
    return worlds.deployed(spec or a_spec(restart=RestartPolicy(max_failures=100)), an_agent("agent-1", cpus=8))


def address(world: World, name: str = "worker-1") -> str:
    return world.state.stored.tasks[name].address


def test_next_launch_gets_new_port_and_restarts_only_chief() -> None:
    """With this evidence a retry in place would fail again."""
    world = on_one_agent()
    first = address(world)

    play(world, IN_USE, expect.outcome(f"worker-1 has failed: {SENTENCE}"), *AGAIN, *AGAIN)

    assert first != address(world)
    assert {"worker-1": 2, "chief-0": 2, "ps-0": 1, "worker-0": 1} == {
        name: record.generation for name, record in world.state.stored.tasks.items()
    }
    play(world, expect.alive(*ALL), expect.cluster("chief-0", ps=1, worker=2, chief=1))


def test_collective_training_restarts_with_new_address() -> None:
    """All restart anyway, with the new address."""
    spec = a_spec(
        strategy=Strategy.MULTI_WORKER_MIRRORED,
        jobs=(a_job(JobKind.WORKER, 3),),
        restart=RestartPolicy(max_failures=100),
    )
    world = on_one_agent(spec)
    before = {name: address(world, name) for name in world.state.stored.tasks}

    play(world, IN_USE, *AGAIN, *AGAIN)

    assert {"worker-1"} == {name for name, old in before.items() if address(world, name) != old}
    play(world, expect.cluster("worker-0", worker=3), expect.alive("worker-0", "worker-1", "worker-2"))


def test_failed_port_is_not_used_again() -> None:
    """No task of the service uses the port; a restarted scheduler keeps the list."""
    world = on_one_agent()
    addresses = [address(world)]
    for _ in range(3):
        play(world, IN_USE, send.restart(), *AGAIN, *AGAIN)
        addresses.append(address(world))

    assert len(set(addresses)) == len(addresses)
    assert set(world.state.stored.recoveries["worker-1"].bad_addresses) == set(addresses[:-1])
    assert set() == {address(world, name) for name in ("ps-0", "worker-0", "chief-0")} & set(addresses)


@pytest.mark.parametrize("end", [{"signal": 9}, {"signal": 15}, {"exit_code": 143}, {"exit_code": 1}])
def test_port_without_listener_is_used_again(end: Any) -> None:
    """The report of the end names no other process, so no port is blamed."""
    world = on_one_agent()
    first = address(world)
    for _ in range(3):
        play(world, send.status("worker-1", TaskState.FAILED, **end), send.wait(10.0), send.offers(), send.running())

    assert first == address(world)


def test_virtual_network_failures_keep_their_port() -> None:
    """Each container has all ports."""
    world = on_one_agent(a_spec(network=VirtualNetwork("dcos"), restart=RestartPolicy(max_failures=100)))

    play(world, IN_USE, *AGAIN, expect.alive(*ALL))

    assert () == world.state.stored.recoveries["worker-1"].bad_addresses
