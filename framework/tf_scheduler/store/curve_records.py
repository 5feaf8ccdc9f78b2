"""Curves of the training, and how far each launch was last, as one stored value.

So a curve that an update, or a death, cuts goes on where it was, and a training that has ended is not forgotten. Not
part of the state: `records` does not read it, and one that cannot be read costs the picture only.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any, TypeVar

from tf_scheduler.model.ids import TaskId, TaskName
from tf_scheduler.model.progress import Curve, Progress

from .interface import Put

_K = TypeVar("_K")
_V = TypeVar("_V")

log = logging.getLogger(__name__)

CURVES = "curves"
SCHEMA = 1
#: Tasks, and points of each: some 100 kB together, a tenth of what ZooKeeper takes.
TASKS, POINTS = 16, 128
#: Launches of which the last is stored: some 100 bytes each.
LAUNCHES = 1000
_FIELDS = ("time", "step", "loss", "steps_per_second")
_LAST = tuple(field.name for field in fields(Progress) if field.name != "sequence")


def write_of(curves: Mapping[TaskName, Curve], progress: Mapping[TaskId, Progress]) -> Put:
    """What stores them: curves that tell a loss before others."""
    first = sorted(curves, key=lambda name: (not any(point.loss is not None for point in curves[name].points), name))
    found = {name: _fields(curves[name]) for name in first[:TASKS]}
    newest = {launch: progress[launch] for launch in sorted(progress)[:LAUNCHES]}
    last = {launch: [_number(getattr(said, name)) for name in _LAST] for launch, said in newest.items()}
    document = {"schema": SCHEMA, "tasks": found, "last": last}
    return Put(CURVES, json.dumps(document, separators=(",", ":"), allow_nan=False).encode())


def curves_of(values: Mapping[str, bytes]) -> dict[TaskName, Curve]:
    """Those that are stored."""
    return _read(values, "tasks", lambda name, stored: (TaskName(name), _curve(stored)))


def progress_of(values: Mapping[str, bytes]) -> dict[TaskId, Progress]:
    """How far each launch was; whatever it tells next is newer. Earlier schedulers did not store it."""
    return _read(values, "last", lambda launch, stored: (TaskId(launch), _progress(_LAST, stored)))


def _read(values: Mapping[str, bytes], part: str, read: Callable[[str, Any], tuple[_K, _V]]) -> dict[_K, _V]:
    if CURVES not in values:
        return {}
    try:
        document: dict[str, Any] = json.loads(values[CURVES])
        if document["schema"] != SCHEMA:
            raise ValueError(f"it has schema version {document['schema']}")
        return dict(read(name, stored) for name, stored in document.get(part, {}).items())
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        log.warning("the curves of the training before cannot be read: %s", error)
        return {}


def _fields(curve: Curve) -> dict[str, Any]:
    every = max(1, math.ceil(len(curve.points) / POINTS))
    points = (*curve.points[:-1:every], *curve.points[-1:])
    shown = [[_number(getattr(point, name)) for name in _FIELDS] for point in points]
    # Those that follow lie as far from each other as these.
    return {"stride": curve.stride * every, "points": shown}


def _curve(fields: dict[str, Any]) -> Curve:
    return Curve(tuple(_progress(_FIELDS, values) for values in fields["points"]), int(fields["stride"]))


def _progress(names: Sequence[str], values: Sequence[Any]) -> Progress:
    return Progress(0, **dict(zip(names, values, strict=True)))


def _number(value: float | None) -> float | None:
    """Six digits are enough for a picture; JSON has neither infinities nor NaN."""
    if not isinstance(value, float):
        return value
    if not math.isfinite(value):
        return None
    return round(value, 3) if abs(value) > 1e6 else float(f"{value:.6g}")
