"""ClusterSpec, progress and result of the training."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any, cast

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
    REPORT,
    REPORT_FIELDS,
    Progress,
    describe_progress,
    progress_texts,
)
from tf_executor.contract.text import downsample, pluralize
from tf_scheduler.core.launch.cluster_spec import cluster_of, cluster_records, tf_config
from tf_scheduler.model.ids import TaskName
from tf_scheduler.model.spec import JobKind, TaskSpec
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.model.task import TrainingCurve

from .base import ApiAnswer, Snapshot, View
from .pods import display_status
from .tasks import job_speed

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
    sent = state.members_of_chief()
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

    `names`: names of the tasks; empty: all tasks.
    """
    state = snapshot.state
    tasks, leader = list(state.spec.tasks()), state.spec.leader
    listed = [task for task in tasks if not names or task.name in names]
    reports = {task.name: report for task in tasks if (report := _report(state, task.name)) is not None}
    body: TrainingBody = {
        "leader": leader,
        "examples_per_second": job_speed(reports, leader),
        "summary": _summary(reports, leader),
        "tasks": [
            _task(state, task, reports.get(task.name), _points(curves.get(task.name), points)) for task in listed
        ],
        "jobs": {
            kind.value: _job([task.name for task in group], reports, leader)
            for kind, group in groupby(sorted(tasks, key=_kind_of), key=_kind_of)
        },
        "members": _members(state),
    }
    return View(body)


def _kind_of(task: TaskSpec) -> JobKind:
    return task.job.kind


def _points(curve: TrainingCurve | None, points: int) -> list[PointBody]:
    chosen = downsample(() if curve is None else curve.points, points)
    return [cast(PointBody, point.to_json(CURVE_FIELDS)) for point in chosen]


def _report(state: SchedulerState, name: TaskName) -> Progress | None:
    """Return the last report of the program of a task."""
    record = state.stored.tasks.get(name)
    report = None if record is None else state.process.progress.get(record.id)
    return report if report is not None and report.is_of_training else None


def _task(state: SchedulerState, task: TaskSpec, report: Progress | None, points: list[PointBody]) -> ProgressBody:
    record = state.stored.tasks.get(task.name)
    values = {**dict.fromkeys(REPORT_FIELDS), "metrics": {}} if report is None else report.to_json(REPORT_FIELDS)
    return {
        "name": task.name,
        "job": task.job.kind.value,
        "index": task.index,
        "status": "PENDING" if record is None else display_status(state, record),
        **values,  # type: ignore[typeddict-item]
        "points": points,
    }


def _summary(reports: Mapping[TaskName, Progress], leader: str | None) -> dict[str, str]:
    """Return the texts of the leader, else of the first task that reports."""
    first = min(reports, key=lambda name: name != leader, default=None)
    progress = Progress() if first is None else Progress.from_json(reports[first].to_json(REPORT_FIELDS))
    return progress_texts(replace(progress, examples_per_second=job_speed(reports, leader)))


def _job(tasks: Sequence[TaskName], reports: Mapping[TaskName, Progress], leader: str | None) -> JobProgressBody:
    own = {name: reports[name] for name in tasks if name in reports}
    speeds = [report.steps_per_second for report in own.values() if report.steps_per_second is not None]
    progress = Progress(
        step=min((report.step for report in own.values() if report.step is not None), default=None),
        total=max((report.total for report in own.values() if report.total is not None), default=None),
        steps_per_second=sum(speeds) / len(speeds) if speeds else None,
    )
    if epochs := next((report for report in own.values() if report.epoch), None):
        progress = replace(progress, epoch=epochs.epoch, epochs=epochs.epochs)
    sources = sorted({report.source or REPORT for report in own.values()} - {REPORT})
    parts = (
        describe_progress(progress),
        f"{len(own)} of {pluralize(len(tasks), 'task')} report" if 0 < len(own) < len(tasks) else "",
        f"from {' and '.join(sources)}" if sources else "",
    )
    return {
        "tasks": len(tasks),
        "reporting": len(own),
        "step": progress.step,
        "total": progress.total,
        "steps_per_second": progress.steps_per_second,
        "examples_per_second": job_speed(own, leader),
        "text": ", ".join(filter(None, parts)),
    }
