"""A cluster in memory and in simulated time, for the policy of a queue service."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tf_executor.contract.states import Verdict
from tf_scheduler.model.ids import AgentId
from tf_scheduler.model.resources import UNIT, Needs
from tf_scheduler.queue.admission import QueueFacts, next_admission
from tf_scheduler.queue.estimates import Estimate, estimates
from tf_scheduler.queue.job import Happening, Job, JobId, JobState
from tf_scheduler.queue.shares import Order, QueueSpec, QueueUsage, ordered, serve

#: Resources of a slot of the model.
SLOT = Needs(cpus=UNIT, mem=1000 * UNIT)


def make_job(name: str, queue: str = "a", slots: int = 1, at: float = 0.0, **fields: Any) -> Job:
    tasks = (SLOT,) * slots
    return Job(JobId(name), queue, f"user-{queue}", at, sum(tasks, Needs()), tasks, **fields)


@dataclass
class ClusterModel:
    """Agents with slots, and jobs that run as long as `seconds` says."""

    queues: Mapping[str, QueueSpec]
    agents: int = 3
    slots: int = 4
    order: Order = Order.FAIR
    start_seconds: float = 2.5
    now: float = 0.0
    jobs: dict[JobId, Job] = field(default_factory=dict)
    seconds: dict[JobId, float] = field(default_factory=dict)
    places: dict[JobId, list[AgentId]] = field(default_factory=dict)
    served: Mapping[str, float] = field(default_factory=dict)
    #: Queue -> CPU-seconds.
    used: dict[str, float] = field(default_factory=dict)
    first_estimates: dict[JobId, Estimate] = field(default_factory=dict)

    @property
    def capacity(self) -> Needs:
        return sum((SLOT,) * (self.agents * self.slots), Needs())

    def submit(self, job: Job, seconds: float) -> None:
        self.jobs[job.id] = job
        self.seconds[job.id] = seconds

    def free(self) -> dict[AgentId, int]:
        free = {AgentId(f"agent-{number}"): self.slots for number in range(self.agents)}
        for places in self.places.values():
            for agent in places:
                free[agent] -= 1
        return free

    def place(self, job: Job) -> list[AgentId] | None:
        """Return an agent for each task, as the matcher would: most free first."""
        free, places = self.free(), list[AgentId]()
        for _ in job.tasks:
            agent = max(free, key=lambda name: (free[name], name))
            if not free[agent]:
                return None
            free[agent] -= 1
            places.append(agent)
        return places

    def facts(self) -> QueueFacts:
        usage = QueueUsage.of(self.jobs.values(), self.capacity)
        ends = {job.id: self.end_of(job) for job in self.jobs.values() if job.state is JobState.RUNNING}
        rest = {name: end - self.now for name, end in ends.items()}
        order = ordered(self.jobs.values(), self.queues, usage, self.order, self.served, rest)
        room = {name: Needs(count * UNIT, count * 1000 * UNIT) for name, count in self.free().items()}
        held: dict[JobId, dict[AgentId, Needs]] = {name: {} for name in self.places}
        for name, places in self.places.items():
            for agent in places:
                held[name][agent] = held[name].get(agent, Needs()) + SLOT
        expected = estimates(order, self.jobs, ends, room, held, self.now, self.queues)
        fits = lambda job: "" if self.place(job) is not None else "no room"  # noqa: E731
        return QueueFacts(self.now, self.jobs, order, self.queues, usage, fits, ends=ends, estimates=expected)

    def end_of(self, job: Job) -> float:
        return job.started + self.seconds[job.id]

    def change(self, job: Job, happening: Happening, **fields: Any) -> None:
        self.jobs[job.id] = replace(job.after_event(happening, self.now), **fields)

    def step(self, seconds: float) -> None:
        """Let time pass, then handle ends, starts and one admission."""
        usage = QueueUsage.of(self.jobs.values(), self.capacity)
        waiting = {job.queue for job in self.jobs.values() if job.state is JobState.QUEUED}
        self.served = serve(self.served, usage, self.queues, waiting, seconds)
        for job in self.jobs.values():
            if job.state is JobState.RUNNING:
                self.used[job.queue] = self.used.get(job.queue, 0.0) + seconds * len(job.tasks)
        self.now += seconds
        for job in tuple(self.jobs.values()):
            if job.state is JobState.RUNNING and self.end_of(job) <= self.now:
                self.change(job, Happening.ENDED, verdict=Verdict.SUCCEEDED)
                del self.places[job.id]
            elif job.state is JobState.STARTING and job.since + self.start_seconds <= self.now:
                self.change(job, Happening.LAUNCHED)
        facts = self.facts()
        for name, estimate in facts.estimates.items():
            self.first_estimates.setdefault(name, estimate)
        if (chosen := next_admission(facts).job) is not None:
            places = self.place(chosen)
            assert places is not None
            self.places[chosen.id] = places
            self.change(chosen, Happening.ADMITTED)

    @property
    def has_backlog(self) -> bool:
        """Whether a job of every queue waits."""
        waiting = {job.queue for job in self.jobs.values() if job.state is JobState.QUEUED}
        return waiting == set(self.queues)

    @property
    def is_done(self) -> bool:
        return all(job.state.has_ended for job in self.jobs.values())


def sixty_jobs(model: ClusterModel, seed: int, jitter: float = 0.05) -> list[tuple[float, Job, float]]:
    """Return (submission, job, real seconds) of 60 jobs: 1 to 4 slots, 60 to 180 s."""
    chance, names = random.Random(seed), list(model.queues)
    result = []
    for number in range(60):
        expected, queue = chance.uniform(60, 180), names[number % len(names)]
        job = make_job(f"job-{number}", queue, chance.randint(1, 4), expected_seconds=expected)
        at = number * 1.0
        result.append((at, replace(job, submitted=at), expected * chance.uniform(1 - jitter, 1 + jitter)))
    return result
