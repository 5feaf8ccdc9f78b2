"""Render a recorded run as one HTML page: summary, tasks, events and charts."""

from __future__ import annotations

import html
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from importlib import resources
from itertools import pairwise
from typing import Any

from tf_executor.contract.reports import Progress
from tf_executor.contract.states import tone_of
from tf_executor.contract.text import UNKNOWN, encodable, format_duration, format_loss, format_number, format_part
from tf_scheduler.history.compare import compare_results
from tf_scheduler.history.model import RecordedLaunch, Run, speed_of

_STEPS = (1.0, 2.0, 5.0, 10.0)
_TIMES = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400)


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Return approximately `about` round numbers from `low` to `high`."""
    if not (math.isfinite(low) and math.isfinite(high)) or high <= low:
        return [low] if math.isfinite(low) else []
    rough = (high - low) / about
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(size * factor for factor in _STEPS if size * factor >= rough)
    first = math.ceil(low / step)
    return [float(f"{place * step:.12g}") for place in range(first, math.floor(high / step) + 1)]


def time_ticks(length: float, about: int = 6) -> list[float]:
    """Return round times in seconds from 0 to `length`."""
    step = next((size for size in _TIMES if size * about >= length), 86400 * math.ceil(length / 86400 / about))
    return [float(second) for second in range(0, math.floor(length) + 1, int(step))]


class Html(str):
    """HTML text, which `tag` inserts unchanged; `tag` escapes any other text."""

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


def table(head: Sequence[str], rows: Iterable[Iterable[object]]) -> Html:
    """Return a table; on narrow screens, each cell shows its name."""
    top = tag("thead", tag("tr", [tag("th", cell) for cell in head]))
    body = tag(
        "tbody",
        [tag("tr", [tag("td", cell, data_name=name) for name, cell in zip(head, row, strict=True)]) for row in rows],
    )
    return tag("div", tag("table", top, body), class_="scroll")


def format_time(value: float) -> str:
    """Format a Unix time."""
    return datetime.fromtimestamp(value, timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")


#: Maximum lines in a chart, limited by the colours.
MAX_LINES = 6
_WIDTH, _HEIGHT = 600, 220
#: Ratio of positive values above which a chart is logarithmic.
_WIDE = 50.0
#: Values beyond the largest are drawn as the largest, and smaller differences as none: both would overflow.
_LARGEST, _SMALLEST = 1e200, 1e-200

Line = Sequence[tuple[float, float]]


def progress_charts(run: Run) -> Html:
    """Return charts of loss, metrics and speed, or a note without progress."""
    speeds = [
        _picture(run, f"{unit.capitalize()} a second", _speed_in(unit), marks=True) for unit in ("examples", "steps")
    ]
    names = dict.fromkeys(name for points in run.curves.values() for point in points for name in point.metrics)
    metrics = [_picture(run, name, _metric(name)) for name in names]
    pictures = [_picture(run, "Loss", lambda point: point.loss), *metrics, *speeds]
    if not any(pictures):
        return tag("p", "No task reported progress. See tf_executor.report in docs/reference/tasks.md.", class_="soft")
    return tag("div", pictures, class_="charts")


def _metric(name: str) -> Callable[[Progress], float | None]:
    return lambda point: point.metrics.get(name)


def _speed_in(unit: str) -> Callable[[Progress], float | None]:
    def speed(point: Progress) -> float | None:
        value, own_unit = speed_of(point)
        return value if own_unit == unit else None

    return speed


def _picture(run: Run, title: str, value: Callable[[Progress], float | None], *, marks: bool = False) -> Html:
    lines = _lines(run, value)
    if not lines:
        return Html("")
    drawn = [[(at, min(max(height, -_LARGEST), _LARGEST)) for at, height in line] for line in lines.values()]
    everything = [height for line in drawn for _, height in line]
    low, high = min(everything), max(everything)
    logarithmic = low > _SMALLEST and high / low > _WIDE
    scale = math.log10 if logarithmic else float
    bottom, top = _room(scale(low), scale(high), zero=not logarithmic and low >= 0)
    end = max(at for line in lines.values() for at, _ in line) or 1.0
    starts = [[each.launched - run.submitted for each in run.launches if each.task == task] for task in lines]
    paths = [_path(line, starts[place], place, scale, bottom, top, end) for place, line in enumerate(drawn)]
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
    """Return a mark at each point where the number of running workers changes."""
    workers = [launch for launch in run.launches if launch.task.startswith("worker-")]
    spans = [(launch.running or math.inf, launch.ended or math.inf) for launch in workers]
    counts = [(at, sum(start <= at + run.submitted < stop for start, stop in spans)) for at, _ in line]
    changes = [after for before, after in pairwise(counts) if after[1] not in (0, before[1])]
    ends = [*(at for at, _ in changes[1:]), end]
    return [
        tag("span", f"{count} worker{'s' * (count > 1)}", class_="joined", style=_place(at, until, end))
        for (at, count), until in zip(changes, ends, strict=False)
    ]


def _lines(run: Run, value: Callable[[Progress], float | None]) -> dict[str, Line]:
    """Return task -> (seconds since submission, value) points; the leading task first."""
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
    size = next(size for size in (high - bottom, abs(high), 1.0) if size > _SMALLEST)
    return (bottom if zero else bottom - size * 0.05), high + size * 0.05


def _path(line: Line, starts: Sequence[float], place: int, scale: Callable[[float], float], *box: float) -> Html:
    bottom, top, end = box
    points = [(_WIDTH * at / end, _HEIGHT * (1 - (scale(height) - bottom) / (top - bottom))) for at, height in line]
    # A line ends with its launch. A path of one point is drawn as a dot by round ends.
    begins = [True, *(any(a < start <= b for start in starts) for (a, _), (b, _) in pairwise(line))]
    parts = (
        f"M{x:.1f} {y:.1f}h0.01" if new else f"L{x:.1f} {y:.1f}" for new, (x, y) in zip(begins, points, strict=True)
    )
    return tag("path", d="".join(parts), class_=f"line c{place}")


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
        return tag("p", "No task was launched.", class_="soft")
    whole, more = run_length(run), len(rows) - MAX_ROWS
    marks = [tag("span", format_duration(at), style=f"left:{_share(at, whole)}") for at in time_ticks(whole)]
    return tag(
        "div",
        [_row(run, task, launches, whole) for task, launches in list(rows.items())[:MAX_ROWS]],
        tag("div", tag("div", class_="label"), tag("div", marks, class_="lane axis"), class_="row"),
        tag("p", f"and {more} more tasks", class_="soft") if more > 0 else "",
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


#: In addition to the style of the web page, page.css.
_STYLE = """
main{max-width:1080px;padding-top:24px}
main>header,main>footer{padding-left:0;padding-right:0}
header p{flex-basis:100%;color:var(--soft);overflow-wrap:anywhere}
.row{display:flex;align-items:stretch;min-height:40px}
.label{flex:0 0 150px;padding-right:12px;overflow:hidden;line-height:1.25;align-self:center}
.label b,.label small{display:block;white-space:nowrap;overflow:hidden;text-overflow:ellipsis}
.lane{position:relative;flex:1;min-width:0;border-bottom:1px solid var(--line)}
.lane .grid{position:absolute;top:0;bottom:0;border-left:1px dashed var(--line)}
.lane .bar,.lane .wait{position:absolute;top:9px;bottom:9px;border-radius:4px;overflow:hidden;min-width:2px}
.lane .bar,.lane .wait,.keys .dot{background:var(--tone)}
.bar{color:var(--card);font-size:12px;line-height:21px;padding-left:6px;white-space:nowrap}
.axis{border:0}
.axis span,.under span{position:absolute;top:4px;font-size:12px;color:var(--soft);white-space:nowrap}
.axis span,.under span{transform:translateX(-50%)}
.axis span:first-child,.under span:first-child{transform:none}
.keys{display:flex;flex-wrap:wrap;gap:4px 16px;margin-top:10px;font-size:13px;color:var(--soft)}
.words{position:relative;flex:0 0 52px;font-size:12px;color:var(--soft)}
.words span{position:absolute;right:8px;transform:translateY(-50%)}
.plot{position:relative;flex:1;min-width:0;border-left:1px solid var(--line);border-bottom:1px solid var(--line)}
.plot svg{position:absolute;inset:0;width:100%}
.plot .level{position:absolute;left:0;right:0;border-top:1px dashed var(--line)}
.plot .joined{top:0;bottom:0;overflow:hidden;border-left:1px dashed var(--soft);padding-left:3px}
.plot .joined{display:flex;align-items:end}
.under{position:relative;height:22px}
pre{height:auto}.scroll{overflow-x:auto}.when{white-space:nowrap}
.two{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,420px),1fr));gap:0 16px}
@media(max-width:560px){.label{flex-basis:92px}.axis span:nth-child(even),.under span:nth-child(even){display:none}}
"""


#: Forbid loading and scripts, so that users' names stay text.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_KEYS = (
    ("wait", "launched and not yet running, or waiting"),
    ("busy", "starting"),
    ("good", "finished"),
    ("asked", "stopped by the scheduler"),
    ("bad", "failed or lost"),
    ("going", "still running"),
)
#: Maximum rows of the table of launches.
_MAX_LAUNCHES = 500


def render_page(run: Run) -> str:
    """Return a self-contained HTML document."""
    footer = tag("footer", f"Logs and checkpoints: {run.folder}" if run.folder else "")
    return _document(f"{run.service}: {run.state}", _header(run), _tiles(run), _sections(run), footer)


def render_comparison(old: Run, new: Run) -> str:
    """Return an HTML document with the results and the curves of two runs."""
    curves = {
        run.id: tuple(replace(point, time=point.time - run.submitted) for point in run.curves.get(run.leader or "", ()))
        for run in (old, new)
    }
    results = [(item.name, _cell(item.old), _cell(item.new)) for item in compare_results(old, new)]
    return _document(
        f"{old.id} and {new.id}",
        tag("header", tag("h1", f"{old.id} and {new.id}")),
        _section("Progress of the leading tasks", progress_charts(replace(new, submitted=0.0, curves=curves))),
        _section("Results", table(("", old.id, new.id), results)),
    )


def _cell(value: Any) -> str:
    return format_number(value) if value is None or isinstance(value, int | float) else str(value)


def _document(title: str, *content: object) -> str:
    style = resources.files("tf_scheduler.web").joinpath("static", "page.css").read_text(encoding="utf-8")
    head = join(
        Html('<meta charset="utf-8">'),
        Html('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        Html(f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'),
        tag("title", title),
        tag("style", Html(style), Html(_STYLE)),
    )
    page = tag("html", tag("head", head), tag("body", tag("main", *content)), lang="en")
    return encodable(f"<!doctype html>\n{page}\n")


def _header(run: Run) -> Html:
    when = f"{format_time(run.submitted)} · {run.id}"
    pill = tag("span", run.outcome, class_=f"pill {tone_of(run.state).value}")
    note = tag("p", run.note) if run.note else ""
    return tag("header", tag("h1", run.service), pill, tag("p", run.reason), tag("p", when), note)


def _tiles(run: Run) -> Html:
    last = run.last
    speed, unit = run.speed
    results = (
        (format_duration(run.seconds), "total"),
        (format_duration(run.first_step), "to the first step"),
        (format_number(last.step), "steps"),
        (format_part(last.epoch, last.epochs), "epochs"),
        (format_loss(last.loss, last.nan_since), "last loss"),
        *((format_number(value), f"last {name}") for name, value in last.metrics.items()),
        *((format_number(value), f"best {name}") for name, value in run.best.items()),
        (format_number(speed), f"{unit} a second (median)"),
        (str(len({launch.task for launch in run.launches})), "tasks"),
        (str(run.restarts), "restarts"),
        (str(len({launch.generation for launch in run.launches})), "generations"),
    )
    tiles = [(value, name) for value, name in results if value != UNKNOWN]
    return tag(
        "div", [tag("div", tag("b", value), tag("span", name), class_="tile") for value, name in tiles], class_="tiles"
    )


def _sections(run: Run) -> Iterable[Html]:
    used = {tone_of(launch.state).value for launch in run.launches} | {"wait"}
    keys = [tag("li", tag("i", class_=f"dot {name}"), text) for name, text in _KEYS if name in used]
    yield _section("Timeline", timeline(run), tag("ul", keys, class_="keys") if run.launches else "")
    yield _section("Progress", progress_charts(run))
    yield _section("Placement", _placement(run))
    if run.warnings:
        times = [format_duration(item.time - run.submitted) for item in run.warnings]
        rows = [(tag("span", at, class_="when"), item.message) for at, item in zip(times, run.warnings, strict=True)]
        yield _section("Warnings", table(("after", "warning"), rows))
    environment = table(("what", "version"), run.environment.items())
    options = tag("pre", json.dumps(run.options, indent=2))
    yield tag("div", _section("Environment", environment), _section("Options", options), class_="two")
    if run.launches:
        details = tag("details", tag("summary", f"{len(run.launches)} launches"), _launches(run))
        yield _section("Launches", details)


def _section(title: str, *content: object) -> Html:
    return tag("section", tag("h2", title), *content, class_="card")


def _placement(run: Run) -> Html:
    """Return the agents as HTML, each with its tasks, coloured by their last launch."""
    names = [*run.agents, *(launch.agent for launch in run.launches if launch.agent not in run.agents)]
    cards = []
    for name in dict.fromkeys(names):
        mine = {launch.id: launch for launch in run.launches if launch.agent == name}
        chips = [_chip(launch) for launch in mine.values()] or tag("span", "no task", class_="soft")
        cards.append(tag("div", tag("b", name), tag("p", run.agents.get(name, "")), chips, class_="agent"))
    return tag("div", cards, class_="agents") if cards else tag("p", "Nothing was placed.", class_="soft")


def _chip(launch: RecordedLaunch) -> Html:
    title = f"generation {launch.generation}, {launch.state}"
    return tag("span", launch.task, class_=f"chip {tone_of(launch.state).value}", title=title)


def _launches(run: Run) -> Html:
    def after(time: float | None) -> str:
        return format_duration(None if time is None else time - run.submitted)

    rows = [
        (
            launch.task,
            launch.generation,
            launch.agent,
            launch.address,
            after(launch.launched),
            after(launch.running),
            after(launch.ended),
            launch.state,
            "" if launch.exit_code is None else launch.exit_code,
            launch.replaced or launch.message,
        )
        for launch in run.launches[:_MAX_LAUNCHES]
    ]
    head = ("task", "gen", "agent", "address", "launched", "running", "ended", "state", "exit", "why")
    return table(head, rows)
