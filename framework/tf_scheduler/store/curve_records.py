"""Curves of the training as one stored value: so that one that an update, or a death, cuts goes on where it was.

Not part of the state: `records` does not read it, and one that cannot be read costs the picture only.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Mapping
from typing import Any

from tf_scheduler.model.ids import TaskName
from tf_scheduler.model.progress import Curve, Progress

from .interface import Put

log = logging.getLogger(__name__)

CURVES = "curves"
SCHEMA = 1
#: Tasks, and points of each: some 100 kB together, a tenth of what ZooKeeper takes.
TASKS, POINTS = 16, 128
_FIELDS = ("time", "step", "loss", "steps_per_second")


def write_of(curves: Mapping[TaskName, Curve]) -> Put:
    """What stores them: those that tell a loss before others."""
    first = sorted(curves, key=lambda name: (not any(point.loss is not None for point in curves[name].points), name))
    found = {name: _fields(curves[name]) for name in first[:TASKS]}
    return Put(CURVES, json.dumps({"schema": SCHEMA, "tasks": found}, separators=(",", ":"), allow_nan=False).encode())


def curves_of(values: Mapping[str, bytes]) -> dict[TaskName, Curve]:
    """Those that are stored."""
    if CURVES not in values:
        return {}
    try:
        document: dict[str, Any] = json.loads(values[CURVES])
        if document["schema"] != SCHEMA:
            raise ValueError(f"it has schema version {document['schema']}")
        return {TaskName(name): _curve(fields) for name, fields in document["tasks"].items()}
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
    points = (Progress(0, **dict(zip(_FIELDS, values, strict=True))) for values in fields["points"])
    return Curve(tuple(points), int(fields["stride"]))


def _number(value: float | None) -> float | None:
    """Six digits are enough for a picture; JSON has neither infinities nor NaN."""
    if not isinstance(value, float):
        return value
    if not math.isfinite(value):
        return None
    return round(value, 3) if abs(value) > 1e6 else float(f"{value:.6g}")
