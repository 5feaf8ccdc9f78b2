"""A run as it is remembered. Times are seconds since the epoch; every value has a JSON form."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

#: Of the JSON form. Records of other versions are read as far as their fields are known.
VERSION = 1


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch of a task."""

    task: str
    id: str
    generation: int
    agent: str
    address: str
    cpus: float
    gpus: float
    #: MB.
    mem: float
    launched: float
    #: When Mesos first said that it runs, and when it had ended; None: not heard of.
    running: float | None = None
    ended: float | None = None
    #: Mesos' last word, as in sentences.
    state: str = "not heard of"
    message: str = ""
    exit_code: int | None = None
    #: Why it was replaced by another launch; empty: it was not.
    replaced: str = ""


@dataclass(frozen=True, slots=True)
class Point:
    """How far the program of a task said that it was."""

    time: float
    step: int | None = None
    loss: float | None = None
    #: `unit` a second.
    speed: float | None = None
    #: When the first step was made, where that is known better than by the first point.
    begun: float | None = None
    #: Examples, or steps where the program does not count examples; empty without a speed, and in older records.
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Told:
    """Something that a person should look at."""

    time: float
    message: str


@dataclass(frozen=True, slots=True)
class Run:
    """One run from its submission to its end."""

    id: str
    service: str
    #: succeeded, failed, stopped or refused; running while it goes on, lost when it ended without a result.
    state: str
    reason: str
    submitted: float
    seconds: float
    #: Folder of logs and checkpoints.
    folder: str = ""
    #: What the options file said, secrets hidden.
    options: Mapping[str, Any] = field(default_factory=dict)
    #: Every option as it was, with the defaults of then; empty in older records.
    resolved: Mapping[str, Any] = field(default_factory=dict)
    #: Name -> version, digest or size: what else the result may depend on.
    environment: Mapping[str, str] = field(default_factory=dict)
    #: Name of an agent -> its resources and attributes.
    agents: Mapping[str, str] = field(default_factory=dict)
    launches: tuple[Launch, ...] = ()
    #: Task -> its progress over all its launches, thinned.
    curves: Mapping[str, tuple[Point, ...]] = field(default_factory=dict)
    #: What the leader's last speed counts; in older records that of every point.
    unit: str = "steps"
    told: tuple[Told, ...] = ()
    #: Who follows it while it goes on: PID:START, the start in clock ticks after boot; empty: it has ended.
    process: str = ""

    @property
    def restarts(self) -> int:
        """Launches beyond the first of each task."""
        return len(self.launches) - len({launch.task for launch in self.launches})

    @property
    def leader(self) -> str | None:
        """The task whose progress is the run's: of those that tell any, the chief, or the first worker."""
        return leader(self.curves)

    @property
    def last(self) -> Point:
        """The last step, loss and speed of the leader, each the last that was told, and the unit of that speed."""
        points = self.curves.get(self.leader or "", ())
        told = Point(points[-1].time if points else self.submitted)
        for name in ("step", "loss", "speed"):
            values = [getattr(point, name) for point in points if getattr(point, name) is not None]
            told = _with(told, name, values[-1] if values else None)
        units = [self.unit_of(point) for point in points if point.speed is not None]
        return _with(told, "unit", units[-1] if units else "")

    def unit_of(self, point: Point) -> str:
        """What the speed of one of its points counts."""
        return point.unit or self.unit

    @property
    def first_step(self) -> float | None:
        """Seconds from the submission to the first step of any task; None: no task told any."""
        times = [point.begun or point.time for points in self.curves.values() for point in points if point.step]
        return max(0.0, min(times) - self.submitted) if times else None


def leader(tasks: Iterable[str]) -> str | None:
    """Of tasks that tell their progress the chief, or the first worker; None: there is none."""
    order = sorted(tasks, key=lambda task: (not task.startswith("chief"), not task.startswith("worker"), task))
    return order[0] if order else None


def _with(point: Point, name: str, value: Any) -> Point:
    return Point(**{**asdict(point), name: value})


def to_json(run: Run) -> dict[str, Any]:
    """The record as it is stored."""
    return {"version": VERSION, **asdict(run)}


def from_json(document: Mapping[str, Any]) -> Run:
    """Of a stored record; fields that are not known are left out, those that are missing have their defaults."""
    found = _known(Run, document)
    found["launches"] = tuple(Launch(**_known(Launch, item)) for item in found.get("launches", ()))
    found["curves"] = {
        task: tuple(Point(**_known(Point, item)) for item in points) for task, points in found.get("curves", {}).items()
    }
    found["told"] = tuple(Told(**_known(Told, item)) for item in found.get("told", ()))
    return Run(**found)


def _known(kind: type[Any], document: Mapping[str, Any]) -> dict[str, Any]:
    names = {item.name for item in fields(kind)}
    return {name: value for name, value in document.items() if name in names}
