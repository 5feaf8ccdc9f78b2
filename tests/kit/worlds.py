"""Simulated services in states that many tests start from."""

from __future__ import annotations

from builders import a_spec
from simulation import send
from simulation.mesos import Agent, an_agent
from simulation.world import World, play
from tf_scheduler.model.spec import ServiceSpec


def deployed(spec: ServiceSpec | None = None, *agents: Agent, kills_at_once: bool = True) -> World:
    """Return a world in which every task runs; default: `a_spec()` on two agents."""
    world = World(
        spec or a_spec(), *(agents or (an_agent("agent-1"), an_agent("agent-2"))), kills_at_once=kills_at_once
    )
    return play(world, send.register(), send.offers(), send.running())


def pass_time(world: World, seconds: float) -> None:
    """The master offers every second; decisions in between are collected."""
    for _ in range(round(seconds)):
        world.mesos.allocate(world.now)
        world.settle()
        world.wait(1.0)
