"""Charts of a run (loss, speed, launches) as SVG and HTML helpers."""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timezone
from itertools import pairwise

from tf_executor.contract.states import tone_of
from tf_executor.contract.text import format_duration, format_number
from tf_scheduler.history.model import ProgressPoint, RecordedLaunch, Run

_STEPS = (1.0, 2.0, 5.0, 10.0)
_TIMES = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400)


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Return about `about` round numbers from `low` to `high`."""
    if not (math.isfinite(low) and math.isfinite(high)) or high <= low:
        return [low] if math.isfinite(low) else []
    rough = (high - low) / about
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(size * factor for factor in _STEPS if size * factor >= rough)
    first = math.ceil(low / step)
    return [round(place * step, 12) for place in range(first, math.floor(high / step) + 1)]


def time_ticks(length: float, about: int = 6) -> list[float]:
    """Return round times in seconds from 0 to `length`."""
    step = next((size for size in _TIMES if size * about >= length), 86400 * math.ceil(length / 86400 / about))
    return [float(second) for second in range(0, math.floor(length) + 1, int(step))]


class Html(str):
    """HTML text; any other text is escaped in a tag."""

    __slots__ = ()


def tag(name: str, *content: object, **attributes: object) -> Html:
    """Return an element: tag("p", "a < b", class_="x"). Omits None; `_` becomes `-`."""
    pairs = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Html(f"<{name}{pairs}>{join(*content)}</{name}>")


def join(*content: object) -> Html:
    """Join content; flattens lists."""
    return Html("".join(_text(item) for item in content))


def _text(item: object) -> str:
    if isinstance(item, Html):
        return str(item)
    if isinstance(item, str):
        return html.escape(item)
    if isinstance(item, Iterable):
        return "".join(_text(part) for part in item)
    return "" if item is None else html.escape(str(item))


def table(head: Iterable[object], rows: Iterable[Iterable[object]]) -> Html:
    """Return a table that scrolls on narrow screens."""
    top = tag("thead", tag("tr", [tag("th", cell) for cell in head]))
    body = tag("tbody", [tag("tr", [tag("td", cell) for cell in row]) for row in rows])
    return tag("div", tag("table", top, body), class_="scroll")


def format_time(value: float) -> str:
    """Format a Unix time."""
    return datetime.fromtimestamp(value, timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")


#: Maximum lines in a chart, limited by the colours.
MAX_LINES = 6
_WIDTH, _HEIGHT = 600, 220
#: Ratio of positive values above which a chart is logarithmic.
_WIDE = 50.0

Line = Sequence[tuple[float, float]]


def progress_charts(run: Run) -> Html:
    """Return charts of loss, metrics and speed, or a note without progress."""
    speeds = [_picture(run, f"{unit.capitalize()} a second", _speed_in(unit), marks=True) for unit in _units(run)]
    names = dict.fromkeys(name for points in run.curves.values() for point in points for name in point.metrics)
    metrics = [_picture(run, name, _metric(name)) for name in names]
    pictures = [_picture(run, "Loss", lambda point: point.loss), *metrics, *speeds]
    if not any(pictures):
        return tag("p", "No task reported progress. See tf_executor.report in docs/reference/tasks.md.", class_="none")
    return tag("div", pictures, class_="charts")


def _metric(name: str) -> Callable[[ProgressPoint], float | None]:
    return lambda point: point.metrics.get(name)


def _units(run: Run) -> list[str]:
    """Return the units of all speeds."""
    return sorted({point.unit for points in run.curves.values() for point in points if point.speed is not None})


def _speed_in(unit: str) -> Callable[[ProgressPoint], float | None]:
    return lambda point: point.speed if point.unit == unit else None


def _picture(run: Run, title: str, value: Callable[[ProgressPoint], float | None], *, marks: bool = False) -> Html:
    lines = _lines(run, value)
    if not lines:
        return Html("")
    everything = [height for line in lines.values() for _, height in line]
    low, high = min(everything), max(everything)
    logarithmic = low > 0 and high / low > _WIDE
    scale = math.log10 if logarithmic else float
    bottom, top = _room(scale(low), scale(high), zero=not logarithmic and low >= 0)
    end = max(at for line in lines.values() for at, _ in line) or 1.0
    paths = [_path(line, place, scale, bottom, top, end) for place, line in enumerate(lines.values())]
    levels = [10.0**mark if logarithmic else mark for mark in ticks(bottom, top)]
    heights = [(mark, 100 * (1 - (scale(mark) - bottom) / (top - bottom))) for mark in levels]
    grid = [tag("i", class_="level", style=f"top:{height:.2f}%") for _, height in heights]
    words = [tag("span", format_number(mark), style=f"top:{height:.2f}%") for mark, height in heights]
    box = f"0 0 {_WIDTH} {_HEIGHT}"
    picture = tag("svg", paths, viewBox=box, preserveAspectRatio="none", role="img")
    plot = tag("div", grid, picture, _marks(run, lines.get(run.leader or "", ()), end) if marks else "", class_="plot")
    seconds = [tag("span", format_duration(at), style=f"left:{100 * at / end:.2f}%") for at in time_ticks(end, 5)]
    note = " (logarithmic)" if logarithmic else ""
    return tag(
        "figure",
        tag("figcaption", title, note),
        tag("div", tag("div", words, class_="words"), plot, class_="frame"),
        tag("div", seconds, class_="under"),
        _legend(lines),
    )


def _marks(run: Run, line: Line, end: float) -> list[Html]:
    """Return a mark at each point since which another number of workers runs."""
    workers = [launch for launch in run.launches if launch.task.startswith("worker-")]
    spans = [(launch.running or math.inf, launch.ended or math.inf) for launch in workers]
    counts = [(at, sum(start <= at + run.submitted < stop for start, stop in spans)) for at, _ in line]
    changes = [after for before, after in pairwise(counts) if after[1] not in (0, before[1])]
    ends = [*(at for at, _ in changes[1:]), end]
    return [
        tag("span", f"{count} worker{'s' * (count > 1)}", class_="joined", style=_place(at, until, end))
        for (at, count), until in zip(changes, ends, strict=False)
    ]


def _lines(run: Run, value: Callable[[ProgressPoint], float | None]) -> dict[str, Line]:
    """Return task -> (seconds since submission, value) points, leading task first."""
    order = sorted(run.curves, key=lambda task: (task != run.leader, task))
    lines: dict[str, Line] = {}
    for task in order:
        points = [(point.time - run.submitted, value(point)) for point in run.curves[task]]
        line = [(at, height) for at, height in points if height is not None and math.isfinite(height)]
        if line and len(lines) < MAX_LINES:
            lines[task] = line
    return lines


def _room(low: float, high: float, *, zero: bool) -> tuple[float, float]:
    bottom = 0.0 if zero else low
    size = high - bottom or abs(high) or 1.0
    return (bottom if zero else bottom - size * 0.05), high + size * 0.05


def _path(line: Line, place: int, scale: Callable[[float], float], bottom: float, top: float, end: float) -> Html:
    points = [(_WIDTH * at / end, _HEIGHT * (1 - (scale(height) - bottom) / (top - bottom))) for at, height in line]
    path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    # A path of one point is drawn as a dot by round ends.
    return tag("path", d=path if len(points) > 1 else f"{path}h0.01", class_=f"line c{place}")


def _legend(lines: Mapping[str, Line]) -> Html:
    entries = [
        tag("li", tag("i", class_=f"dot c{place}"), tag("b", task), f" last {format_number(line[-1][1])}")
        for place, (task, line) in enumerate(lines.items())
    ]
    return tag("ul", entries, class_="legend")


#: Maximum rows of the timeline.
MAX_ROWS = 200


def run_length(run: Run) -> float:
    """Return the seconds from submission to the last event."""
    ends = [launch.ended or launch.running or launch.launched for launch in run.launches]
    return max([run.seconds, 0.1, *(end - run.submitted for end in ends)])


def timeline(run: Run) -> Html:
    """Return a Gantt chart with a row per task and a bar per launch."""
    rows: dict[str, list[RecordedLaunch]] = {}
    for launch in run.launches:
        rows.setdefault(launch.task, []).append(launch)
    if not rows:
        return tag("p", "No task was launched.", class_="none")
    whole, more = run_length(run), len(rows) - MAX_ROWS
    marks = [tag("span", format_duration(at), style=f"left:{_share(at, whole)}") for at in time_ticks(whole)]
    return tag(
        "div",
        [_row(run, task, launches, whole) for task, launches in list(rows.items())[:MAX_ROWS]],
        tag("div", tag("div", class_="label"), tag("div", marks, class_="lane axis"), class_="row"),
        tag("p", f"and {more} more tasks", class_="none") if more > 0 else "",
        class_="gantt",
    )


def _row(run: Run, task: str, launches: Sequence[RecordedLaunch], whole: float) -> Html:
    bars = [_bar(run, launch, after, whole) for launch, after in zip(launches, [*launches[1:], None], strict=True)]
    grid = [tag("i", class_="grid", style=f"left:{_share(at, whole)}") for at in time_ticks(whole)]
    count = f"{len(launches)} launches, " if len(launches) > 1 else ""
    label = tag("div", tag("b", task), tag("small", count, launches[-1].agent), class_="label")
    return tag("div", label, tag("div", grid, bars, class_="lane"), class_="row")


def _bar(run: Run, launch: RecordedLaunch, after: RecordedLaunch | None, whole: float) -> Html:
    start = launch.launched - run.submitted
    limit = whole if after is None else after.launched - run.submitted
    end = min(limit, whole if launch.ended is None else launch.ended - run.submitted)
    running = end if launch.running is None else min(end, launch.running - run.submitted)
    title = _title(launch, start, running, end)
    waiting = tag("span", class_="wait", style=_place(start, running, whole), title=title)
    text = f"gen {launch.generation}" if end - running > whole / 12 else ""
    body = tag(
        "span", text, class_=f"bar {tone_of(launch.state).value}", style=_place(running, end, whole), title=title
    )
    return Html(waiting + (body if end > running or launch.running is not None else ""))


def _title(launch: RecordedLaunch, start: float, running: float, end: float) -> str:
    code = "" if launch.exit_code is None else f", exit code {launch.exit_code}"
    parts = (
        f"{launch.task} on {launch.agent} ({launch.address}), generation {launch.generation}",
        f"launched at {format_duration(start)}, running at {format_duration(running)}, "
        f"{launch.state} at {format_duration(end)}{code}",
        launch.message,
        f"replaced: {launch.replaced}" if launch.replaced else "",
        f"ran {format_duration(end - running)}",
    )
    return "\n".join(part for part in parts if part)


def _place(start: float, end: float, whole: float) -> str:
    return f"left:{_share(start, whole)};width:{_share(max(0.0, end - start), whole)}"


def _share(value: float, whole: float) -> str:
    return f"{100 * min(1.0, max(0.0, value / whole)):.3f}%"
