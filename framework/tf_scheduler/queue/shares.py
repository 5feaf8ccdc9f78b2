"""Dominant shares of queues, what they were served, limits, and the order.

Dominant resource fairness: the share of a queue is the largest of its parts of cpus, mem and gpus, divided by its
weight (Ghodsi et al., NSDI 2011). Over time, queues are compared as in start-time fair queueing (Goyal et al., SIGCOMM
1996): by their share times the seconds for which they had it, since they last had nothing to run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from heapq import heapify, heappop, heapreplace
from operator import attrgetter

from tf_scheduler.model.resources import Needs, format_thousandths

from .job import Job, JobId, JobState

#: Resources that count for shares and limits.
RESOURCES = ("cpus", "mem", "gpus")
#: Seconds that a job of unknown duration is expected to run.
UNKNOWN_SECONDS = 600.0


class Order(str, Enum):
    """Which job comes next."""

    #: Of the queue that has been served least; then by priority, then by time.
    FAIR = "fair"
    PRIORITY = "priority"
    FIFO = "fifo"


@dataclass(frozen=True, slots=True)
class QueueSpec:
    """Options of one queue. Limits: maximum amounts of its running jobs; 0: no limit."""

    name: str
    weight: float = 1.0
    limits: Needs = field(default_factory=Needs)
    max_jobs: int = 0


@dataclass(frozen=True, slots=True)
class QueueUsage:
    """What the jobs with a scheduler use, by queue, of a capacity."""

    capacity: Needs
    used: Mapping[str, Needs] = field(default_factory=dict)
    jobs: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, jobs: Iterable[Job], capacity: Needs) -> QueueUsage:
        used: dict[str, Needs] = {}
        counts: dict[str, int] = {}
        for job in jobs:
            if job.state is not JobState.QUEUED and job.state.has_scheduler:
                used[job.queue] = used.get(job.queue, Needs()) + job.needs
                counts[job.queue] = counts.get(job.queue, 0) + 1
        return cls(capacity, used, counts)

    def changed(self, job: Job, count: int) -> QueueUsage:
        """Return the usage with a job more, or less for -1."""
        needs, has = job.needs, self.used.get(job.queue, Needs())
        used = Needs(*(getattr(has, name) + count * getattr(needs, name) for name in Needs.__slots__))
        jobs = {**self.jobs, job.queue: self.jobs.get(job.queue, 0) + count}
        return QueueUsage(self.capacity, {**self.used, job.queue: used}, jobs)

    def share(self, queue: QueueSpec) -> float:
        """Return the dominant share of a queue, divided by its weight."""
        return dominant(self.used.get(queue.name, Needs()), self.capacity) / queue.weight

    def over_limit(self, queue: QueueSpec, needs: Needs) -> str:
        """Return which limit of the queue one more job would exceed; empty: none."""
        if queue.max_jobs and self.jobs.get(queue.name, 0) >= queue.max_jobs:
            return f"queue {queue.name} runs {queue.max_jobs} of {queue.max_jobs} jobs (max_jobs)"
        used = self.used.get(queue.name, Needs())
        for name in RESOURCES:
            limit, wanted, has = (getattr(each, name) for each in (queue.limits, needs, used))
            if limit and wanted and has + wanted > limit:
                has, limit, wanted = map(format_thousandths, (has, limit, wanted))
                return f"queue {queue.name} uses {has} of {limit} {name} (limits), and the job needs {wanted}"
        return ""


def dominant(used: Needs, capacity: Needs) -> float:
    """Return the largest part of a resource that is used; any part of nothing is all."""
    return max(
        used.cpus / (capacity.cpus or used.cpus or 1),
        used.mem / (capacity.mem or used.mem or 1),
        used.gpus / (capacity.gpus or used.gpus or 1),
    )


#: Queue -> its share times seconds, for the queues that have jobs.
Served = Mapping[str, float]


def serve(
    served: Served, usage: QueueUsage, queues: Mapping[str, QueueSpec], waiting: Iterable[str], seconds: float
) -> Served:
    """Return what the queues have been served after some seconds.

    A queue that had no jobs starts with the least of the others: idle time gives neither credit nor debt.
    """
    active = {*waiting, *(name for name, count in usage.jobs.items() if count)} & queues.keys()
    known = [served[name] for name in active if name in served]
    least = min(known, default=0.0)
    return {name: served.get(name, least) - least + usage.share(queues[name]) * seconds for name in active}


def ordered(
    jobs: Iterable[Job],
    queues: Mapping[str, QueueSpec],
    usage: QueueUsage,
    order: Order,
    served: Served | None = None,
    rest: Mapping[JobId, float] | None = None,
    seconds_of: Callable[[Job], float] = lambda job: job.expected_seconds or UNKNOWN_SECONDS,
) -> list[Job]:
    """Return the queued jobs in the order in which they are admitted if all fit.

    With FAIR, the next job is of the queue with the least of what it has been served and what its running jobs and its
    jobs before are expected to get.

    Args:
        jobs: All jobs; running ones are charged to their queues.
        rest: Expected seconds until the ends of running jobs, where known.
        seconds_of: Expected duration of a job.
    """
    queued: list[Job] = []
    charges = dict(served or {})

    def charge_of(job: Job, seconds: float) -> float:
        return dominant(job.needs, usage.capacity) * seconds / queues[job.queue].weight

    for job in jobs:
        if job.state is JobState.QUEUED:
            queued.append(job)
        elif job.state.has_scheduler:
            seconds = (rest or {}).get(job.id, seconds_of(job))
            charges[job.queue] = charges.get(job.queue, 0.0) + charge_of(job, seconds)
    queued.sort(key=attrgetter("submitted", "id"))
    if order is not Order.FIFO:
        queued.sort(key=attrgetter("priority"), reverse=True)  # stable
    if order is not Order.FAIR:
        return queued
    lines: dict[str, list[int]] = {}
    for place in reversed(range(len(queued))):
        lines.setdefault(queued[place].queue, []).append(place)  # the first is last
    heap = [(charges.get(name, 0.0), line.pop()) for name, line in lines.items()]
    heapify(heap)
    result: list[Job] = []
    while heap:
        charge, place = heap[0]
        job = queued[place]
        result.append(job)
        if line := lines[job.queue]:
            heapreplace(heap, (charge + charge_of(job, seconds_of(job)), line.pop()))
        else:
            heappop(heap)
    return result
