"""Draw the progress of a `local run` on a terminal.

mnist  TRAINING  epoch 6 of 10                         51 s  http://127.0.0.1:26763/
━━━━━━━━━━━━━━━━━━━━━╸────────  58 %  step 406 of 700  16.2 steps/s  18 s left
loss 0.0324 ▇▆▅▄▃▃▂▂▁▁  accuracy 0.9967  1,037 examples/s  1 restart
  worker-0  TRAINING    step 406  16.2 steps/s  agent-1  0.98 of 1 GB  near its limit
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from rich.console import Group, RenderableType
from rich.style import Style
from rich.text import Text

from dcos_command.output import TONE_STYLES
from dcos_command.service import progress_bar
from tf_executor.contract.reports import OUTPUT, Progress, format_step
from tf_executor.contract.states import Activity, tone_of
from tf_executor.contract.text import (
    UNKNOWN,
    format_duration,
    format_loss,
    format_memory_use,
    format_number,
    format_part,
    format_rate,
    is_near_limit,
    list_names,
    pluralize,
    sparkline,
)
from tf_scheduler.api.views.overview import Overview, TaskRow
from tf_scheduler.cli.common.output import fold_lines
from tf_scheduler.model.spec import JobKind

_SPARK_COUNT = 10
#: Metrics that are shown beside the loss.
_METRICS = 3
#: Columns of the shortest bar.
_SHORTEST_BAR = 8
#: Below this width only job, activity, step and loss are shown.
_TINY = 40
#: Activities that need no attention.
_CALM = (Activity.TRAINING, Activity.RUNNING, Activity.SUCCEEDED)
#: Activities between a launch and the first step, in which the reason of a restart stays on the screen.
_STARTING = (Activity.RESTARTING, Activity.QUEUED, Activity.FETCHING, Activity.IMPORTING, Activity.CONNECTING)
#: Activities of tasks for which others wait in TensorFlow's start.
_NOT_CONNECTED = (Activity.RESTARTING, Activity.FETCHING, Activity.IMPORTING)


class RunHistory:
    """Losses, activities and restart of a run, from its earlier overviews."""

    def __init__(self) -> None:
        self._losses: list[float] = []
        self._last_position: tuple[int | None, int | None] = (None, None)
        self._since: dict[str, tuple[str, float]] = {}
        #: Why tasks restarted last, until a task trains again.
        self.restart = ""

    def add(self, overview: Overview, seconds: float) -> None:
        """Record when each task began its activity, and the loss of each new step."""
        for task in overview.tasks:
            if self._since.get(task.name, ("", 0.0))[0] != task.activity:
                self._since[task.name] = task.activity, seconds
        leader = overview.trainer
        if leader is not None and leader.loss is not None and (leader.step, leader.epoch) != self._last_position:
            self._last_position = leader.step, leader.epoch
            self._losses.append(leader.loss)
        if overview.restart is not None:
            self.restart = overview.detail
        elif overview.activity not in _STARTING:
            self.restart = ""

    def since(self, task: TaskRow) -> float | None:
        """Return when the task began its activity, in seconds of the run; None: unknown."""
        activity, seconds = self._since.get(task.name, ("", 0.0))
        return seconds if activity == task.activity else None

    def sparkline(self) -> str:
        """Return the losses so far as bars."""
        return sparkline(self._losses, _SPARK_COUNT) if len(self._losses) > 1 else ""


# --- drawing


def run_view(
    overview: Overview,
    log_lines: Sequence[str],
    times: tuple[float, float],
    size: tuple[int, int],
    page: str,
    history: RunHistory,
) -> RenderableType:
    """Return the drawing for a terminal. Sentences are folded; only output is cut.

    Args:
        log_lines: Last output, each line with its task.
        times: Seconds since the start of the run, and Unix time.
        size: Width and height of the terminal.
        page: Address of the page; the text omits the fragment (token), the link contains it.
    """
    (seconds, now), (width, height) = times, size
    if width < _TINY:
        return Group(*_title(overview, seconds, width, ""), *_tiny_progress(overview))
    head = [*_title(overview, seconds, width, page), *_reasons(overview, history, now, width)]
    head += [*_progress(overview, width, history)]
    head += [line for notice in overview.notices for line in _folded(notice, width, "yellow")]
    lines = [_cut(f"  {line}", "dim") for line in log_lines[-max(1, height // 3) :]]
    rows = max(1, height - len(head) - len(lines) - 1)
    return Group(*head, *_tasks(overview, rows, width, seconds, history), *lines)


def _title(overview: Overview, seconds: float, width: int, page: str) -> Iterator[Text]:
    """Yield service, activity, time and address, on as many lines as they need."""
    word = Activity.FAILED.value if overview.refused else overview.activity
    left = [Text(overview.service, "bold"), Text(word.upper(), TONE_STYLES[tone_of(word)])]
    if _width(left) > width:
        yield _cut(overview.service, "bold")
        del left[0]
    if width < _TINY:
        yield _joined(left)
        return
    about, right = _about(overview), [Text(format_duration(round(seconds)))]
    link = [Text(page.partition("#")[0], Style(link=page))] if page else []
    with_about = [*left, *([Text(about)] if about else [])]
    if _width([*with_about, *right, *link]) <= width:
        yield _spread(with_about, [*right, *link], width)
        return
    is_short = _width([*with_about, *right]) <= width
    yield _spread(with_about if is_short else left, right, width)
    yield from link
    if about and not is_short:
        yield from _folded(about, width)


def _about(overview: Overview) -> str:
    """Return what the activity is about: the epoch, or the tasks."""
    trainer, activity = overview.trainer, overview.activity
    if overview.verdict or overview.refused or activity == Activity.RESTARTING:
        return ""
    if activity == Activity.TRAINING and trainer is not None and trainer.epoch is not None:
        return f"epoch {format_part(trainer.epoch, trainer.epochs)}"
    if activity == Activity.IMPORTING:
        names = [task for task in overview.tasks if not task.name.startswith(JobKind.TENSORBOARD.value)]
        ready = sum(task.activity not in _NOT_CONNECTED for task in names)
        return f"TensorFlow runs in {ready} of {pluralize(len(names), 'task')}"
    return overview.detail


def _reasons(overview: Overview, history: RunHistory, now: float, width: int) -> Iterator[Text]:
    """Yield why the job has ended, restarts or waits."""
    if overview.reason or overview.refused:
        yield from _folded(overview.reason or overview.refused, width)
    if history.restart and not overview.verdict:
        yield from _folded(f"{history.restart}{_next_launch(overview, now)}", width)
    if overview.activity == Activity.QUEUED:
        yield from _folded("to see why it waits: dcos-tensorflow why", width, "dim")


def _next_launch(overview: Overview, now: float) -> str:
    restart = overview.restart
    if restart is None:
        return ""
    live = [task.name for task in overview.tasks if task.live and task.name in (restart.task, *restart.others)]
    if live:
        return f"; again when {list_names(live)} {'has' if len(live) == 1 else 'have'} stopped"
    return f"; again in {format_duration(round(restart.ready_at - now))}" if restart.ready_at >= now + 1 else ""


def _tiny_progress(overview: Overview) -> Iterator[Text]:
    task = overview.trainer
    if task is not None and task.step_text:
        loss = "" if (text := format_loss(task.loss, task.nan_since)) == UNKNOWN else f"  loss {text}"
        yield _cut(f"{_position(task)}{loss}")


def _position(task: TaskRow) -> str:
    """Return a text such as `step 406`, or `epoch 3` without steps."""
    return format_step(Progress(step=task.step, epoch=task.epoch), has_unit=True)


#: Parts of a line with their ranks; a line that is too long loses those of the highest rank.
_Ranked = list[tuple[int, Text]]


def _progress(overview: Overview, width: int, history: RunHistory) -> Iterator[Text]:
    """Yield the bar if the number of steps is known, then loss, metrics and speeds."""
    task = overview.trainer
    if task is None or not task.step_text:
        return
    speed = "" if task.steps_per_second is None else format_rate(task.steps_per_second, "steps")
    below = speed
    if task.step is not None and task.total:
        numbers = [task.share_text, f"step {task.step_text}", speed]
        is_ending = task.seconds_left is None or overview.activity == Activity.STOPPING
        numbers += [] if is_ending else [f"{format_duration(task.seconds_left)} left"]
        if _width(map(Text, numbers)) + 4 * _SHORTEST_BAR <= width:
            below = ""
        else:
            numbers[1:3] = [task.step_text]
        parts = [Text(text) for text in numbers if text]
        text = progress_bar(task.step / task.total, max(_SHORTEST_BAR, width - _width(parts) - 2))
        done = text.rstrip("─")
        bar = Text.assemble((done, "green"), (text.removeprefix(done), "dim"))
        yield _fitted([(0, bar), *enumerate(parts, 1)], width)
    ranked = _values(overview, task, below, history)
    if ranked := [(rank, part) for rank, part in ranked if part.plain]:
        yield _fitted(ranked, width)


def _values(overview: Overview, task: TaskRow, speed: str, history: RunHistory) -> _Ranked:
    """Return the parts of the line below the bar, with their ranks."""
    parts: _Ranked = [(0, Text("" if task.step is not None and task.total else _position(task)))]
    if (loss := format_loss(task.loss, task.nan_since)) != UNKNOWN:
        parts += [(0, Text(f"loss {loss}")), (5, Text(history.sparkline()))]
    metrics = [*Progress.from_json({"metrics": task.metrics}).metrics.items()][:_METRICS]
    parts += [(2 + rank, Text(f"{name} {format_number(value)}")) for rank, (name, value) in enumerate(metrics)]
    parts.append((1, Text(speed)))
    if overview.examples_per_second is not None:
        parts.append((3, Text(format_rate(overview.examples_per_second, "examples"))))
    if overview.restarts:
        parts.append((1, Text(pluralize(overview.restarts, "restart"))))
    if task.source == OUTPUT and task.loss is not None:
        parts.append((6, Text("read from the output", "dim")))
    return parts


def _tasks(overview: Overview, rows: int, width: int, seconds: float, history: RunHistory) -> Iterator[Text]:
    """Yield a line for each task; a sentence sums up the tasks that do not fit."""
    visible = list(overview.tasks)
    if len(visible) > rows:
        visible = sorted(visible, key=lambda task: task.activity in _CALM)[: max(1, rows - 2)]
    missing = [task.name for task in overview.tasks if task.activity in _NOT_CONNECTED]
    waits = f"waits for {list_names(missing)}" if missing else ""
    table = [_cells(task, seconds, history, waits) for task in visible]
    yield from _aligned(table, width)
    if len(visible) < len(overview.tasks):
        names = {task.name for task in visible}
        # A sentence such as `... and 46 workers TRAINING, steps 402 to 406`.
        tasks = [task for task in overview.tasks if task.name not in names]
        counts = Counter((task.name.rpartition("-")[0], task.activity.upper()) for task in tasks)
        groups = [f"{pluralize(count, job)} {word}" for (job, word), count in counts.items()]
        if steps := sorted(task.step for task in tasks if task.step is not None):
            first, last = format_number(steps[0]), format_number(steps[-1])
            groups.append(f"step {first}" if first == last else f"steps {first} to {last}")
        yield from _folded(f"... and {', '.join(groups)}", width)


#: Names of the columns; a table that is too wide loses columns in the order of `_LESS`.
_COLUMNS = ("name", "activity", "step", "speed", "wait", "agent", "memory", "near")
_LESS = ("near", "agent", "speed", "wait", "memory", "step")


def _cells(task: TaskRow, seconds: float, history: RunHistory, waits: str) -> Mapping[str, Text]:
    """Return the cells of a task by column, without columns that are empty."""
    activity, since = Activity.of(task.activity), history.since(task)
    cells = {"name": Text(task.name), "activity": Text(task.activity.upper(), TONE_STYLES[activity.tone])}
    if task.step_text and activity in _CALM:
        cells["step"] = Text(_position(task))
        if task.steps_per_second is not None:
            cells["speed"] = Text(format_rate(task.steps_per_second, "steps"))
    elif activity in _STARTING and since is not None:
        cells["step"] = Text(format_duration(round(seconds - since)))
        cells["wait"] = Text(waits if activity is Activity.CONNECTING else "")
    cells["agent"] = Text(task.hostname)
    if task.memory_used_mb is not None and task.live:
        near = is_near_limit(task.memory_used_mb, task.memory_mb)
        cells["memory"] = Text(format_memory_use(task.memory_used_mb, task.memory_mb), "yellow" if near else "")
        cells["near"] = Text("near its limit" if near else "", "yellow")
    return cells


def _aligned(table: Sequence[Mapping[str, Text]], width: int) -> Iterator[Text]:
    """Yield the rows of a table with as many columns as the terminal has room for."""
    sizes = {name: max((row[name].cell_len for row in table if name in row), default=0) for name in _COLUMNS}
    columns = [name for name in _COLUMNS if sizes[name]]
    for name in _LESS:
        if sum(sizes[each] + 2 for each in columns) > width and name in columns:
            columns.remove(name)
    for row in table:
        line = Text(no_wrap=True, overflow="ellipsis")
        for name in columns:
            cell = row.get(name, Text())
            line.append("  ").append_text(cell).append(" " * (sizes[name] - cell.cell_len))
        line.rstrip()
        yield line


def _width(parts: Iterable[Text]) -> int:
    """Return the width in columns of parts that are joined by two spaces."""
    sizes = [part.cell_len for part in parts]
    return sum(sizes) + 2 * max(0, len(sizes) - 1)


def _joined(parts: Iterable[Text]) -> Text:
    line = Text("  ").join(parts)
    line.no_wrap, line.overflow = True, "ellipsis"
    return line


def _spread(left: Sequence[Text], right: Sequence[Text], width: int) -> Text:
    gap = width - _width(left) - _width(right)
    return _joined(left).append(" " * max(2, gap)).append_text(_joined(right))


def _fitted(parts: _Ranked, width: int) -> Text:
    """Join the parts; if the line is too long, omit the parts of the highest ranks."""
    kept = list(parts)
    while len(kept) > 1 and _width(part for _, part in kept) > width:
        kept.remove(max(reversed(kept), key=lambda item: item[0]))
    return _joined(part for _, part in kept)


def _folded(text: str, width: int, style: str = "") -> Iterator[Text]:
    """Yield a sentence as indented lines."""
    for line in fold_lines(text, width - 2):
        yield Text(f"  {line}", style, overflow="fold")


def _cut(text: str, style: str = "") -> Text:
    return Text(text, style=style, no_wrap=True, overflow="ellipsis")
