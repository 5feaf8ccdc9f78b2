"""Which running jobs make room for a more urgent one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum

from tf_scheduler.model.ids import UnixTime
from tf_scheduler.model.resources import Needs

from .job import Job, JobId, JobState
from .shares import QueueSpec, QueueUsage, dominant


class Preemption(str, Enum):
    """Which jobs may be stopped for another job."""

    NEVER = "never"
    #: Those of lower priority.
    PRIORITY = "priority"
    #: Also those of queues that use more than their weighted share, for a queue that would still use less.
    FAIR = "fair"


def victims(
    urgent: Job,
    running: Iterable[Job],
    usage: QueueUsage,
    queues: Mapping[str, QueueSpec],
    mode: Preemption,
    fits_without: Callable[[tuple[Job, ...]], bool],
    lost_seconds: Mapping[JobId, float],
    now: UnixTime,
    min_runtime: float,
) -> tuple[Job, ...]:
    """Return the fewest jobs that must stop for the urgent one; (): none can help.

    First those of the queue most over its share, then of the lowest priority, then who loses the least work. Jobs that
    run for less than `min_runtime` seconds stay.

    Args:
        fits_without: Whether the urgent job fits if these jobs stop.
        lost_seconds: Work since the last checkpoint, where known; unknown counts as the time since the start.
    """
    own = usage.used.get(urgent.queue, Needs()) + urgent.needs
    own_share = dominant(own, usage.capacity) / queues[urgent.queue].weight
    shares = {name: usage.share(queue) for name, queue in queues.items()}

    def may_stop(job: Job) -> bool:
        if job.state is not JobState.RUNNING or now - job.started < min_runtime:
            return False
        if job.priority < urgent.priority:
            return mode is not Preemption.NEVER
        return mode is Preemption.FAIR and job.priority == urgent.priority and shares[job.queue] > own_share

    def cost(job: Job) -> tuple[float, int, float, str]:
        return -shares[job.queue], job.priority, lost_seconds.get(job.id, now - job.started), job.id

    chosen: list[Job] = []
    for job in sorted(filter(may_stop, running), key=cost):
        chosen.append(job)
        if fits_without(tuple(chosen)):
            break
    else:
        return ()
    for job in chosen[:-1]:
        others = tuple(each for each in chosen if each is not job)
        if fits_without(others):
            chosen.remove(job)
    return tuple(chosen)
