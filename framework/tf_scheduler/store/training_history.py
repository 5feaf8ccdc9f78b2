"""Store training curves and each launch's last progress for the next scheduler.

The key `curves` holds both. It is not part of the state: if it is corrupt, only curves and progress are lost. A
background thread writes it periodically, and immediately when a task or the job ends.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from tf_executor.contract.reports import CURVE_FIELDS, REPORT_FIELDS, Progress
from tf_scheduler.model.effects import Decision, ResultDecided, StatusStored
from tf_scheduler.model.events import Event, ProgressReported
from tf_scheduler.model.ids import TaskId, TaskName
from tf_scheduler.model.task import TrainingCurve

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


def encode_history(curves: Mapping[TaskName, TrainingCurve], progress: Mapping[TaskId, Progress]) -> Put:
    """Encode curves and progress as a write; curves with a loss have priority."""
    names = sorted(curves, key=lambda name: (not any(point.loss is not None for point in curves[name].points), name))
    tasks = {name: _fields(curves[name]) for name in names[:MAX_TASKS]}
    for name in [name for name in names[:MAX_TASKS] if tasks[name]["metrics"]][MAX_METRIC_TASKS:]:
        tasks[name]["metrics"] = {}
    launches = sorted(progress)[:MAX_LAUNCHES]
    rows = {launch: [_number(getattr(progress[launch], name)) for name in REPORT_FIELDS] for launch in launches}
    metrics = {
        launch: {name: _number(value) for name, value in progress[launch].metrics.items()}
        for launch in launches
        if progress[launch].metrics
    }
    last = {"names": REPORT_FIELDS, "rows": rows, "metrics": metrics}
    document = {"schema": SCHEMA, "tasks": tasks, "last": last}
    return Put(CURVES, json.dumps(document, separators=(",", ":"), allow_nan=False).encode())


def decode_curves(values: Mapping[str, bytes]) -> dict[TaskName, TrainingCurve]:
    """Return the stored curves."""
    return _read(values, lambda document: {TaskName(name): _curve(curve) for name, curve in document["tasks"].items()})


def decode_progress(values: Mapping[str, bytes]) -> dict[TaskId, Progress]:
    """Return the last progress of each launch."""

    def read(document: dict[str, Any]) -> dict[TaskId, Progress]:
        last = document["last"]
        rows = {TaskId(launch): dict(zip(last["names"], row, strict=True)) for launch, row in last["rows"].items()}
        return {
            launch: Progress.from_json({**row, "metrics": last["metrics"].get(launch, {})})
            for launch, row in rows.items()
        }

    return _read(values, read)


def _read(values: Mapping[str, bytes], read: Callable[[dict[str, Any]], dict[_K, _V]]) -> dict[_K, _V]:
    return read_extra("stored training curves", values[CURVES], SCHEMA, read, {}) if CURVES in values else {}


def _fields(curve: TrainingCurve) -> dict[str, Any]:
    every = max(1, math.ceil(len(curve.points) / MAX_POINTS))
    points = (*curve.points[:-1:every], *curve.points[-1:])
    names = dict.fromkeys(name for point in points for name in point.metrics)
    return {
        "stride": curve.stride * every,  # later points keep the same distance
        "points": {name: [_number(getattr(point, name)) for point in points] for name in CURVE_FIELDS},
        "metrics": {name: [_number(point.metrics.get(name)) for point in points] for name in names},
    }


def _curve(stored: dict[str, Any]) -> TrainingCurve:
    points = _transposed(stored["points"])
    metrics = _transposed(stored["metrics"]) or [{}] * len(points)
    together = zip(points, metrics, strict=True)
    return TrainingCurve(
        tuple(Progress.from_json({**point, "metrics": values}) for point, values in together), int(stored["stride"])
    )


def _transposed(columns: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    rows = (zip(columns, row, strict=True) for row in zip(*columns.values(), strict=True))
    return [{name: value for name, value in row if value is not None} for row in rows]


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
