"""What `local run` shows: a drawing on a terminal, lines in a pipe, output.

mnist  TRAINING                                        0:51  http://127.0.0.1:26763/
━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━╸─────────────  58 %  step 406 of 700  0:18 left
loss 0.0324 ▇▆▅▄▃▃▂▂▁▁  16.2 steps/s  1,037 examples/s  1 restart
  worker-0  TRAINING    step 406  16.2 steps/s  agent-1  0.98 of 1.0 GB  near its limit
  worker-1  TRAINING    step 406  16.2 steps/s  agent-2  0.91 of 1.0 GB
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import click
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from dcos_command.logs import prefixed
from mesos_local.cluster import LocalCluster
from mesos_local.host.errors import MesosLocalError
from tf_scheduler.api.views.overview import Activity, Overview, TaskRow
from tf_scheduler.cli.common.output import OutputRedactor

#: Seconds between two lines about the progress in a pipe.
EVERY = 10.0
_SPARKS = "▁▂▃▄▅▆▇█"
_SPARK_COUNT = 10
#: Metrics that are shown beside the loss.
_METRICS = 3
#: From this width on the address of the page is beside the name of the job.
_WIDE = 80
#: Share of its memory from which a task is near its limit.
_NEAR = 0.95
#: Below this width only job, activity, step and loss are shown.
_TINY = 40
_COLOURS = {
    Activity.TRAINING: "green",
    Activity.RUNNING: "green",
    Activity.SUCCEEDED: "green",
    Activity.RESTARTING: "yellow",
    Activity.STALLED: "yellow",
    Activity.QUEUED: "yellow",
    Activity.FROZEN: "red",
    Activity.FAILED: "red",
    Activity.UNREACHABLE: "red",
}
#: Activities that need no attention.
_CALM = (Activity.TRAINING, Activity.RUNNING, Activity.SUCCEEDED)


class RunHistory:
    """What earlier overviews of a run have shown."""

    def __init__(self) -> None:
        self._losses: list[float] = []
        self._last_step: int | None = None
        self._launches: dict[str, set[str]] = {}

    def add(self, overview: Overview) -> None:
        """Remember the launches, and the loss of a new step."""
        for task in overview.tasks:
            self._launches.setdefault(task.name, set()).add(task.id)
        leader = overview.trainer
        if leader is not None and leader.loss is not None and leader.step != self._last_step:
            self._last_step = leader.step
            self._losses.append(leader.loss)

    @property
    def restarts(self) -> int:
        """Number of launches after the first of the task that was launched most often."""
        return max((len(launches) for launches in self._launches.values()), default=1) - 1

    def sparkline(self) -> str:
        """Return the losses so far as bars."""
        losses = self._losses
        count = min(_SPARK_COUNT, len(losses))
        if count < 2:
            return ""
        chosen = [losses[round(index * (len(losses) - 1) / (count - 1))] for index in range(count)]
        low, high = min(chosen), max(chosen)
        scale = (len(_SPARKS) - 1) / (high - low) if high > low else 0.0
        return "".join(_SPARKS[round((loss - low) * scale)] for loss in chosen)


class _Bar:
    """Share of the steps that are done, as wide as its column."""

    def __init__(self, share: float) -> None:
        self._share = min(1.0, max(0.0, share))

    def __rich_console__(self, _console: Console, options: ConsoleOptions) -> RenderResult:
        width = options.max_width
        halves = int(self._share * width * 2)
        done = "━" * (halves // 2) + "╸" * (halves % 2)
        yield Text(done, style="green", end="") + Text("─" * (width - len(done)), style="dim")


def run_view(
    overview: Overview, log_lines: Sequence[str], seconds: float, size: tuple[int, int], page: str, history: RunHistory
) -> RenderableType:
    """Return the drawing for a terminal of this width and height; nothing wraps."""
    width, height = size
    head = [*_head(overview, seconds, width, page), *_progress(overview, width, history)]
    head += [_cut(notice, "yellow") for notice in overview.notices]
    if width < _TINY:
        return Group(*head)
    lines = [_cut(f"  {overview.leader} | {line}", "dim") for line in log_lines[-max(1, height // 3) :]]
    rows = max(1, height - len(head) - len(lines) - 2)
    return Group(*head, *_tasks(overview.tasks, rows, width), *lines)


def _head(overview: Overview, seconds: float, width: int, page: str) -> Iterable[RenderableType]:
    activity = activity_of(overview)
    title = Text.assemble(
        (overview.service, "bold"), "  ", (activity.upper(), _COLOURS.get(Activity(activity), "cyan"))
    )
    if width < _TINY:
        yield title
        return
    row = Table.grid(expand=True)
    row.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
    row.add_column(justify="right", no_wrap=True)
    wide = width >= _WIDE and page
    row.add_row(title, clock(seconds) + (f"  {page}" if wide else ""))
    yield row
    if page and not wide:
        yield _cut(page)
    if detail := overview.reason or overview.detail:
        yield Padding(Text(detail, overflow="fold"), (0, 0, 0, 2))


def _progress(overview: Overview, width: int, history: RunHistory) -> Iterable[RenderableType]:
    task = overview.trainer
    if task is None or task.step is None:
        return
    if width < _TINY:
        yield _cut(f"step {task.step:,}" + ("" if task.loss is None else f"  loss {task.loss:.4g}"))
        return
    steps = f"step {task.step:,}" if width >= _WIDE or not task.total else f"{task.step:,}"
    if task.total:
        left = "" if task.seconds_left is None else f"  {clock(task.seconds_left)} left"
        row = Table.grid(padding=(0, 2, 0, 0), expand=True)
        row.add_column(ratio=1)
        row.add_column(no_wrap=True)
        row.add_row(_Bar(task.step / task.total), f"{task.step / task.total:.0%} {steps} of {task.total:,}{left}")
        yield row
    parts = [] if task.total else [steps]
    if task.loss is not None:
        parts.append(f"loss {task.loss:.4g} {history.sparkline()}".rstrip())
    parts += [f"{name} {value:.4g}" for name, value in list(task.metrics.items())[:_METRICS] if value is not None]
    parts += [*_speeds(task), *([_counted(history.restarts, "restart")] if history.restarts else [])]
    yield _cut("  ".join(parts))


def _tasks(tasks: Sequence[TaskRow], rows: int, width: int) -> Iterable[RenderableType]:
    shown = list(tasks)
    if len(shown) > rows:
        shown = sorted(tasks, key=lambda task: task.activity in _CALM)[: max(1, rows - 1)]
    table = Table.grid(padding=(0, 2, 0, 0))
    for _ in range(5 if width >= _WIDE else 4):
        table.add_column(no_wrap=True, overflow="ellipsis")
    for task in shown:
        colour = _COLOURS.get(Activity(task.activity), "cyan")
        cells = [Text(f"  {task.name}"), Text(task.activity.upper(), style=colour), Text(_doing(task, width))]
        table.add_row(*cells, *([Text(task.hostname)] if width >= _WIDE else []), _memory(task, width))
    yield table
    if len(shown) < len(tasks):
        rest = [task for task in tasks if task not in shown]
        yield _cut(f"  ... and {_counted(len(rest), 'more task')}{_steps(rest)}")


def _memory(task: TaskRow, width: int) -> Text:
    if task.memory_used_mb is None or not task.live:
        return Text()
    near = task.memory_used_mb >= _NEAR * task.memory_mb
    text = memory_text(task.memory_used_mb, task.memory_mb)
    return Text(f"{text}  near its limit" if near and width >= _WIDE else text, style="yellow" if near else "")


def memory_text(used: float, granted: float) -> str:
    """Return amounts in MB as `310 of 512 MB` or `0.98 of 1.0 GB`."""
    if granted < 1000:
        return f"{used:,.0f} of {granted:,.0f} MB"
    digits = 2 if used < 10 * 1024 else 1
    return f"{used / 1024:,.{digits}f} of {granted / 1024:,.1f} GB"


def _doing(task: TaskRow, width: int) -> str:
    if task.step is None or task.activity not in _CALM:
        return "" if task.activity in _CALM else task.message
    parts = [f"step {task.step:,}", *(_speeds(task)[:1] if width >= _WIDE else [])]
    return "  ".join(parts)


def _steps(tasks: Sequence[TaskRow]) -> str:
    steps = [task.step for task in tasks if task.step is not None]
    if not steps:
        return ""
    return f", step {min(steps):,}" if min(steps) == max(steps) else f", steps {min(steps):,} to {max(steps):,}"


def _speeds(task: TaskRow) -> list[str]:
    named = ((task.steps_per_second, "steps/s"), (task.examples_per_second, "examples/s"))
    return [f"{_number(value)} {unit}" for value, unit in named if value is not None]


def _number(value: float) -> str:
    return f"{value:.3g}" if value < 100 else f"{value:,.0f}"


def _counted(count: int, word: str) -> str:
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def _cut(text: str, style: str = "") -> Text:
    return Text(text, style=style, no_wrap=True, overflow="ellipsis")


def clock(seconds: float) -> str:
    """Return a duration as `0:51` or `1:02:03`."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def activity_of(overview: Overview) -> str:
    """Return the job's activity; `failed` if Mesos refused the framework."""
    return Activity.FAILED.value if overview.refused else overview.activity


