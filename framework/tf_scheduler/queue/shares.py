"""Dominant shares of queues, what they were served, limits, and the order.

Dominant resource fairness: the share of a queue is the largest of its parts of cpus, mem and gpus, divided by its
weight (Ghodsi et al., NSDI 2011). Over time, queues are compared as in start-time fair queueing (Goyal et al., SIGCOMM
1996): by their share times the seconds for which they had it, since they last had nothing to run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cache
from heapq import heapify, heappop, heapreplace
from typing import Any

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
            if job.state.has_scheduler:
                used[job.queue] = used.get(job.queue, Needs()) + job.needs
                counts[job.queue] = counts.get(job.queue, 0) + 1
        return cls(capacity, used, counts)

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
    parts = ((getattr(used, name), getattr(capacity, name)) for name in RESOURCES)
    return max((amount / total if total else 1.0 for amount, total in parts if amount), default=0.0)


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
        rest: Expected seconds until the ends of running jobs; those that are missing run as long as they have run.
        seconds_of: Expected duration of a queued job.
    """
    every = tuple(jobs)
    queued = [job for job in every if job.state is JobState.QUEUED]
    if order is not Order.FAIR:
        key: Callable[[Job], Any] = _by_priority if order is Order.PRIORITY else _by_time
        return sorted(queued, key=key)
    share_of = cache(lambda needs: dominant(needs, usage.capacity))  # thousands of jobs have the same needs

    def charge_of(job: Job, seconds: float) -> float:
        return float(share_of(job.needs) * seconds / queues[job.queue].weight)

    charges = dict(served or {})
    for job in every:
        if job.state.has_scheduler:
            charge = charge_of(job, (rest or {}).get(job.id, seconds_of(job)))
            charges[job.queue] = charges.get(job.queue, 0.0) + charge
    lines: dict[str, list[Job]] = {}
    for job in sorted(queued, key=_by_priority, reverse=True):
        lines.setdefault(job.queue, []).append(job)  # the first is last
    heap = [(charges.get(name, 0.0), *_by_priority(line[-1]), name) for name, line in lines.items()]
    heapify(heap)
    result: list[Job] = []
    while heap:
        charge, name = heap[0][0], heap[0][-1]
        job = lines[name].pop()
        result.append(job)
        if lines[name]:
            charge += charge_of(job, seconds_of(job))
            heapreplace(heap, (charge, *_by_priority(lines[name][-1]), name))
        else:
            heappop(heap)
    return result


def _by_time(job: Job) -> tuple[float, str]:
    return job.submitted, job.id


def _by_priority(job: Job) -> tuple[int, float, str]:
    return -job.priority, job.submitted, job.id
