"""Loss and throughput over time: lines in SVG, words in HTML, so that both stay readable on any screen. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from tf_scheduler.history.model import Point, Run

from .axis import clock, ticks, times
from .markup import Html, number, tag

#: Lines in one picture; the colours go no further.
MOST_LINES = 6
_WIDTH, _HEIGHT = 600, 220
#: More of the values' range than this, all above zero, is drawn by orders of magnitude.
_WIDE = 50.0

Line = Sequence[tuple[float, float]]


def curves(run: Run) -> Html:
    """The loss, and the speeds by their unit, or a sentence where no program told how far it was."""
    speeds = [_picture(run, f"{unit.capitalize()} a second", _speed_in(run, unit)) for unit in _units(run)]
    pictures = [_picture(run, "Loss", lambda point: point.loss), *speeds]
    if not any(pictures):
        return tag("p", "No task told its progress (tf_executor.report, docs/tasks.md).", class_="none")
    return tag("div", pictures, class_="charts")


def _units(run: Run) -> list[str]:
    """Of all speeds that were told."""
    return sorted({run.unit_of(point) for points in run.curves.values() for point in points if point.speed is not None})


def _speed_in(run: Run, unit: str) -> Callable[[Point], float | None]:
    return lambda point: point.speed if run.unit_of(point) == unit else None


def _picture(run: Run, title: str, value: Callable[[Point], float | None]) -> Html:
    lines = _lines(run, value)
    if not lines:
        return Html("")
    everything = [height for line in lines.values() for _, height in line]
    low, high = min(everything), max(everything)
    logarithmic = low > 0 and high / low > _WIDE
    scale = math.log10 if logarithmic else float
    bottom, top = _room(scale(low), scale(high), zero=not logarithmic and low >= 0)
    end = max(at for line in lines.values() for at, _ in line) or 1.0
    drawn = [_drawn(line, place, scale, bottom, top, end) for place, line in enumerate(lines.values())]
    marks = [10.0**mark if logarithmic else mark for mark in ticks(bottom, top)]
    heights = [(mark, 100 * (1 - (scale(mark) - bottom) / (top - bottom))) for mark in marks]
    grid = [tag("i", class_="level", style=f"top:{height:.2f}%") for _, height in heights]
    words = [tag("span", number(mark), style=f"top:{height:.2f}%") for mark, height in heights]
    plot = tag("div", grid, _svg(drawn), class_="plot")
    seconds = [tag("span", clock(at), style=f"left:{100 * at / end:.2f}%") for at in times(end, 5)]
    note = " (logarithmic)" if logarithmic else ""
    return tag(
        "figure",
        tag("figcaption", title, note),
        tag("div", tag("div", words, class_="words"), plot, class_="frame"),
        tag("div", seconds, class_="under"),
        _legend(lines),
    )


def _lines(run: Run, value: Callable[[Point], float | None]) -> dict[str, Line]:
    """Task -> its points as (seconds since the submission, value), of those that have any; the leader first."""
    order = sorted(run.curves, key=lambda task: (task != run.leader, task))
    found: dict[str, Line] = {}
    for task in order:
        told = [(point.time - run.submitted, value(point)) for point in run.curves[task]]
        line = [(at, height) for at, height in told if height is not None and math.isfinite(height)]
        if line and len(found) < MOST_LINES:
            found[task] = line
    return found


def _room(low: float, high: float, *, zero: bool) -> tuple[float, float]:
    bottom = 0.0 if zero else low
    size = high - bottom or abs(high) or 1.0
    return (bottom if zero else bottom - size * 0.05), high + size * 0.05


def _drawn(line: Line, place: int, scale: Callable[[float], float], bottom: float, top: float, end: float) -> Html:
    points = [(_WIDTH * at / end, _HEIGHT * (1 - (scale(height) - bottom) / (top - bottom))) for at, height in line]
    path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    # A path of one point is drawn as a dot by round ends.
    return tag("path", d=path if len(points) > 1 else f"{path}h0.01", class_=f"line c{place}")


def _svg(drawn: Sequence[Html]) -> Html:
    return tag("svg", drawn, viewBox=f"0 0 {_WIDTH} {_HEIGHT}", preserveAspectRatio="none", role="img")


def _legend(lines: Mapping[str, Line]) -> Html:
    entries = [
        tag("li", tag("i", class_=f"dot c{place}"), tag("b", task), f" last {number(line[-1][1])}")
        for place, (task, line) in enumerate(lines.items())
    ]
    return tag("ul", entries, class_="legend")
