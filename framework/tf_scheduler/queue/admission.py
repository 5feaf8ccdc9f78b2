"""Which queued job is admitted next, and why the others wait."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

from tf_executor.contract.states import Verdict
from tf_executor.contract.text import format_duration
from tf_scheduler.model.ids import UnixTime

from .cluster import ClusterRoom, PassingRule, Room
from .estimates import Estimate
from .job import Job, JobId, JobState
from .shares import QueueSpec, QueueUsage

#: Waiting jobs that are compared with what is free; each comparison costs up to a millisecond.
MAX_COMPARED = 100


@dataclass(frozen=True, slots=True)
class QueueFacts:
    """What an admission depends on."""

    now: UnixTime
    #: All jobs, and the queued ones in their order.
    jobs: Mapping[JobId, Job]
    order: Sequence[Job]
    queues: Mapping[str, QueueSpec]
    usage: QueueUsage
    #: Returns why a job does not fit what is free now; empty: it fits.
    fits: Callable[[Job], str]
    #: Expected duration of a job in seconds; 0: unknown.
    seconds_of: Callable[[Job], float] = lambda job: job.expected_seconds
    #: Expected ends of running jobs, where known.
    ends: Mapping[JobId, UnixTime] = field(default_factory=dict)
    estimates: Mapping[JobId, Estimate] = field(default_factory=dict)
    #: What is free now, and what each running job gives back at its end, by agent.
    free: Room = field(default_factory=dict)
    held: Mapping[JobId, Room] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Admission:
    """The job to admit, or None; and why jobs wait: all before it, and some behind it."""

    job: Job | None = None
    waits: Mapping[JobId, str] = field(default_factory=dict)
    #: Those that wait for nothing but room.
    lack_room: Sequence[Job] = ()


def next_admission(facts: QueueFacts) -> Admission:
    """Return the next job to admit. One gang starts at a time.

    No job starves: if the first job in the order lacks room, others start only if that does not delay it. So it starts
    at the latest when the jobs end that run then, if they end as expected.
    """
    starting = next((job for job in facts.jobs.values() if job.state is JobState.STARTING), None)
    # A late job may end any moment: otherwise jobs with wrong durations could pass forever.
    late = {job.id: facts.now for job in facts.jobs.values() if job.state is JobState.RUNNING and facts.seconds_of(job)}
    ends = {**late, **facts.ends}
    rule = PassingRule(ClusterRoom.of(facts.jobs, ends, facts.free, facts.held, facts.now, facts.seconds_of))
    waits: dict[JobId, str] = {}
    lack_room: list[Job] = []
    over_limit = cache(lambda queue, needs: facts.usage.over_limit(facts.queues[queue], needs))
    chosen, compared = None, 0
    for job in facts.order:
        if why := not_yet(facts.jobs, job, facts.now) or over_limit(job.queue, job.needs):
            waits[job.id] = why
            continue
        if compared == MAX_COMPARED:
            break
        compared += 1
        if starting is not None:
            waits[job.id] = f"{starting.id} is starting; one job starts at a time"
        elif not rule.permits(job, facts.seconds_of(job)):
            waits[job.id] = _passing(rule)
        elif why := facts.fits(job):
            waits[job.id] = why
            lack_room.append(job)
            rule.add(job)
        else:
            chosen = job
            break
    return Admission(chosen, waits, lack_room)


def not_yet(jobs: Mapping[JobId, Job], job: Job, now: UnixTime) -> str:
    """Return why it cannot be the job's turn, whatever is free; empty: it can."""
    for name in job.after:
        before = jobs.get(name)
        if before is None or before.verdict is not Verdict.SUCCEEDED:
            has_failed = before is None or before.state.has_ended
            return f"it comes after {name}, which {'has not succeeded' if has_failed else 'has not ended'}"
    if job.not_before > now:
        return f"{job.reason}; the next try is in {format_duration(round(job.not_before - now))}"
    return ""


def _passing(rule: PassingRule) -> str:
    """Return why a job may not pass the first one that lacks room."""
    assert rule.first is not None
    if rule.start[0] == math.inf:
        return f"it would take the room that {rule.first.id} waits for"
    seconds = round(rule.start[0] - rule.room.now)
    return f"it would delay {rule.first.id}, which starts in {format_duration(seconds)}"
