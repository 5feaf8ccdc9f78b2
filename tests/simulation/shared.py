"""Several services on the same agents, with a fair allocator and one clock.

Every second the master offers each agent's free resources to the role that has the least (Mesos documentation,
allocator: dominant resource fairness). Two gangs that each need most of the agents are each offered half of the agents.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from builders import ports, scalar
from simulation.mesos import Agent
from simulation.pool import Pool
from simulation.world import World
from tf_executor.contract.states import TaskState
from tf_scheduler.model.events import OffersReceived
from tf_scheduler.model.offer import Offer
from tf_scheduler.model.spec import ServiceSpec


@dataclass
class Machine:
    """Resources that the services share."""

    hostname: str
    free: Pool

    @classmethod
    def of(cls, hostname: str, cpus: float, gpus: float = 0) -> Machine:
        values = {"cpus": cpus, "mem": 100_000, "disk": 100_000, "gpus": gpus}
        entries = [scalar(name, value) for name, value in values.items() if value]
        return cls(hostname, Pool.of((*entries, ports((31000, 31099)))))


class View(Agent):
    """One machine as one role sees it."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.hostname, self.address = machine.hostname, machine.hostname
        self.more: dict[str, Any] = {}
        self.up = True
        self.filters: list[tuple[Pool, float]] = []

    @property
    def free(self) -> Pool:
        return self._machine.free

    @free.setter
    def free(self, pool: Pool) -> None:
        self._machine.free = pool


@dataclass
class Service:
    """One scheduler, and the duration of its job."""

    world: World
    seconds: float
    ends_at: float | None = None

    @property
    def over(self) -> bool:
        return self.world.state.process.finished

    def share(self) -> int:
        """Return the CPUs that the service uses or is offered, in thousandths."""
        offered = [pool for _, pool in self.world.mesos.offers.values()]
        used = [task.pool for task in self.world.mesos.live().values()]
        return sum(amount for pool in (*offered, *used) for (name, _), amount in pool.scalars.items() if name == "cpus")

    def work(self, now: float) -> None:
        """Finish a job when all of its tasks have run for its duration."""
        live = self.world.mesos.live()
        if self.ends_at is None and len(live) == self.world.state.spec.task_count:
            for task in live.values():
                self.world.mesos.report(task.launch.record.id, TaskState.RUNNING)
            self.ends_at = now + self.seconds
        if self.ends_at is not None and now >= self.ends_at and "worker-0" in live:
            self.world.mesos.report(live["worker-0"].launch.record.id, TaskState.FINISHED)


@dataclass
class Cluster:
    """Machines, services and the clock."""

    machines: Sequence[Machine]
    chance: random.Random
    services: list[Service] = field(default_factory=list)
    now: float = 1000.0

    def join(self, spec: ServiceSpec, seconds: float) -> Service:
        """Subscribe a service with its own ids, and therefore its own jitter."""
        views = [View(machine) for machine in self.machines]
        world = World(spec, *views)
        world.now, seed = self.now, self.chance.getrandbits(32)
        world._ids = (f"{seed}-{number}" for number in range(1_000_000))
        world.register()
        self.services.append(Service(world, seconds))
        return self.services[-1]

    def second(self) -> None:
        """Let one second pass: offers, and everything that follows from them."""
        self.now += 1.0
        fresh: dict[int, list[Offer]] = {}
        for number in self.chance.sample(range(len(self.machines)), len(self.machines)):
            for position in self._fairly():
                mesos = self.services[position].world.mesos
                offer = mesos.offer_of(list(mesos.agents.values())[number], self.now)
                fresh.setdefault(position, []).extend([offer] if offer else [])
        for position, service in enumerate(self.services):
            if fresh.get(position):
                service.world.mesos.events.append(OffersReceived(tuple(fresh[position])))
            service.world.settle()
            service.world.wait(self.now - service.world.now)
            service.work(self.now)
            service.world.settle()

    def run(self, seconds: int) -> float | None:
        """Run until all jobs are done; return the seconds, or None after `seconds`."""
        begun = self.now
        for _ in range(seconds):
            self.second()
            if all(service.over for service in self.services):
                return self.now - begun
        return None

    def _fairly(self) -> list[int]:
        order = self.chance.sample(range(len(self.services)), len(self.services))
        return sorted((n for n in order if not self.services[n].over), key=lambda n: self.services[n].share())
