"""Which queued job is admitted next, and why the others wait."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tf_executor.contract.states import Verdict
from tf_executor.contract.text import format_duration
from tf_scheduler.model.ids import UnixTime

from .estimates import Estimate, longest_hold
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


@dataclass(frozen=True, slots=True)
class Admission:
    """The job to admit, or None; and why jobs wait: all before it, and some behind it."""

    job: Job | None = None
    waits: Mapping[JobId, str] = field(default_factory=dict)
    #: Those that wait for nothing but room.
    lack_room: Sequence[Job] = ()


def next_admission(facts: QueueFacts) -> Admission:
    """Return the next job to admit. One gang starts at a time."""
    waits: dict[JobId, str] = {}
    lack_room: list[Job] = []
    starting = next((job for job in facts.jobs.values() if job.state is JobState.STARTING), None)
    for job in facts.order:
        if why := not_yet(facts.jobs, job, facts.now) or facts.usage.over_limit(facts.queues[job.queue], job.needs):
            waits[job.id] = why
        elif starting is not None:
            waits[job.id] = f"{starting.id} is starting; one job starts at a time"
        elif lack_room and (why := _delays(facts, job, lack_room[0])):
            waits[job.id] = why
        elif why := facts.fits(job):
            waits[job.id] = why
            lack_room.append(job)
        else:
            return Admission(job, waits, lack_room)
        if len(waits) >= MAX_COMPARED:
            break
    return Admission(None, waits, lack_room)


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


def _delays(facts: QueueFacts, job: Job, head: Job) -> str:
    """Return how the job would delay one before it that waits too long; empty: not."""
    if facts.now - head.submitted < longest_hold(facts.ends, facts.now):
        return ""
    start = facts.estimates.get(head.id)
    if start is None or start.at is None:
        return f"{head.id} waits for long, and its start is unknown"
    seconds = facts.seconds_of(job)
    if seconds and facts.now + seconds <= start.at:
        return ""
    why = "would end later" if seconds else "has no expected duration"
    return f"{head.id} waits for long and starts in {format_duration(round(start.at - facts.now))}; this job {why}"
