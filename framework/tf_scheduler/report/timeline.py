"""The Gantt chart: a row for each task, a bar for each launch. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from tf_scheduler.history.model import Launch, Run

from .axis import clock, times
from .markup import Html, seconds, tag

#: Rows: more would be no picture any more.
MOST_ROWS = 200
_WELL = ("finished",)
_ASKED = ("killed", "killing")
_GOING = ("running", "starting", "staging", "not heard of")


def length(run: Run) -> float:
    """Seconds from the submission to the last thing that happened."""
    ends = [launch.ended or launch.running or launch.launched for launch in run.launches]
    return max([run.seconds, 0.1, *(end - run.submitted for end in ends)])


def timeline(run: Run) -> Html:
    """Empty text where nothing was launched."""
    rows: dict[str, list[Launch]] = {}
    for launch in run.launches:
        rows.setdefault(launch.task, []).append(launch)
    whole, shown = length(run), list(rows.items())[:MOST_ROWS]
    if not shown:
        return tag("p", "No task was launched.", class_="none")
    more = len(rows) - len(shown)
    return tag(
        "div",
        [_row(run, task, launches, whole) for task, launches in shown],
        _axis(whole),
        tag("p", f"and {more} tasks more", class_="none") if more else "",
        class_="gantt",
    )


def kind(launch: Launch) -> str:
    """Class of a launch's colour."""
    if launch.state in _WELL:
        return "good"
    if launch.state in _GOING:
        return "going"
    return "asked" if launch.state in _ASKED else "bad"


def _row(run: Run, task: str, launches: Sequence[Launch], whole: float) -> Html:
    bars = [_bar(run, launch, after, whole) for launch, after in zip(launches, [*launches[1:], None], strict=True)]
    grid = [tag("i", class_="grid", style=f"left:{_share(at, whole)}") for at in times(whole)]
    times_told = f"{len(launches)} launches, " if len(launches) > 1 else ""
    label = tag("div", tag("b", task), tag("small", times_told, launches[-1].agent), class_="label")
    return tag("div", label, tag("div", grid, bars, class_="lane"), class_="row")


def _bar(run: Run, launch: Launch, after: Launch | None, whole: float) -> Html:
    start = launch.launched - run.submitted
    limit = whole if after is None else after.launched - run.submitted
    end = min(limit, whole if launch.ended is None else launch.ended - run.submitted)
    running = end if launch.running is None else min(end, launch.running - run.submitted)
    title = _title(launch, start, running, end)
    waiting = tag("span", class_="wait", style=_place(start, running, whole), title=title)
    text = f"gen {launch.generation}" if end - running > whole / 12 else ""
    body = tag("span", text, class_=f"bar {kind(launch)}", style=_place(running, end, whole), title=title)
    return Html(waiting + (body if end > running or launch.running is not None else ""))


def _title(launch: Launch, start: float, running: float, end: float) -> str:
    code = "" if launch.exit_code is None else f", exit code {launch.exit_code}"
    parts = (
        f"{launch.task} on {launch.agent} ({launch.address}), generation {launch.generation}",
        f"launched at {clock(start)}, running at {clock(running)}, {launch.state} at {clock(end)}{code}",
        launch.message,
        f"replaced: {launch.replaced}" if launch.replaced else "",
        f"ran {seconds(end - running)}",
    )
    return "\n".join(part for part in parts if part)


def _axis(whole: float) -> Html:
    marks = [tag("span", clock(at), style=f"left:{_share(at, whole)}") for at in times(whole)]
    return tag("div", tag("div", class_="label"), tag("div", marks, class_="lane axis"), class_="row")


def _place(start: float, end: float, whole: float) -> str:
    return f"left:{_share(start, whole)};width:{_share(max(0.0, end - start), whole)}"


def _share(value: float, whole: float) -> str:
    return f"{100 * min(1.0, max(0.0, value / whole)):.3f}%"