class LineView:
    """Prints a line with the time at each change, and every EVERY seconds."""

    def __init__(self, echo: Callable[[str], None] = lambda line: click.echo(line, err=True)) -> None:
        self._echo = echo
        self._before: tuple[object, ...] = ()
        self._notices: tuple[str, ...] = ()
        self._due = 0.0

    def draw(self, overview: Overview, seconds: float) -> None:
        """Print what is new."""
        activity = activity_of(overview)
        if new := [notice for notice in overview.notices if notice not in self._notices]:
            self._notices = overview.notices
            for notice in new:
                self._print(notice)
        key = (activity, overview.detail if activity == Activity.RESTARTING else overview.reason)
        if key != self._before or seconds >= self._due:
            self._before, self._due = key, seconds + EVERY
            self._print(f"{activity}{_text(overview)}")

    def _print(self, text: str) -> None:
        self._echo(f"{time.strftime('%H:%M:%S')} {text}")


def _text(overview: Overview) -> str:
    """Return the progress, else what the tasks wait for."""
    task = overview.trainer
    if overview.reason or overview.detail:
        return f": {overview.reason or overview.detail}"
    return f": {task.progress}" if task is not None and task.progress else ""


# --- output of tasks


def sandbox_of(cluster: LocalCluster, overview: Overview, task: TaskRow) -> Path | None:
    """Return the sandbox of a task; None if the agent has not created it."""
    try:
        return cluster.sandbox(task.agent_id, overview.framework_id or "", task.executor_id)
    except MesosLocalError:
        return None


