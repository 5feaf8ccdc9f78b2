"""ClusterSpec, progress and result of the training."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

from tf_executor.contract.bodies import (
    ClusterBody,
    JobProgressBody,
    MembersBody,
    PointBody,
    ProgressBody,
    ResultBody,
    TrainingBody,
)
from tf_executor.contract.reports import (
    CURVE_FIELDS,
    PROGRESS_FIELDS,
    REPORT,
    Progress,
    describe_progress,
    progress_texts,
)
from tf_executor.contract.text import downsample, pluralize
from tf_scheduler.core.launch.cluster_spec import cluster_of, cluster_records, tf_config
from tf_scheduler.model.ids import TaskName
from tf_scheduler.model.spec import TaskSpec
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.model.task import TrainingCurve

from .base import ApiAnswer, Snapshot, View, finite_or_none
from .pods import display_status
from .tasks import job_speed

#: Fields of a progress report, null without one.
_REPORTED = ("time", *(each.name for each in PROGRESS_FIELDS if each.name in ProgressBody.__annotations__))
Curves = Mapping[TaskName, TrainingCurve]


def cluster(snapshot: Snapshot, _params: Mapping[str, Any]) -> ApiAnswer:
    """Generation, ClusterSpec, and TF_CONFIG of each task."""
    state = snapshot.state
    records = list(cluster_records(state))
    spec = cluster_of(records)
    body: ClusterBody = {
        "generation": max((record.generation for record in records), default=0),
        "strategy": state.spec.strategy.value,
        "cluster": spec,
        "members": _members(state),
        "tasks": [
            {
                "name": record.name,
                "job": record.job.value,
                "index": record.index,
                "address": record.address,
                "hostname": record.hostname,
                "generation": record.generation,
                "tf_config": tf_config(spec, record.job, record.index),
            }
            for record in sorted(records, key=lambda record: (record.job.value, record.index))
        ],
    }
    return View(body)


def _members(state: SchedulerState) -> MembersBody | None:
    sent = state.members_in_service()
    if sent is None:
        return None
    return {"workers": sorted(sent.workers), "version": sent.version, "confirmed": sent.confirmed, "error": sent.error}


def result(snapshot: Snapshot, _params: Mapping[str, Any]) -> ApiAnswer:
    """Result of the job; except `over`, all fields are null until the job's end."""
    end = snapshot.state.stored.result
    body: ResultBody = {
        "over": snapshot.state.process.finished,
        "verdict": None if end is None else end.verdict.value,
        "reason": None if end is None else end.sentence,
        "decided_at": None if end is None else end.decided_at,
    }
    return View(body)


def progress(snapshot: Snapshot, curves: Curves, points: int, names: Collection[str] = ()) -> ApiAnswer:
    """Progress of the jobs and of tasks, with up to `points` points of each curve.

    `names`: names of the tasks; none for all.
    """
    state = snapshot.state
    listed = {task.name: points for task in state.spec.tasks() if not names or task.name in names}
    tasks = [
        _task(state, task, _points(curves.get(task.name), listed.get(task.name, 0))) for task in state.spec.tasks()
    ]
    body: TrainingBody = {
        "leader": state.spec.leader,
        "examples_per_second": _examples_per_second(tasks, state.spec.leader),
        "summary": _summary(tasks, state.spec.leader),
        "tasks": [task for task in tasks if task["name"] in listed],
        "jobs": {
            job: _job(list(group), state.spec.leader)
            for job, group in groupby(sorted(tasks, key=lambda task: task["job"]), key=lambda task: task["job"])
        },
        "members": _members(state),
    }
    return View(body)


def _points(curve: TrainingCurve | None, points: int) -> list[PointBody]:
    return [
        {
            **{name: finite_or_none(getattr(point, name)) for name in CURVE_FIELDS},  # type: ignore[typeddict-item]
            "metrics": _metrics(point),
        }
        for point in downsample(() if curve is None else curve.points, points)
    ]


def _task(state: SchedulerState, task: TaskSpec, points: list[PointBody]) -> ProgressBody:
    record = state.stored.tasks.get(task.name)
    report = None if record is None else state.process.progress.get(record.id)
    report = report if report is not None and report.is_of_training else None
    return {
        "name": task.name,
        "job": task.job.kind.value,
        "index": task.index,
        "status": "PENDING" if record is None else display_status(state, record),
        **{name: finite_or_none(getattr(report, name, None)) for name in _REPORTED},  # type: ignore[typeddict-item]
        "metrics": {} if report is None else _metrics(report),
        "points": points,
    }


def _metrics(report: Progress) -> dict[str, float | None]:
    return {name: finite_or_none(value) for name, value in report.metrics.items()}


def _examples_per_second(tasks: Sequence[ProgressBody], first: str | None) -> float | None:
    return job_speed(((task["name"], task["of"], task["examples_per_second"]) for task in tasks), first)


def _summary(tasks: Sequence[ProgressBody], leader: str | None) -> dict[str, str]:
    """Return the texts of the leader, else of the first task that reports."""
    reporting = [task for task in tasks if task["time"] is not None]
    first = min(reporting, key=lambda task: task["name"] != leader, default=None)
    progress = Progress() if first is None else Progress.from_json(first)
    return progress_texts(replace(progress, examples_per_second=_examples_per_second(tasks, leader)))


def _job(tasks: Sequence[ProgressBody], first: str | None) -> JobProgressBody:
    speeds = [task["steps_per_second"] for task in tasks if task["steps_per_second"] is not None]
    reporting = [task for task in tasks if task["time"] is not None]
    step = min((task["step"] for task in tasks if task["step"] is not None), default=None)
    total = max((task["total"] for task in tasks if task["total"] is not None), default=None)
    speed = sum(speeds) / len(speeds) if speeds else None
    progress = Progress(step=step, total=total, steps_per_second=speed)
    if epochs := next((task for task in reporting if task["epoch"]), None):
        progress = replace(progress, epoch=epochs["epoch"], epochs=epochs["epochs"])
    sources = sorted({task["source"] or REPORT for task in reporting} - {REPORT})
    parts = (
        describe_progress(progress),
        f"{len(reporting)} of {pluralize(len(tasks), 'task')} report" if 0 < len(reporting) < len(tasks) else "",
        f"from {' and '.join(sources)}" if sources else "",
    )
    return {
        "tasks": len(tasks),
        "reporting": len(reporting),
        "step": step,
        "total": total,
        "steps_per_second": speed,
        "examples_per_second": _examples_per_second(tasks, first),
        "text": ", ".join(filter(None, parts)),
    }
