"""Store training curves and each launch's last progress for the next scheduler.

One value, `curves`, which is not part of the state: if it is corrupt, only the curves are lost. A background thread
writes it periodically, and immediately when a task or the job ends.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, TypeVar

from tf_scheduler.model.effects import Decision, ResultDecided, StatusStored
from tf_scheduler.model.events import Event, ProgressReported
from tf_scheduler.model.ids import TaskId, TaskName
from tf_scheduler.model.task import Progress, TrainingCurve

from .interface import Put, StateStore, read_extra
from .retrying import BackgroundWriter

_K = TypeVar("_K")
_V = TypeVar("_V")

CURVES = "curves"
SCHEMA = 1
#: Maximum tasks, and points of each: about 100 kB in all, a tenth of ZooKeeper's limit.
MAX_TASKS, MAX_POINTS = 16, 128
#: Maximum tasks whose curves are stored with metrics: at most about 20 kB each.
MAX_METRIC_TASKS = 4
#: Maximum launches whose last progress is stored, about 150 bytes each without metrics.
MAX_LAUNCHES = 1000
_FIELDS = ("time", "step", "loss", "steps_per_second")
#: Values in the form of the first release, which has no names, and values that it ignores.
_LAST = ("time", "step", "total", "loss", "examples", "steps_per_second", "examples_per_second", "begun")
_MORE = tuple(field.name for field in fields(Progress) if field.name not in ("sequence", *_LAST))


def encode_history(curves: Mapping[TaskName, TrainingCurve], progress: Mapping[TaskId, Progress]) -> Put:
    """Return the write of curves and progress; curves with a loss take precedence."""
    names = sorted(curves, key=lambda name: (not any(point.loss is not None for point in curves[name].points), name))
    tasks = {name: _fields(curves[name]) for name in names[:MAX_TASKS]}
    for name in [name for name in names[:MAX_TASKS] if tasks[name]["metrics"]][MAX_METRIC_TASKS:]:
        tasks[name]["metrics"] = {}
    launches = sorted(progress)[:MAX_LAUNCHES]
    last = {launch: [_number(getattr(progress[launch], name)) for name in _LAST] for launch in launches}
    more = {launch: _more(progress[launch]) for launch in launches}
    document = {"schema": SCHEMA, "tasks": tasks, "last": last, "more": more}
    return Put(CURVES, json.dumps(document, separators=(",", ":"), allow_nan=False).encode())


def decode_curves(values: Mapping[str, bytes]) -> dict[TaskName, TrainingCurve]:
    """Return the stored curves."""
    return _read(values, "tasks", lambda name, stored: (TaskName(name), _curve(stored)))


def decode_progress(values: Mapping[str, bytes]) -> dict[TaskId, Progress]:
    """Return the last progress of each launch. Earlier schedulers did not store it."""
    more = _read(values, "more", lambda launch, stored: (TaskId(launch), _known(stored)))
    last = _read(values, "last", lambda launch, stored: (TaskId(launch), _progress(_LAST, stored)))
    return {launch: replace(progress, **more.get(launch, {})) for launch, progress in last.items()}


def _more(progress: Progress) -> dict[str, Any]:
    values = {name: _number(getattr(progress, name)) for name in _MORE if name != "metrics"}
    metrics = {name: _number(value) for name, value in progress.metrics.items()}
    return {name: value for name, value in {**values, "metrics": metrics}.items() if value}


def _known(stored: Mapping[str, Any]) -> dict[str, Any]:
    metrics = {name: value for name, value in stored.get("metrics", {}).items() if value is not None}
    return {**{name: stored[name] for name in _MORE if name in stored}, "metrics": metrics}


def _read(values: Mapping[str, bytes], part: str, read: Callable[[str, Any], tuple[_K, _V]]) -> dict[_K, _V]:
    def read_part(document: dict[str, Any]) -> dict[_K, _V]:
        return dict(read(name, stored) for name, stored in document.get(part, {}).items())

    return read_extra("stored training curves", values[CURVES], SCHEMA, read_part, {}) if CURVES in values else {}


def _fields(curve: TrainingCurve) -> dict[str, Any]:
    every = max(1, math.ceil(len(curve.points) / MAX_POINTS))
    points = (*curve.points[:-1:every], *curve.points[-1:])
    rows = [[_number(getattr(point, name)) for name in _FIELDS] for point in points]
    names = dict.fromkeys(name for point in points for name in point.metrics)
    metrics = {name: [_number(point.metrics.get(name)) for point in points] for name in names}
    workers = [point.workers for point in points] if any(point.workers for point in points) else []
    # Later points keep the same distance.
    return {"stride": curve.stride * every, "points": rows, "metrics": metrics, "workers": workers}


def _curve(fields: dict[str, Any]) -> TrainingCurve:
    points = [_progress(_FIELDS, values) for values in fields["points"]]
    # Earlier schedulers stored no metrics.
    for name, values in fields.get("metrics", {}).items():
        for index, value in enumerate(values[: len(points)]):
            if value is not None:
                points[index] = replace(points[index], metrics={**points[index].metrics, name: value})
    for index, count in enumerate(fields.get("workers", ())[: len(points)]):
        points[index] = replace(points[index], workers=count)
    return TrainingCurve(tuple(points), int(fields["stride"]))


def _progress(names: Sequence[str], values: Sequence[Any]) -> Progress:
    return Progress(0, **dict(zip(names, values, strict=True)))


def _number(value: float | None) -> float | None:
    """Round to six digits, enough for a chart; JSON has neither infinities nor NaN."""
    if not isinstance(value, float):
        return value
    if not math.isfinite(value):
        return None
    return round(value, 3) if abs(value) > 1e6 else float(f"{value:.6g}")


#: Seconds between two writes. The rest is stored at exit, unless the scheduler is killed.
INTERVAL = 60.0


class TrainingHistory(BackgroundWriter):
    """Store curves and progress in the background; an observer of the scheduler loop.

    Args:
        store: A thread-safe store.
        curves: Returns the current curves.
        last: Returns the last progress of each launch.
        interval: Seconds between two writes.
    """

    def __init__(
        self,
        store: StateStore,
        curves: Callable[[], Mapping[TaskName, TrainingCurve]],
        last: Callable[[], Mapping[TaskId, Progress]] = dict,
        *,
        interval: float = INTERVAL,
    ) -> None:
        super().__init__("training curves", interval)
        self._store, self._curves, self._last = store, curves, last
        self._stored: Put | None = None

    def __call__(self, event: Event, decision: Decision) -> None:
        """Wake the writer when a task or the job ends; called in the loop's thread."""
        if _is_end(event, decision):
            self._wakeup.set()

    def _save(self) -> bool:
        curves, last = self._curves(), self._last()
        write = encode_history(curves, last) if curves or last else None
        if write is None or write == self._stored:
            return False
        self._store.apply([write])
        self._stored = write
        return True


def _is_end(event: Event, decision: Decision) -> bool:
    """Whether a task or the job ends, or an ended task reports its last progress."""
    if isinstance(event, ProgressReported):
        status = decision.state.stored.statuses.get(event.task_id)
        return status is not None and status.state.has_ended
    return any(
        isinstance(change, ResultDecided) or (isinstance(change, StatusStored) and change.status.state.has_ended)
        for change in decision.changes
    )
