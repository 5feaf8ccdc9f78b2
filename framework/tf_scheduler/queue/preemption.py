"""Which running jobs make room for a more urgent one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from itertools import combinations

from tf_scheduler.model.ids import UnixTime
from tf_scheduler.model.resources import Needs

from .job import Job, JobId, JobState
from .shares import QueueSpec, QueueUsage, dominant

#: First jobs of which each one, and each pair, is compared with what is needed.
_COMPARED = 10


class Preemption(str, Enum):
    """Which jobs may be stopped for another job."""

    NEVER = "never"
    #: Those of lower priority.
    PRIORITY = "priority"
    #: Also those of queues that use more than their share, for a queue that then uses at most its share.
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
    """Return jobs that must stop for the urgent one, none to spare; (): none help.

    One or two of the first ten if these are enough. Jobs are considered first if they are of the queue most over its
    share, then of the lowest priority, then if they lose the least work. Those that run for less than `min_runtime`
    seconds stay.

    Args:
        urgent: A job that does not fit now.
        fits_without: Whether the urgent job fits if these jobs stop.
        lost_seconds: Work since the last checkpoint, where known; unknown counts as the time since the start.
    """
    active = {urgent.queue, *(name for name, count in usage.jobs.items() if count)}
    fair_share = 1 / sum(queues[name].weight for name in active)
    own = usage.used.get(urgent.queue, Needs()) + urgent.needs
    is_below = dominant(own, usage.capacity) / queues[urgent.queue].weight <= fair_share
    shares = {name: usage.share(queue) for name, queue in queues.items()}

    def may_stop(job: Job) -> bool:
        if mode is Preemption.NEVER or job.state is not JobState.RUNNING or now - job.started < min_runtime:
            return False
        is_over = mode is Preemption.FAIR and is_below and shares[job.queue] > fair_share
        return job.priority < urgent.priority or (job.priority == urgent.priority and is_over)

    def cost(job: Job) -> tuple[float, int, float, str]:
        return -shares[job.queue], job.priority, lost_seconds.get(job.id, now - job.started), job.id

    candidates = sorted(filter(may_stop, running), key=cost)
    if not candidates or not fits_without(tuple(candidates)):
        return ()
    for count in (1, 2):
        for group in combinations(candidates[:_COMPARED], count):
            if fits_without(group):
                return group
    chosen = candidates
    for job in reversed(candidates):
        others = [each for each in chosen if each is not job]
        if fits_without(tuple(others)):
            chosen = others
    return tuple(chosen)
