"""A run: results and stored form. Times are Unix times."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from statistics import median
from typing import Any

from tf_executor.contract.reports import Progress, json_number
from tf_executor.contract.states import warning_of
from tf_scheduler.model.task import is_own_cause

#: Version of the JSON form; unknown fields of other versions are ignored.
VERSION = 1


#: State of a run before its end, as far as its record shows.
RUNNING = "running"


@dataclass(frozen=True, slots=True)
class RecordedLaunch:
    """One launch of a task; `mem` in MB."""

    task: str
    id: str
    generation: int
    agent: str
    address: str
    cpus: float
    gpus: float
    mem: float
    launched: float
    #: First RUNNING status and end; None: unknown.
    running: float | None = None
    ended: float | None = None
    #: Last state from Mesos, in words.
    state: str = "not heard of"
    message: str = ""
    exit_code: int | None = None
    #: Reason of the replacement; empty: not replaced.
    replaced: str = ""


#: Fields of the points of a curve, in addition to their times and metrics; points in charts only have the metrics of
#: the leading task.
POINT_FIELDS = (
    *("step", "epoch", "epochs", "first_step", "saved_step", "loss", "nan_since"),
    *("steps_per_second", "examples_per_second", "begun", "of", "source"),
)


def point_json(point: Progress) -> dict[str, Any]:
    """Return the recorded fields of a report, without time, for `Progress.from_json`."""
    values = {name: json_number(getattr(point, name)) for name in (*POINT_FIELDS, "metrics")}
    return {name: value for name, value in values.items() if value not in (None, {})}


def speed_of(point: Progress) -> tuple[float | None, str]:
    """Return the speed to show, and its unit: `examples` if reported, else `steps`."""
    if point.examples_per_second is not None:
        return point.examples_per_second, "examples"
    return point.steps_per_second, "steps"


@dataclass(frozen=True, slots=True)
class RunWarning:
    """A warning during a run."""

    time: float
    message: str


@dataclass(frozen=True, slots=True)
class Run:
    """One run from its submission to its end, for databases, pages and the API.

    Launches, curves, best values and warnings come from a recording (`record.fold_lines`).
    """

    id: str
    service: str
    #: succeeded, failed, stopped or refused; running before its end, lost if it ended without a result.
    state: str
    reason: str
    submitted: float
    seconds: float
    #: Folder of logs and checkpoints.
    folder: str = ""
    #: Content of the options file; secrets are masked.
    options: Mapping[str, Any] = field(default_factory=dict)
    #: All options with their defaults at that time; empty if it was added from a recording.
    resolved: Mapping[str, Any] = field(default_factory=dict)
    #: Name -> version, digest or size.
    environment: Mapping[str, str] = field(default_factory=dict)
    #: Name of an agent -> its resources and attributes.
    agents: Mapping[str, str] = field(default_factory=dict)
    launches: tuple[RecordedLaunch, ...] = ()
    #: Task -> downsampled progress of all launches.
    curves: Mapping[str, tuple[Progress, ...]] = field(default_factory=dict)
    #: Name -> best recorded value of the loss and of each metric of the leading task.
    best: Mapping[str, float] = field(default_factory=dict)
    warnings: tuple[RunWarning, ...] = ()
    #: What the user wrote about the run.
    note: str = ""
    #: Process that follows a running run: PID:START, start in clock ticks after boot; empty: ended.
    process: str = ""

    @property
    def restarted(self) -> Sequence[RecordedLaunch]:
        """Launches replaced for a cause of their own, not because of a peer."""
        last = {launch.task: launch for launch in self.launches}
        return [each for each in self.launches if is_own_cause(each.replaced) and each is not last[each.task]]

    @property
    def outcome(self) -> str:
        """The state, and whether its reason has a warning."""
        return f"{self.state}, warning" if self.warning else self.state

    @property
    def warning(self) -> str:
        """The warning in the reason; empty if it has none."""
        return warning_of(self.reason)

    @property
    def restarts(self) -> int:
        """Number of restarts."""
        return len(self.restarted)

    @property
    def leader(self) -> str | None:
        """Leading task (`leading_task`) among those with progress; None if none has."""
        return leading_task(self.curves)

    @property
    def last(self) -> Progress:
        """Last report of the leading task, so that step, loss and metrics are of one time."""
        points = self.curves.get(self.leader or "", ())
        return next((point for point in reversed(points) if point.position is not None), Progress())

    @property
    def speed(self) -> tuple[float | None, str]:
        """Median speed of the leading task, and the unit of its last speed.

        If each task counts its own examples, the speeds of all tasks are added up.
        """
        points = self.curves.get(self.leader or "", ())
        last = next((point for point in reversed(points) if speed_of(point)[0] is not None), Progress())
        speed, unit = speed_of(last)
        if speed is None:
            return None, unit
        is_sum = unit == "examples" and last.of != "job"
        tasks = self.curves if is_sum else (self.leader or "",)
        return sum(self._median_speed(task, unit) for task in tasks), unit

    def _median_speed(self, task: str, unit: str) -> float:
        """Return the task's median speed in this unit; 0 if it has no such speed."""
        speeds = [speed for speed, own in map(speed_of, self.curves[task]) if own == unit and speed is not None]
        return median(speeds) if speeds else 0.0

    @property
    def first_step(self) -> float | None:
        """Seconds from submission to the first step of any task; None without progress."""
        times = [point.begun or point.time for points in self.curves.values() for point in points if point.position]
        return max(0.0, min(times) - self.submitted) if times else None


