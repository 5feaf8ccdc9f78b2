"""The cluster that TensorFlow sees, how far the training is, and how it ended."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from tf_scheduler.api.shapes import ClusterBody, JobProgressBody, PointBody, ProgressBody, ResultBody, TrainingBody
from tf_scheduler.core import plans
from tf_scheduler.core.cluster_spec import cluster_of, tf_config
from tf_scheduler.model.ids import TaskName
from tf_scheduler.model.progress import Curve
from tf_scheduler.model.spec import TaskSpec
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.model.thinning import thin

from .base import Answer, Snapshot, View
from .pods import word_of
from .tasks import leader

Curves = Mapping[TaskName, Curve]


def cluster(snapshot: Snapshot, _given: Mapping[str, Any]) -> Answer:
    """Generation, ClusterSpec, and the TF_CONFIG of each task."""
    state = snapshot.state
    records = list(plans.in_cluster(state, ()))
    spec = cluster_of(records)
    body: ClusterBody = {
        "generation": max((record.generation for record in records), default=0),
        "strategy": state.spec.strategy.value,
        "cluster": spec,
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


def result(snapshot: Snapshot, _given: Mapping[str, Any]) -> Answer:
    """How the service ended; nothing as long as that is not decided."""
    found = snapshot.state.result
    body: ResultBody = {
        "over": snapshot.state.over,
        "verdict": None if found is None else found.verdict,
        "reason": None if found is None else found.sentence,
        "decided_at": None if found is None else found.decided_at,
    }
    return View(body)


def progress(snapshot: Snapshot, curves: Curves, points: int) -> Answer:
    """Of every task and job; with `points` points of each task's curve at most, from its beginning to now."""
    state = snapshot.state
    tasks = [_task(state, task, _points(curves.get(task.name), points)) for task in state.spec.tasks()]
    body: TrainingBody = {
        "leader": leader(state),
        "tasks": tasks,
        "jobs": {
            job: _job(list(group))
            for job, group in groupby(sorted(tasks, key=lambda task: task["job"]), key=lambda task: task["job"])
        },
    }
    return View(body)


def _points(curve: Curve | None, points: int) -> list[PointBody]:
    return [
        {
            "time": point.time,
            "step": point.step,
            "loss": finite(point.loss),
            "steps_per_second": finite(point.steps_per_second),
        }
        for point in thin(() if curve is None else curve.points, points)
    ]


def _task(state: SchedulerState, task: TaskSpec, points: list[PointBody]) -> ProgressBody:
    record = state.tasks.get(task.name)
    found = None if record is None else state.progress.get(record.id)
    return {
        "name": task.name,
        "job": task.job.kind.value,
        "index": task.index,
        "status": "PENDING" if record is None else word_of(state, record),
        "time": None if found is None else found.time,
        "step": None if found is None else found.step,
        "total": None if found is None else found.total,
        "loss": None if found is None else finite(found.loss),
        "examples": None if found is None else found.examples,
        "steps_per_second": None if found is None else finite(found.steps_per_second),
        "examples_per_second": None if found is None else finite(found.examples_per_second),
        "seconds_left": None if found is None else finite(found.seconds_left),
        "points": points,
    }


def finite(value: float | None) -> float | None:
    """JSON has neither infinities nor NaN."""
    return value if value is not None and math.isfinite(value) else None


def _job(tasks: Sequence[ProgressBody]) -> JobProgressBody:
    speeds = _known(task["steps_per_second"] for task in tasks)
    examples = _known(task["examples_per_second"] for task in tasks)
    steps = [task["step"] for task in tasks if task["step"] is not None]
    totals = [task["total"] for task in tasks if task["total"] is not None]
    return {
        "tasks": len(tasks),
        "reporting": sum(task["time"] is not None for task in tasks),
        "step": min(steps, default=None),
        "total": max(totals, default=None),
        "steps_per_second": sum(speeds) / len(speeds) if speeds else None,
        "examples_per_second": sum(examples) if examples else None,
    }


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]
