"""Free room by agent, what ends of jobs give back, and who may pass."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

from tf_scheduler.model.ids import AgentId, UnixTime
from tf_scheduler.model.resources import Needs

from .job import Job, JobId, JobState

#: Amounts by agent.
Room = Mapping[AgentId, Needs]
#: What tasks take: (place of the agent, cpus, mem, gpus).
_Taken = list[tuple[int, int, int, int]]

#: Seconds from the admission of a job until the next one may be admitted.
START_SECONDS = 3.0


@dataclass(slots=True)
class ClusterRoom:
    """Free amounts by agent, and what ends when.

    Tasks take the first agents with room.
    """

    now: UnixTime
    #: [cpus, mem, gpus] of each agent.
    free: list[list[int]]
    #: Agents with GPUs: Mesos offers them only to jobs that ask for GPUs.
    barred: frozenset[int]
    #: Heap of (end, start, job, what it gives back); the end is infinite if it is unknown.
    ends: list[tuple[UnixTime, UnixTime, JobId, _Taken]] = field(default_factory=list)
    #: Tasks of jobs for which there is not enough room.
    _too_big: set[tuple[Needs, ...]] = field(default_factory=set)

    @classmethod
    def of(
        cls,
        jobs: Mapping[JobId, Job],
        ends: Mapping[JobId, UnixTime],
        free: Room,
        held: Mapping[JobId, Room],
        now: UnixTime,
        seconds_of: Callable[[Job], float],
    ) -> ClusterRoom:
        """Return the cluster now. A job that starts has its places already."""
        names = sorted({*free, *(agent for room in held.values() for agent in room)})
        place = {name: index for index, name in enumerate(names)}
        with_gpus = {place[name] for room in (free, *held.values()) for name, needs in room.items() if needs.gpus}
        cluster = cls(now, [[0, 0, 0] for _ in names], frozenset(with_gpus))
        cluster.give((place[name], needs.cpus, needs.mem, needs.gpus) for name, needs in free.items())
        for job in jobs.values():
            if job.state is not JobState.QUEUED and job.state.has_scheduler:
                room = held.get(job.id, {}).items()
                taken = [(place[agent], needs.cpus, needs.mem, needs.gpus) for agent, needs in room]
                if not taken and job.state is JobState.STARTING:
                    taken = cluster.place(job) or []
                cluster.ends.append((_end_of(job, ends, now, seconds_of), job.since, job.id, taken))
        heapify(cluster.ends)
        return cluster

    @property
    def endless(self) -> list[JobId]:
        """Jobs without an expected end."""
        return sorted(name for end, _, name, _ in self.ends if end == math.inf)

    def place(self, job: Job) -> _Taken | None:
        """Take room for all tasks of a job; None: nothing is taken."""
        if job.tasks in self._too_big:
            return None
        taken, agent, last = _Taken(), 0, None
        barred = () if job.needs.gpus else self.barred
        for task in job.tasks:
            agent = agent if task == last else 0  # agents before have no room for an equal task
            while agent < len(self.free):
                has = self.free[agent]
                if has[0] >= task.cpus and has[1] >= task.mem and has[2] >= task.gpus and agent not in barred:
                    break
                agent += 1
            else:
                self._add(taken)
                self._too_big.add(job.tasks)
                return None
            taken.append((agent, task.cpus, task.mem, task.gpus))
            self._add([(agent, -task.cpus, -task.mem, -task.gpus)])
            last = task
        return taken

    def has_room(self, job: Job) -> bool:
        taken = self.place(job)
        self._add(taken or ())
        return taken is not None

    def give(self, taken: Iterable[tuple[int, int, int, int]]) -> None:
        """Give room back."""
        self._add(taken)
        self._too_big.clear()

    def _add(self, amounts: Iterable[tuple[int, int, int, int]]) -> None:
        for agent, cpus, mem, gpus in amounts:
            has = self.free[agent]
            has[0], has[1], has[2] = has[0] + cpus, has[1] + mem, has[2] + gpus

    def start(self, job: Job, taken: _Taken, seconds: float) -> None:
        """Let a job that has its places start; 0 seconds: unknown."""
        end = self.now + START_SECONDS + seconds if seconds else math.inf
        heappush(self.ends, (end, self.now, job.id, taken))

    def end_next(self) -> JobId:
        """End the job that ends first; of those with unknown ends, the oldest."""
        *_, name, taken = heappop(self.ends)
        self.give(taken)
        return name

    def copy(self) -> ClusterRoom:
        return ClusterRoom(self.now, [list(has) for has in self.free], self.barred, list(self.ends))

    def total(self) -> list[int]:
        """Return the free cpus, mem and gpus of all agents."""
        return [sum(has[index] for has in self.free) for index in range(3)]

    def start_of(self, job: Job) -> tuple[UnixTime, UnixTime] | None:
        """Return the end, and the start, of the job whose end makes room; None: none."""
        later, last, needs = self.copy(), (self.now, 0.0), job.needs
        total = later.total()
        while total[0] < needs.cpus or total[1] < needs.mem or total[2] < needs.gpus or not later.has_room(job):
            if not later.ends:
                return None
            end, since, _, taken = heappop(later.ends)
            later.give(taken)
            total = [total[index] + sum(each[index + 1] for each in taken) for index in range(3)]
            last = end, since
        return last


@dataclass(slots=True)
class PassingRule:
    """Which jobs may start before the first one that lacks room.

    Those with which it does not start later. So it starts at the latest when the jobs end that run when it becomes the
    first, if they end as expected.
    """

    room: ClusterRoom
    first: Job | None = None
    #: Its `start_of`, if none passes it.
    start: tuple[UnixTime, UnixTime] = (0.0, 0.0)
    #: Tasks of jobs -> shortest duration that would delay the first one: longer ones need no comparison.
    _too_long: dict[tuple[Needs, ...], float] = field(default_factory=dict)

    def add(self, job: Job) -> None:
        """Note a job that does not fit; it is the first if ends of jobs will help it."""
        if self.first is None and not self.room.has_room(job) and (start := self.room.start_of(job)) is not None:
            self.first, self.start = job, start

    def permits(self, job: Job, seconds: float) -> bool:
        """Whether a job may start now that lasts so long; 0: unknown."""
        if self.first is None or not self.room.has_room(job):
            return True
        duration = seconds or math.inf
        if job.tasks in self._too_long and duration >= self._too_long[job.tasks]:
            return False
        later = self.room.copy()
        taken = later.place(job)
        if taken is not None and seconds:
            later.start(job, taken, seconds)
        start = later.start_of(self.first)
        is_in_time = start is not None and start <= self.start
        if not is_in_time:
            self._too_long[job.tasks] = duration
        return is_in_time


def _end_of(job: Job, ends: Mapping[JobId, UnixTime], now: UnixTime, seconds_of: Callable[[Job], float]) -> UnixTime:
    if job.state in (JobState.REQUEUING, JobState.CANCELLING):
        return now + START_SECONDS
    if job.state is JobState.STARTING and (seconds := seconds_of(job)):
        return now + START_SECONDS + seconds
    return max(now, ends.get(job.id, math.inf))
