"""What the API says of a queue service: its jobs, queues, owners and plans."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tf_executor.contract.states import Status
from tf_scheduler.api.views.base import Snapshot
from tf_scheduler.model.ids import UnixTime
from tf_scheduler.model.plan import DEPLOY, Phase, Plan, Step
from tf_scheduler.model.resources import UNIT, Needs
from tf_scheduler.queue.estimates import Estimate
from tf_scheduler.queue.job import Job, JobId, JobState
from tf_scheduler.queue.shares import QueueSpec, QueueUsage, dominant

from .job_file import job_path

#: Maximum number of jobs in one answer.
MAX_JOBS = 1000


@dataclass(frozen=True, slots=True)
class QueueView:
    """The queue at one moment, computed at most once a second while jobs wait."""

    usage: QueueUsage
    #: Waiting jobs in their order.
    order: Sequence[Job] = ()
    #: Why jobs wait.
    waits: Mapping[JobId, str] = field(default_factory=dict)
    estimates: Mapping[JobId, Estimate] = field(default_factory=dict)
    #: Expected ends of running jobs.
    ends: Mapping[JobId, UnixTime] = field(default_factory=dict)
    #: Why no job is admitted; empty: nothing hinders it.
    problem: str = ""

    def reason(self, job: Job) -> str:
        """Return why a job waits, or is in its state, which may be newer than this view."""
        return (job.state is JobState.QUEUED and self.waits.get(job.id)) or job.reason

    def positions(self) -> Mapping[JobId, int]:
        """Return the position of each waiting job, from 1."""
        return {job.id: place for place, job in enumerate(self.order, 1)}


@dataclass(frozen=True)
class QueueSnapshot(Snapshot):
    """Snapshot of a service without tasks of its own."""

    #: Number of jobs that have not ended; None: the service is removed.
    unfinished: int | None = 0

    def plans(self) -> dict[str, Plan]:
        """Return the deploy plan: the service accepts jobs, or its jobs end."""
        if not self.uninstalling:
            return _plan("accepts-jobs", Status.COMPLETE, "accepts jobs: submit FILE --to NAME")
        if self.unfinished is None:
            return _plan("end-jobs", Status.COMPLETE, "all jobs have ended; nothing is left")
        return _plan("end-jobs", Status.IN_PROGRESS, f"{self.unfinished} jobs have not ended")


def _plan(name: str, status: Status, message: str) -> dict[str, Plan]:
    return {DEPLOY: Plan(DEPLOY, status, (Phase("jobs", status, (Step(name, status, message),)),))}


def job_body(service: str, job: Job, view: QueueView, position: int | None = None) -> dict[str, Any]:
    """Return the body of a job."""
    is_waiting = job.state is JobState.QUEUED  # the view may be older
    estimate = view.estimates.get(job.id) if is_waiting else None
    return {
        "id": job.id,
        "name": f"{service}/{job.id}",
        "queue": job.queue,
        "owner": job.owner,
        "priority": job.priority,
        "state": job.state.value,
        "since": job.since,
        "submitted": job.submitted,
        "reason": view.reason(job),
        "verdict": job.verdict.value if job.verdict else None,
        "position": position if is_waiting else None,
        "expected_start": estimate.at if estimate else None,
        "grounds": estimate.grounds if estimate else "",
        "started": job.started or None,
        "expected_end": view.ends.get(job.id),
        "preemptions": job.preemptions,
        "needs": resources_body(job.needs),
        "after": list(job.after),
        "url": job_path(job.id),
    }


def resources_body(needs: Needs) -> dict[str, float]:
    """Return the scalars in their units."""
    return {name: getattr(needs, name) / UNIT for name in ("cpus", "mem", "disk", "gpus")}


def queue_body(
    service: str,
    jobs: Iterable[Job],
    queues: Mapping[str, QueueSpec],
    view: QueueView,
    used_seconds: Mapping[tuple[str, str], float],
) -> dict[str, Any]:
    """Return the body of the queue.

    Args:
        service: Name of the service.
        jobs: All jobs that have not ended.
        queues: Their queues.
        view: The queue at this moment.
        used_seconds: ("queue" or "owner", its name) -> CPU-seconds in the last hour.
    """
    active = sorted((job for job in jobs if job.state.has_scheduler), key=lambda job: job.submitted)
    positions, waiting = view.positions(), {job.id: job for job in jobs if not job.state.has_scheduler}
    new = [job for name, job in waiting.items() if name not in positions]
    listed = [*active, *(waiting[job.id] for job in view.order if job.id in waiting), *new][:MAX_JOBS]
    return {
        "name": service,
        "problem": view.problem,
        "capacity": resources_body(view.usage.capacity),
        "used": resources_body(sum((job.needs for job in active), Needs())),
        "queues": [
            {
                **_group(name, "queue", [*active, *waiting.values()], used_seconds),
                "weight": spec.weight,
                "limits": resources_body(spec.limits),
                "max_jobs": spec.max_jobs,
                "share": dominant(_used(job for job in active if job.queue == name), view.usage.capacity),
            }
            for name, spec in queues.items()
        ],
        "owners": [
            _group(name, "owner", [*active, *waiting.values()], used_seconds)
            for name in sorted({job.owner for job in (*active, *waiting.values())} | _names(used_seconds, "owner"))
        ],
        "jobs": [job_body(service, job, view, positions.get(job.id)) for job in listed],
        "waiting": len(waiting),
    }


def _names(used_seconds: Mapping[tuple[str, str], float], kind: str) -> set[str]:
    return {name for group, name in used_seconds if group == kind}


def _group(name: str, kind: str, jobs: Sequence[Job], used_seconds: Mapping[tuple[str, str], float]) -> dict[str, Any]:
    own = [job for job in jobs if getattr(job, kind) == name]
    running = [job for job in own if job.state.has_scheduler]
    return {
        "name": name,
        "used": resources_body(_used(running)),
        "running": len(running),
        "queued": len(own) - len(running),
        "seconds": used_seconds.get((kind, name), 0.0),
    }


def _used(jobs: Iterable[Job]) -> Needs:
    return sum((job.needs for job in jobs), Needs())


class UsageLog:
    """CPU-seconds of queues and owners in the last hour, in steps of a minute."""

    def __init__(self, now: UnixTime, minutes: int = 60) -> None:
        self._at, self._minutes = now, minutes
        self._steps: dict[int, dict[tuple[str, str], float]] = {}

    def advance(self, now: UnixTime, jobs: Iterable[Job]) -> None:
        """Add what the running jobs have used since the last call."""
        seconds, self._at = max(0.0, now - self._at), now
        step = self._steps.setdefault(int(now // 60), defaultdict(float))
        for job in jobs:
            cpus = job.needs.cpus / UNIT
            step["queue", job.queue] += cpus * seconds
            step["owner", job.owner] += cpus * seconds
        for old in [minute for minute in self._steps if minute <= now // 60 - self._minutes]:
            del self._steps[old]

    def totals(self) -> Mapping[tuple[str, str], float]:
        """Return the sums over the last hour."""
        sums: dict[tuple[str, str], float] = defaultdict(float)
        for step in tuple(self._steps.values()):
            for name, seconds in tuple(step.items()):
                sums[name] += seconds
        return sums
