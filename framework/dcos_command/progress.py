"""`progress`: how far the training is."""

from __future__ import annotations

import math
from typing import Any, Mapping, Sequence

from .client import ServiceClient, api_path
from .command import Command, Params
from .output import Line, Renderable, Table, Word, dim
from .service import show_result

_BAR = 24  # characters
_CURVE = 20
_POINTS = str(_CURVE)  # of the curve of the loss, from its beginning to now
_LEVELS = "▁▂▃▄▅▆▇█"
_UNKNOWN = "-"


def progress_bar(fraction: float | None, width: int = _BAR) -> str:
    """0 to 1, in halves of a character; None: it cannot be said how far it is."""
    if fraction is None:
        return "╌" * width
    halves = round(min(1.0, max(0.0, fraction)) * width * 2)
    half = "╸" if halves % 2 else ""
    return "━" * (halves // 2) + half + "─" * (width - halves // 2 - len(half))


def sparkline(values: Sequence[float | None], width: int = _CURVE) -> str:
    """The last of the values as heights, from the lowest to the highest of them; what is no number is left out."""
    known = [value for value in values if value is not None and math.isfinite(value)][-width:]
    if not known:
        return ""
    low, high = min(known), max(known)
    span = (high - low) or 1.0
    return "".join(_LEVELS[min(7, int((value - low) / span * 8))] for value in known)


def format_duration(seconds: float | None) -> str:
    """`1:02:03`, `2:03`, `3 s`."""
    if seconds is None or not math.isfinite(seconds):
        return _UNKNOWN
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    hours, minutes = whole // 3600, whole % 3600 // 60
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"


def _progress(service: ServiceClient, _given: Params) -> Any:
    return service.get(api_path("tf", "progress"), points=_POINTS)


def show_progress(found: Mapping[str, Any], _given: Params) -> Renderable:
    """A row per job that says something of its training."""
    rows = [_row(name, job, _representative(name, found)) for name, job in found["jobs"].items() if job["reporting"]]
    heading = ("job", "", "step", "steps/s", "examples/s", "left", "loss", "")
    yield Table(heading, rows, "No task has said anything of its training yet.", charts=(1, 7))
    silent = [name for name, job in found["jobs"].items() if not job["reporting"]]
    if rows and silent:
        yield Line((dim(f"Nothing is said by: {', '.join(silent)}"),))


def _representative(job: str, found: Mapping[str, Any]) -> Mapping[str, Any]:
    """Whose loss stands for the job: the leader, else the slowest of it, on which the others wait."""
    tasks = [task for task in found["tasks"] if task["job"] == job and task["step"] is not None]
    leading = [task for task in tasks if task["name"] == found["leader"]]
    return min(leading or tasks or [{}], key=lambda task: task.get("step", 0))


def _row(name: str, job: Mapping[str, Any], task: Mapping[str, Any]) -> list[Any]:
    step, total = job["step"], job["total"]
    fraction = step / total if step is not None and total else None
    losses = [point["loss"] for point in task.get("points") or ()]
    done = fraction is not None and fraction >= 1
    return [
        name,
        Word(progress_bar(fraction), "good" if done else "busy"),
        _UNKNOWN if step is None else f"{step}/{total}" if total else str(step),
        _number(job["steps_per_second"]),
        _number(job["examples_per_second"]),
        format_duration(task.get("seconds_left")),
        _UNKNOWN if task.get("loss") is None else f"{task['loss']:.4g}",
        Word(sparkline(losses), "good"),
    ]


def _number(value: float | None) -> str:
    return _UNKNOWN if value is None else f"{value:.1f}"


def _final_result(service: ServiceClient) -> Renderable | None:
    found = service.get(api_path("tf", "result"))
    return None if found["verdict"] is None else show_result(found, {})


COMMANDS = (
    Command(
        "progress",
        "How far the training of each job is; on a terminal live, until it ends.",
        _progress,
        show_progress,
        poll_until=_final_result,
    ),
)
