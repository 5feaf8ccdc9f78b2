"""Expected start of queued jobs: what happens if all ends come as expected."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tf_executor.contract.states import Verdict
from tf_executor.contract.text import list_names
from tf_scheduler.model.ids import UnixTime
from tf_scheduler.model.resources import Needs, format_thousandths

from .cluster import START_SECONDS, ClusterRoom, PassingRule, Room
from .job import Job, JobId, JobState
from .shares import RESOURCES, QueueSpec, QueueUsage

#: Starts that are imitated one by one, fewer on many agents; and jobs at which each start looks.
_EXACT, _EXACT_AGENTS, _COMPARED = 200, 20_000, 200


@dataclass(frozen=True, slots=True)
class Estimate:
    """When a job is expected to start. `at`: Unix time; None: unknown, see `grounds`."""

    at: UnixTime | None
    grounds: str
    #: Job whose end makes room; empty: none has to end.
    when: str = ""


class Forecast(Mapping[JobId, Estimate]):
    """Estimates of the queued jobs; those of the jobs far behind are made on demand."""

    def __init__(self, exact: Mapping[JobId, Estimate], behind: Sequence[Job], later: Callable[[Job, int], Estimate]):
        self._exact, self._later = exact, later
        self._behind = {job.id: (job, place) for place, job in enumerate(behind)}

    def __getitem__(self, name: JobId) -> Estimate:
        return self._exact[name] if name in self._exact else self._later(*self._behind[name])

    def __iter__(self) -> Iterator[JobId]:
        yield from self._exact
        yield from self._behind

    def __len__(self) -> int:
        return len(self._exact) + len(self._behind)


def expected_end(started: UnixTime, seconds: float, now: UnixTime) -> UnixTime | None:
    """Return when a running job is expected to end; None: unknown.

    A job that runs longer than expected is expected to take a twentieth more, until it has taken twice the time.
    """
    is_known = seconds > 0 and now < started + 2 * seconds
    return max(started + seconds, now + seconds / 20) if is_known else None


def estimates(
    order: Sequence[Job],
    jobs: Mapping[JobId, Job],
    ends: Mapping[JobId, UnixTime],
    free: Room,
    held: Mapping[JobId, Room],
    now: UnixTime,
    queues: Mapping[str, QueueSpec],
    seconds_of: Callable[[Job], float] = lambda job: job.expected_seconds,
) -> Mapping[JobId, Estimate]:
    """Return the expected start of the queued jobs.

    Args:
        order: Queued jobs in their order.
        jobs: All jobs.
        ends: Expected ends of running jobs; those without an estimate are missing.
        free: What is free now, by agent.
        held: What each running job gives back at its end, by agent.
        seconds_of: Expected duration of a queued job; 0: unknown.
    """
    cluster = ClusterRoom.of(jobs, ends, free, held, now, seconds_of)
    if any(job.state is JobState.STARTING for job in jobs.values()):
        cluster.now += START_SECONDS
    usage = QueueUsage.of(jobs.values(), Needs())
    future = _Future(cluster, jobs, queues, usage, list(order), seconds_of)
    future.limit = min(_EXACT, _EXACT_AGENTS // max(1, len(cluster.free)))
    while future.waiting and len(future.found) < future.limit and future.step():
        pass
    return Forecast(future.found, future.waiting, future.later(now))


@dataclass(slots=True)
class _Future:
    """What happens to the waiting jobs, in expected time."""

    cluster: ClusterRoom
    jobs: Mapping[JobId, Job]
    queues: Mapping[str, QueueSpec]
    usage: QueueUsage
    waiting: list[Job]
    seconds_of: Callable[[Job], float]
    limit: int = _EXACT
    found: dict[JobId, Estimate] = field(default_factory=dict)
    #: Jobs that have ended, in order.
    ended: dict[JobId, Job] = field(default_factory=dict)

    def step(self) -> bool:
        """Start a job, or let time pass until something changes; False: nothing will."""
        cluster = self.cluster
        while cluster.ends and cluster.ends[0][0] <= cluster.now:
            name = cluster.end_next()
            self.ended[name] = self.jobs[name]
            self.usage = self.usage.changed(self.jobs[name], -1)
        if self._start_next():
            cluster.now += START_SECONDS
            return True
        pauses = [job.not_before for job in self.waiting[:_COMPARED] if job.not_before > cluster.now]
        until = min([*pauses, *(each[0] for each in cluster.ends[:1])], default=math.inf)
        cluster.now = cluster.now if until == math.inf else until
        return until < math.inf

    def _start_next(self) -> bool:
        """Start the first job that may start, as `next_admission` would."""
        rule = PassingRule(self.cluster)
        for place, job in enumerate(self.waiting[:_COMPARED]):
            if not self._is_its_turn(job) or not rule.permits(job, self.seconds_of(job)):
                continue
            taken = self.cluster.place(job)
            if taken is None:
                rule.add(job)
                continue
            del self.waiting[place]
            self.cluster.start(job, taken, self.seconds_of(job))
            self.usage = self.usage.changed(job, 1)
            last = next(reversed(self.ended.values()), None)
            self.found[job.id] = Estimate(self.cluster.now, _grounds(last), last.id if last else "")
            return True
        return False

    def _is_its_turn(self, job: Job) -> bool:
        is_limited = self.usage.over_limit(self.queues[job.queue], job.needs)
        return job.not_before <= self.cluster.now and not is_limited and not self._before(job)

    def _before(self, job: Job) -> list[JobId]:
        """Return those of `after` that have not succeeded."""
        return [name for name in job.after if name not in self.ended and not _has_succeeded(self.jobs.get(name))]

    def later(self, now: UnixTime) -> Callable[[Job, int], Estimate]:
        """Return the function that estimates the jobs behind, by their place there."""
        endless, empty = self.cluster.endless, self.cluster.copy()
        while empty.ends:
            empty.end_next()
        total = empty.total()
        starts = [each.at for each in self.found.values() if each.at is not None]
        pace = (max(starts) - now) / len(starts) if starts else 0.0

        def estimate(job: Job, place: int) -> Estimate:
            lacks = [name for name, has in zip(RESOURCES, total, strict=True) if getattr(job.needs, name) > has]
            at, why = None, QueueUsage(Needs()).over_limit(self.queues[job.queue], job.needs)
            if lacks:
                why = f"the cluster has too little {' and '.join(lacks)} for it"
            elif not empty.copy().has_room(job):  # a copy: several threads ask
                why = "no agents have places for its tasks, even if all jobs end"
            elif not why and (before := self._before(job)):
                why = f"it comes after {list_names(before)}"
            elif not why and len(self.found) >= self.limit:
                count = place + len(self.found)
                at, why = now + pace * count, f"about: {count:,} jobs are before it"
            elif not why and endless:
                why = f"{list_names(endless)} {'has' if len(endless) == 1 else 'have'} no expected end"
            return Estimate(at, why or "no running job has to end for it")

        return estimate


def _grounds(last: Job | None) -> str:
    """Return why a job starts after the end of another one."""
    if last is None:
        return "there is room now"
    name = "gpus" if last.needs.gpus else "cpus"
    return f"when {last.id} ends and gives back {format_thousandths(getattr(last.needs, name))} {name}"


def _has_succeeded(job: Job | None) -> bool:
    return job is not None and job.verdict is Verdict.SUCCEEDED
