"""Expected start of queued jobs: what happens if all ends come as expected."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from tf_executor.contract.states import Verdict
from tf_executor.contract.text import list_names
from tf_scheduler.model.ids import AgentId, UnixTime
from tf_scheduler.model.resources import Needs, format_thousandths

from .job import Job, JobId, JobState
from .shares import RESOURCES, QueueSpec

#: Resources by agent.
Room = Mapping[AgentId, Needs]
_Amounts = tuple[int, ...]

#: Seconds from the admission of a job until the next one may be admitted.
START_SECONDS = 3.0
#: Starts that are imitated one by one; and jobs that are compared with the room after each end.
_EXACT, _COMPARED = 200, 30
#: From this number of agents on, all agents together count as one.
_MANY = 100


@dataclass(frozen=True, slots=True)
class Estimate:
    """When a job is expected to start. `at`: Unix time; None: unknown, see `grounds`."""

    at: UnixTime | None
    grounds: str
    #: Job whose end makes room; empty: none has to end.
    when: str = ""


#: Minimum seconds that a job waits before smaller jobs behind it must end in time for it.
SHORTEST_HOLD = 60.0


def longest_hold(ends: Mapping[JobId, UnixTime], now: UnixTime) -> float:
    """Return the seconds after which smaller jobs may no longer delay a waiting job.

    Twice the longest time in which a running job is expected to end. From then on, only jobs that end before its
    expected start are admitted behind it. So a job whose turn has come waits for at most this time, and until the jobs
    end that run then.
    """
    return max(SHORTEST_HOLD, 2 * max((end - now for end in ends.values()), default=0.0))


@dataclass(slots=True)
class _Cluster:
    """Free amounts by agent, and what ends when."""

    free: list[list[int]]
    #: Agents with GPUs: Mesos offers them only to jobs that ask for GPUs.
    kept: set[int]
    #: (end, job, (agent, amounts) of its tasks).
    ends: list[tuple[UnixTime, JobId, list[tuple[int, _Amounts]]]]
    #: Jobs without an expected end.
    endless: list[JobId]

    def place(self, job: Job) -> list[tuple[int, _Amounts]] | None:
        """Take the first agents with room, largest tasks first; None: nothing is taken."""
        taken: list[tuple[int, _Amounts]] = []
        barred = set[int]() if job.needs.gpus else self.kept
        for task in job.tasks:
            amounts = _amounts(task)
            free = (place for place, has in enumerate(self.free) if _covers(has, amounts) and place not in barred)
            agent = next(free, None)
            if agent is None:
                self.give(taken)
                return None
            self.free[agent] = [has - amount for has, amount in zip(self.free[agent], amounts, strict=True)]
            taken.append((agent, amounts))
        return taken

    def start_of(self, job: Job) -> UnixTime:
        """Return when the job has room if no other starts; 0: unknown."""
        before = [list(agent) for agent in self.free]
        start = 0.0
        for end, _, given in sorted(self.ends):
            self.give(given)
            if self.place(job) is not None:
                start = end
                break
        self.free = before
        return start

    def give(self, taken: Iterable[tuple[int, _Amounts]]) -> None:
        for agent, amounts in taken:
            self.free[agent] = [has + amount for has, amount in zip(self.free[agent], amounts, strict=True)]


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
    cluster, total = _cluster(jobs, ends, free, held, now)
    running = dict.fromkeys(queues, 0)
    for job in jobs.values():
        if job.state.has_scheduler:
            running[job.queue] = running.get(job.queue, 0) + 1
    waiting, found, freed = list(order), dict[JobId, Estimate](), ""
    at = now + START_SECONDS * any(job.state is JobState.STARTING for job in jobs.values())
    while waiting and len(found) < _EXACT:
        hold = longest_hold({name: end for end, name, _ in cluster.ends}, at)
        chosen = _next(waiting, cluster, at, hold, found, jobs, running, queues, seconds_of)
        if chosen is not None:
            job, taken = chosen
            waiting.remove(job)
            found[job.id] = Estimate(at, _grounds(job, freed), freed)
            running[job.queue] = running.get(job.queue, 0) + 1
            if seconds := seconds_of(job):
                heappush(cluster.ends, (at + seconds, job.id, taken))
            else:
                cluster.endless.append(job.id)
            at += START_SECONDS
        elif cluster.ends:
            end, freed, given = heappop(cluster.ends)
            at = max(at, end)
            cluster.give(given)
            running[jobs[freed].queue] -= 1
        else:
            break
    return {**found, **_later(waiting, found, cluster, total, now)}


def _cluster(
    jobs: Mapping[JobId, Job], ends: Mapping[JobId, UnixTime], free: Room, held: Mapping[JobId, Room], now: UnixTime
) -> tuple[_Cluster, list[int]]:
    """Return the cluster now, and its amounts when all running jobs have ended."""
    names = sorted({*free, *(agent for room in held.values() for agent in room)})
    place = {name: 0 if len(names) > _MANY else index for index, name in enumerate(names)}
    gpus = {name for room in (free, *held.values()) for name, needs in room.items() if needs.gpus}
    kept = {place[name] for name in gpus} if len(names) <= _MANY else set[int]()
    cluster = _Cluster([[0] * len(RESOURCES) for _ in set(place.values())], kept, [], [])
    cluster.give((place[name], _amounts(needs)) for name, needs in free.items())
    total = [sum(column) for column in zip(*cluster.free, strict=True)] or [0] * len(RESOURCES)
    for job in jobs.values():
        if not job.state.has_scheduler:
            continue
        taken = [(place[agent], _amounts(needs)) for agent, needs in held.get(job.id, {}).items()]
        for _, amounts in taken:
            total = [one + other for one, other in zip(total, amounts, strict=True)]
        if job.id in ends:
            cluster.ends.append((max(now, ends[job.id]), job.id, taken))
        else:
            cluster.endless.append(job.id)
    heapify(cluster.ends)
    return cluster, total


def _next(
    waiting: Sequence[Job],
    cluster: _Cluster,
    at: UnixTime,
    hold: float,
    found: Mapping[JobId, Estimate],
    jobs: Mapping[JobId, Job],
    running: Mapping[str, int],
    queues: Mapping[str, QueueSpec],
    seconds_of: Callable[[Job], float],
) -> tuple[Job, list[tuple[int, _Amounts]]] | None:
    """Return the first job with room, and its places.

    Behind one that waits for long, only a job that ends before its start.
    """
    limit_end = math.inf
    for job in waiting[:_COMPARED]:
        limit = queues[job.queue].max_jobs
        is_open = all(name in found or (name in jobs and jobs[name].verdict is Verdict.SUCCEEDED) for name in job.after)
        is_open = is_open and job.not_before <= at and not (limit and running.get(job.queue, 0) >= limit)
        ends_in_time = limit_end == math.inf or (seconds_of(job) and at + seconds_of(job) <= limit_end)
        if not (is_open and ends_in_time):
            continue
        if (taken := cluster.place(job)) is not None:
            return job, taken
        if limit_end == math.inf and at - job.submitted >= hold:
            limit_end = cluster.start_of(job)
    return None


def _grounds(job: Job, freed: str) -> str:
    if not freed:
        return "there is room now"
    amounts = (
        f"{format_thousandths(amount)} {name}" for name, amount in job.needs.scalars() if name in ("gpus", "cpus")
    )
    return f"when {freed} ends; it needs {' and '.join(amounts)}"


def _later(
    waiting: Sequence[Job], found: Mapping[JobId, Estimate], cluster: _Cluster, total: Sequence[int], now: UnixTime
) -> dict[JobId, Estimate]:
    """Return what is known of jobs behind those that were imitated one by one."""
    endless = list_names([*cluster.endless[:3], *(["others"] if len(cluster.endless) > 3 else [])])
    last = max((each.at for each in found.values() if each.at is not None), default=now)
    pace, result = (last - now) / max(1, len(found)), dict[JobId, Estimate]()
    for place, job in enumerate(waiting):
        lacks = [
            name for name, has, want in zip(RESOURCES, total, _amounts(_sum(job.tasks)), strict=True) if want > has
        ]
        if job.after and not lacks:
            result[job.id] = Estimate(None, f"it comes after {list_names(job.after)}")
        elif lacks:
            result[job.id] = Estimate(None, f"the cluster has too little {' and '.join(lacks)} for it")
        elif len(found) >= _EXACT:
            before = place + len(found)
            result[job.id] = Estimate(now + pace * before, f"about: {before:,} jobs are before it")
        elif cluster.endless:
            verb = "has" if len(cluster.endless) == 1 else "have"
            result[job.id] = Estimate(None, f"{endless} {verb} no expected end")
        else:
            result[job.id] = Estimate(None, "no running job has to end for it")
    return result


def _sum(tasks: Iterable[Needs]) -> Needs:
    return sum(tasks, Needs())


def _amounts(needs: Needs) -> _Amounts:
    return tuple(getattr(needs, name) for name in RESOURCES)


def _covers(has: Sequence[int], amounts: _Amounts) -> bool:
    return all(have >= amount for have, amount in zip(has, amounts, strict=True))
