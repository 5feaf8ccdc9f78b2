"""Lines of a recording -> launches, curves and what was told. Pure, but for `read`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tf_scheduler.model.thinning import thin

from .lines import decode
from .model import Launch, Point, Told, leader

#: Points of one curve, and entries of what was told: enough for a picture and for a person.
MOST_POINTS = 400
MOST_TOLD = 200


@dataclass(frozen=True, slots=True)
class Recording:
    """Everything that the lines say."""

    launches: tuple[Launch, ...] = ()
    curves: Mapping[str, tuple[Point, ...]] = field(default_factory=dict)
    #: Of the leader's last speed.
    unit: str = "steps"
    told: tuple[Told, ...] = ()


def read(path: Path) -> Recording:
    """Of a file; one that is not there has recorded nothing. A last line that was cut off is left out."""
    try:
        text = path.read_text(errors="replace")
    except FileNotFoundError:
        return Recording()
    return fold(line for line in map(decode, text.splitlines()) if line is not None)


def fold(found: Iterable[Mapping[str, Any]]) -> Recording:
    """The lines in their order."""
    launches: dict[str, Launch] = {}
    curves: dict[str, list[Point]] = {}
    told: list[Told] = []
    for line in found:
        kind = next((name for name in _OF_LAUNCHES if name in line), "")
        if kind == "launched":
            launches[line["launched"]] = _launch(line)
        elif kind and line[kind] in launches:
            launches[line[kind]] = _OF_LAUNCHES[kind](launches[line[kind]], line)
        elif "progress" in line:
            curves.setdefault(line["progress"], []).append(_point(line))
        elif "told" in line:
            told.append(Told(line["t"], line["told"]))
    thinned = {task: tuple(thin(points, MOST_POINTS)) for task, points in curves.items()}
    units = [point.unit for point in thinned.get(leader(thinned) or "", ()) if point.unit]
    unit = units[-1] if units else "steps"
    return Recording(tuple(launches.values()), thinned, unit, tuple(told[-MOST_TOLD:]))


def _launch(line: Mapping[str, Any]) -> Launch:
    return Launch(
        task=line["task"],
        id=line["launched"],
        generation=line["generation"],
        agent=line["agent"],
        address=line["address"],
        cpus=line.get("cpus", 0.0),
        gpus=line.get("gpus", 0.0),
        mem=line.get("mem", 0.0),
        launched=line.get("at") or line["t"],
    )


def _status(launch: Launch, line: Mapping[str, Any]) -> Launch:
    running = line["t"] if line["state"] == "running" and launch.running is None else launch.running
    ended = line["t"] if line.get("ended") and launch.ended is None else launch.ended
    return replace(
        launch,
        running=running,
        ended=ended,
        state=line["state"],
        message=line.get("message", ""),
        exit_code=line.get("exit_code"),
    )


def _replaced(launch: Launch, line: Mapping[str, Any]) -> Launch:
    return replace(launch, replaced=line["why"])


_OF_LAUNCHES: Mapping[str, Callable[[Launch, Mapping[str, Any]], Launch]] = {
    "launched": lambda launch, _: launch,
    "status": _status,
    "replaced": _replaced,
}


def _point(line: Mapping[str, Any]) -> Point:
    speed = line.get("speed")
    unit = "" if speed is None else line.get("unit", "")
    return Point(line["t"], line.get("step"), line.get("loss"), speed, line.get("begun"), unit)
