"""Virtual network: tasks keep their DC/OS DNS name as address when they move."""

from __future__ import annotations

from builders import a_job, a_spec, needs
from kit import worlds
from simulation import expect, send
from simulation.mesos import an_agent
from simulation.world import World, play
from tf_scheduler.mesos.encode import executor_info
from tf_scheduler.model.resources import VirtualNetwork
from tf_scheduler.model.spec import JobKind

ALL = ("ps-0", "worker-0", "worker-1", "chief-0")
CONTAINERS = "devdigits.containerip.dcos.thisdcos.directory:2222"


def on_network(network: VirtualNetwork) -> World:
    kinds = ((JobKind.PS, 1), (JobKind.WORKER, 2), (JobKind.CHIEF, 1))
    jobs = tuple(a_job(kind, count, needs=needs(ports=0)) for kind, count in kinds)
    agents = [an_agent(name, cpus=2, port_ranges=()) for name in ("agent-1", "agent-2")]
    spec = a_spec(name="dev/digits", network=network, jobs=jobs)
    return worlds.deployed(spec, *agents)


def test_virtual_addresses_use_default_tensorflow_port() -> None:
    """No port of an agent is needed: these offer none."""
    world = on_network(VirtualNetwork("dcos"))

    assert {name: f"{name}.{CONTAINERS}" for name in ALL} == {
        name: record.address for name, record in world.state.stored.tasks.items()
    }


def test_moved_task_on_virtual_network_restarts_no_other() -> None:
    """The name of the task stays, so the ClusterSpec stays."""
    world = on_network(VirtualNetwork("dcos"))
    moved = next(record for record in world.state.stored.tasks.values() if record.job is JobKind.WORKER)

    play(world, send.agent(an_agent("agent-3", cpus=8, port_ranges=())))
    play(world, send.agent_lost(moved.hostname))
    play(world, send.offers(), send.running(), send.offers(), send.running(), expect.alive(*ALL))

    assert {1} == {record.generation for record in world.state.stored.tasks.values()}


def test_container_joins_virtual_network() -> None:
    """With an image, or without one."""
    network = VirtualNetwork("blue", {"k_0": "v_0"})
    world = on_network(network)
    launch = world.mesos.tasks[world.id_of("worker-0")].launch

    assert {
        "type": "MESOS",
        "mesos": {},
        "linux_info": {"ipc_mode": "PRIVATE"},
        "network_infos": [{"name": "blue", "labels": {"labels": [{"key": "k_0", "value": "v_0"}]}}],
    } == executor_info(launch, "fw")["container"]
