"""A cluster in memory, in simulated time, that a queue service's policy runs."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

from tf_executor.contract.states import Verdict
from tf_scheduler.model.ids import AgentId
from tf_scheduler.model.resources import UNIT, Needs
from tf_scheduler.queue.admission import Admission, QueueFacts, next_admission
from tf_scheduler.queue.estimates import Estimate, estimates, expected_end
from tf_scheduler.queue.job import Happening, Job, JobId, JobState
from tf_scheduler.queue.shares import Order, QueueSpec, QueueUsage, ordered, serve

#: Resources of a slot of the model, and of a ps.
SLOT = Needs(cpus=UNIT, mem=1000 * UNIT)
PS = Needs(cpus=UNIT // 20, mem=100 * UNIT)


def times(needs: Needs, count: int) -> Needs:
    return sum((needs,) * count, Needs())


def make_job(name: str, queue: str = "a", slots: int = 1, at: float = 0.0, ps: int = 0, **fields: Any) -> Job:
    tasks = (SLOT,) * slots + (PS,) * ps
    return Job(JobId(name), queue, f"user-{queue}", at, sum(tasks, Needs()), tasks, **fields)


@dataclass
class ClusterModel:
    """Agents with slots, and jobs that run as long as `seconds` says.

    `step` lets time pass, `run` plays until all jobs have ended. A decision follows each event.
    """

    queues: Mapping[str, QueueSpec]
    agents: int = 3
    slots: int = 4
    order: Order = Order.FAIR
    #: Seconds from the admission of a job until its launch.
    start_seconds: Callable[[], float] = lambda: 2.5
    now: float = 0.0
    jobs: dict[JobId, Job] = field(default_factory=dict)
    #: Real duration of each job.
    seconds: dict[JobId, float] = field(default_factory=dict)
    #: Jobs that are submitted later.
    arrivals: list[tuple[Job, float]] = field(default_factory=list)
    places: dict[JobId, dict[AgentId, Needs]] = field(default_factory=dict)
    free: dict[AgentId, Needs] = field(default_factory=dict)
    #: Times of launches of starting jobs.
    launches: dict[JobId, float] = field(default_factory=dict)
    served: Mapping[str, float] = field(default_factory=dict)
    #: Queue -> CPU-seconds, in thousandths.
    used: dict[str, float] = field(default_factory=dict)
    first_estimates: dict[JobId, Estimate] = field(default_factory=dict)
    first_starts: dict[JobId, float] = field(default_factory=dict)
    waits: Mapping[JobId, str] = field(default_factory=dict)
    #: CPU-seconds while jobs wait: in all, not used, and not used although a waiting job fits.
    offered: float = 0.0
    idle: float = 0.0
    wasted: float = 0.0
    #: Called after each decision.
    watch: Callable[[ClusterModel, Admission], None] = lambda model, admission: None

    def __post_init__(self) -> None:
        agent = times(SLOT, self.slots) + times(PS, 4)
        self.capacity = times(agent, self.agents)
        self.free = {AgentId(f"agent-{number}"): agent for number in range(self.agents)}

    def submit(self, job: Job, seconds: float) -> None:
        """Submit a job now, or at its time of submission."""
        self.arrivals.append((job, seconds))
        self.arrivals.sort(key=lambda each: -each[0].submitted)
        self._receive()

    def _receive(self) -> None:
        while self.arrivals and self.arrivals[-1][0].submitted <= self.now:
            job, seconds = self.arrivals.pop()
            self.jobs[job.id], self.seconds[job.id] = job, seconds

    def place(self, job: Job) -> dict[AgentId, Needs] | None:
        """Return what the job takes of the first agents with room; None: there is none."""
        taken: dict[AgentId, Needs] = {}
        for task in job.tasks:
            fitting = (name for name, has in self.free.items() if covers(has, taken.get(name, Needs()) + task))
            agent = next(fitting, None)
            if agent is None:
                return None
            taken[agent] = taken.get(agent, Needs()) + task
        return taken

    def of(self, *states: JobState) -> list[Job]:
        return [job for job in self.jobs.values() if job.state in states]

    def end_of(self, job: Job) -> float:
        return job.started + self.seconds[job.id]

    def expected_ends(self) -> dict[JobId, float]:
        """Return the ends that the service expects."""
        found = {job.id: expected_end(job.started, job.expected_seconds, self.now) for job in self.of(JobState.RUNNING)}
        return {name: end for name, end in found.items() if end is not None}

    def facts(self) -> QueueFacts:
        usage, ends = QueueUsage.of(self.jobs.values(), self.capacity), self.expected_ends()
        rest = {name: end - self.now for name, end in ends.items()}
        order = ordered(self.jobs.values(), self.queues, usage, self.order, self.served, rest)
        return QueueFacts(
            self.now,
            self.jobs,
            order,
            self.queues,
            usage,
            self.fits,
            ends=ends,
            free=self.free,
            held=self.places,
        )

    def expected(self, facts: QueueFacts) -> Mapping[JobId, Estimate]:
        return estimates(facts.order, self.jobs, facts.ends, self.free, self.places, self.now, self.queues)

    def fits(self, job: Job) -> str:
        return "" if self.place(job) is not None else "no room"

    def change(self, job: Job, happening: Happening, **fields: Any) -> None:
        self.jobs[job.id] = replace(job.after_event(happening, self.now), **fields)

    def run(self) -> None:
        """Play until all jobs have ended."""
        while self.arrivals or not self.is_done:
            self.step(self.next_event() - self.now)

    def next_event(self) -> float:
        """Return the time of the next event; while jobs wait, at most ten seconds later."""
        found = [*map(self.end_of, self.of(JobState.RUNNING)), *self.launches.values()]
        found += [job.submitted for job, _ in self.arrivals] + [self.now + 10] * bool(self.of(JobState.QUEUED))
        return max(self.now, min(found))

    def step(self, seconds: float) -> None:
        """Let time pass without events, then play those that are due, and decide."""
        self._spend(seconds)
        self.now += seconds
        self._receive()
        for job in self.of(JobState.RUNNING):
            if self.end_of(job) <= self.now:
                self.change(job, Happening.ENDED, verdict=Verdict.SUCCEEDED)
                for agent, needs in self.places.pop(job.id).items():
                    self.free[agent] += needs
        for job in self.of(JobState.STARTING):
            if self.launches[job.id] <= self.now:
                del self.launches[job.id]
                self.change(job, Happening.LAUNCHED)
        self.decide()

    def decide(self) -> Admission:
        facts = self.facts()
        if new := [job.id for job in facts.order if job.id not in self.first_estimates]:
            expected = self.expected(facts)
            self.first_estimates.update({name: expected[name] for name in new})
        admission = next_admission(facts)
        self.waits = admission.waits
        self.watch(self, admission)
        if admission.job is not None:
            self.admit(admission.job)
        return admission

    def admit(self, job: Job) -> None:
        places = self.place(job)
        assert places is not None
        self.places[job.id] = places
        for agent, needs in places.items():
            self.free[agent] = minus(self.free[agent], needs)
        self.first_starts.setdefault(job.id, self.now)
        self.launches[job.id] = self.now + self.start_seconds()
        self.change(job, Happening.ADMITTED)

    def _spend(self, seconds: float) -> None:
        usage, queued = QueueUsage.of(self.jobs.values(), self.capacity), self.of(JobState.QUEUED)
        self.served = serve(self.served, usage, self.queues, {job.queue for job in queued}, seconds)
        for name, needs in usage.used.items():
            self.used[name] = self.used.get(name, 0.0) + seconds * needs.cpus
        if queued:
            idle = seconds * sum(needs.cpus // UNIT * UNIT for needs in self.free.values())
            self.offered += seconds * self.agents * self.slots * UNIT
            self.idle += idle
            self.wasted += idle if any(not self.fits(job) for job in queued) else 0.0

    @property
    def has_backlog(self) -> bool:
        """Whether a job of every queue waits."""
        return {job.queue for job in self.of(JobState.QUEUED)} == set(self.queues)

    @property
    def is_done(self) -> bool:
        return all(job.state.has_ended for job in self.jobs.values())


def covers(has: Needs, needs: Needs) -> bool:
    return has.cpus >= needs.cpus and has.mem >= needs.mem and has.gpus >= needs.gpus


def minus(has: Needs, needs: Needs) -> Needs:
    return Needs(has.cpus - needs.cpus, has.mem - needs.mem, has.disk - needs.disk, has.gpus - needs.gpus)


@dataclass(frozen=True)
class Measures:
    """What came of a run."""

    #: Largest difference of a queue's CPU-seconds from its share while all have a backlog, in parts of what the largest
    #: gang uses; and that at the end of the backlog, in parts of all CPU-seconds.
    deviation: float
    at_end: float
    #: Part of the CPUs that work while jobs wait; and that without what no waiting job can use.
    allocated: float
    used: float
    #: Median error of the first estimates of jobs that wait for at least 30 s.
    estimate_error: float
    seconds: float


def measure(queues: Mapping[str, QueueSpec], seed: int, jobs: Iterable[tuple[Job, float]]) -> Measures:
    """Run jobs; the first job of each queue is submitted within a minute."""
    chance, jobs = random.Random(seed), list(jobs)
    model = ClusterModel(queues, start_seconds=lambda: chance.uniform(2, 3))
    for job, seconds in jobs:
        model.submit(job, seconds)
    work = [job.needs.cpus * seconds for job, seconds in jobs]
    weights = {name: queue.weight / sum(each.weight for each in queues.values()) for name, queue in queues.items()}
    differences = [0.0]

    def watch(model: ClusterModel, _: Admission) -> None:
        if model.now > 60 and model.has_backlog:
            total = sum(model.used.values())
            differences.append(max(abs(model.used.get(name, 0.0) - total * part) for name, part in weights.items()))

    model.watch = watch
    model.run()
    errors = []
    for job, _ in jobs:
        wait, estimate = model.first_starts[job.id] - job.submitted, model.first_estimates[job.id].at
        if wait >= 30:
            errors.append(1.0 if estimate is None else abs(estimate - job.submitted - wait) / wait)
    return Measures(
        max(differences) / max(work),
        differences[-1] / sum(work),
        1 - model.idle / model.offered,
        1 - model.wasted / model.offered,
        median(errors),
        model.now,
    )


def sixty_jobs(queues: Iterable[str], seed: int, jitter: float = 0.05) -> list[tuple[Job, float]]:
    """Return (job, real duration) of 60 gangs that are submitted within a minute.

    Of 1 to 4 slots, for 60 to 180 s; some have a ps.
    """
    chance, names = random.Random(seed), list(queues)
    result = []
    for number, at in enumerate(sorted(chance.uniform(0, 60) for _ in range(60))):
        expected, queue = chance.uniform(60, 180), names[number % len(names)]
        ps = chance.random() < 0.3
        job = make_job(f"job-{number}", queue, chance.randint(1, 4), at, ps, expected_seconds=expected)
        result.append((job, expected * chance.uniform(1 - jitter, 1 + jitter)))
    return result