#: Prints a line of a task's output.
Echo = Callable[[str], None]
#: Values of `--follow` besides a task, and output files that it reads.
LEADER, ALL = "leader", "all"
_OUTPUTS = ("stdout", "stderr")
_PART = 1 << 20  # bytes read at once


class _Tail:
    """New whole lines of an output file, which the executor may truncate."""

    def __init__(self, path: Path) -> None:
        self._path, self._offset, self._partial = path, 0, b""

    def lines(self, *, last: bool = False) -> Iterator[str]:
        """Yield new lines; with `last` all of them, also an incomplete one."""
        while part := self._read():
            whole, newline, self._partial = (self._partial + part).rpartition(b"\n")
            yield from whole.decode(errors="replace").split("\n") if newline else ()
            if not last:
                return
        if last and self._partial:
            yield self._partial.decode(errors="replace")
            self._partial = b""

    def _read(self) -> bytes:
        try:
            with self._path.open("rb") as file:
                if file.seek(0, os.SEEK_END) < self._offset:
                    self._offset = 0
                file.seek(self._offset)
                part = file.read(_PART)
        except OSError:  # not created yet
            return b""
        self._offset += len(part)
        return part


class OutputFollower:
    """Prints new output of `selected`: a task, LEADER, ALL, or empty for none."""

    def __init__(self, selected: str, cluster: LocalCluster, redactor: OutputRedactor) -> None:
        self._selected, self._cluster, self._redactor = selected, cluster, redactor
        #: Id of a launch -> task and its files.
        self._launches: dict[str, tuple[str, list[_Tail]]] = {}

    def read(self, overview: Overview, echo: Echo) -> None:
        """Print the new output; of launches that were replaced the rest."""
        selected = overview.leader if self._selected == LEADER else self._selected
        current = {task.id: task for task in overview.tasks if task.id and selected in (task.name, ALL)}
        self._print([id_ for id_ in self._launches if id_ not in current], echo)
        for id_, task in current.items():
            sandbox = None if id_ in self._launches else sandbox_of(self._cluster, overview, task)
            if sandbox is not None:
                self._launches[id_] = task.name, [_Tail(sandbox / name) for name in _OUTPUTS]
        for task_name, tails in self._launches.values():
            for line in (line for tail in tails for line in tail.lines()):
                self._echo(task_name, line, echo)

    def finish(self, echo: Echo) -> None:
        """Print the rest of all output."""
        self._print(list(self._launches), echo)

    def _print(self, launches: Iterable[str], echo: Echo) -> None:
        for id_ in launches:
            task_name, tails = self._launches.pop(id_)
            for line in (line for tail in tails for line in tail.lines(last=True)):
                self._echo(task_name, line, echo)

    def _echo(self, task_name: str, line: str, echo: Echo) -> None:
        if (quoted := self._redactor.quote(task_name, line)) is not None:
            echo(prefixed(task_name, quoted))