def leading_task(tasks: Iterable[str]) -> str | None:
    """Return the chief, else the first worker or other task; None without tasks."""
    order = sorted(tasks, key=lambda task: (not task.startswith("chief"), not task.startswith("worker"), task))
    return order[0] if order else None


#: Parts of the names of metrics whose best value is the lowest.
_LOW = ("loss", "error", "mse", "mae", "perplexity")


def is_low_best(name: str) -> bool:
    """Return whether the best value of a metric is the lowest, not the highest."""
    return any(part in name.lower() for part in _LOW)


def best_values(points: Iterable[Progress]) -> dict[str, float]:
    """Return the best finite value of the loss and of each metric."""
    best: dict[str, float] = {}
    for point in points:
        for name, value in {"loss": point.loss, **point.metrics}.items():
            if value is not None and math.isfinite(value):
                best[name] = (min if is_low_best(name) else max)(best.get(name, value), value)
    return best


def to_json(run: Run) -> dict[str, Any]:
    """Return the stored form of a run, a JSON object."""
    curves = {
        task: [{"time": point.time, **point_json(point)} for point in points] for task, points in run.curves.items()
    }
    return {"version": VERSION, **asdict(replace(run, curves={})), "curves": curves}


def from_json(document: Mapping[str, Any]) -> Run:
    """Read a stored record: ignore unknown fields, use defaults for missing ones."""
    values = known_fields(Run, document)
    curves: Mapping[str, Any] = values.get("curves", {})
    values["launches"] = _read_all(RecordedLaunch, values.get("launches", ()))
    values["curves"] = {task: tuple(map(Progress.from_json, points)) for task, points in curves.items()}
    values["warnings"] = _read_all(RunWarning, values.get("warnings", ()))
    return Run(**values)


def read_foreign(document: Any) -> Run:
    """Read a record of another user or service. Raises ValueError if it is malformed."""
    try:
        return checked(from_json(document))
    except (TypeError, LookupError, AttributeError, RecursionError, OverflowError) as error:
        raise ValueError(f"not a record of a run: {error}") from error


def digest_key(path: str) -> str:
    """Return the key of a file's digest in the environment of a run."""
    return "sha256_" + re.sub(r"[^\w.-]", "_", path.rpartition("/")[2])


def checked(run: Run) -> Run:
    """Check the types of a run that another user wrote; return it. Raises TypeError."""
    objects: tuple[Any, ...] = (run, *run.launches, *run.warnings)
    for item in objects:
        for each in fields(item):
            value, kind = getattr(item, each.name), str(each.type)
            right = _KINDS.get(kind.removesuffix(" | None"), (dict, tuple))
            is_none = value is None and kind.endswith("| None")
            if not is_none and (not isinstance(value, right) or isinstance(value, bool)):
                raise TypeError(f"{each.name}: not a {kind}")
    for values in (run.environment, run.agents):
        if not all(isinstance(value, str) for value in values.values()):
            raise TypeError("not text")
    if not run.id.isprintable():  # such as a lone surrogate, which an address cannot have
        raise TypeError("not an id")
    if not all(isinstance(value, int | float) for value in run.best.values()):
        raise TypeError("not a number")
    if not all(math.isfinite(value) and abs(value) < _LAST_TIME for value in (run.submitted, run.seconds)):
        raise TypeError("not a time")
    return run


#: Unix time of the year 9999, and Python types by the annotation of a field.
_LAST_TIME = 253_370_764_800
_KINDS: Mapping[str, tuple[type[Any], ...]] = {"str": (str,), "int": (int,), "float": (int, float)}


def _read_all(kind: type[Any], items: Iterable[Mapping[str, Any]]) -> tuple[Any, ...]:
    return tuple(kind(**known_fields(kind, item)) for item in items)


def known_fields(kind: type[Any], document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a JSON object that are fields of a dataclass."""
    names = {item.name for item in fields(kind)}
    return {name: value for name, value in document.items() if name in names}
