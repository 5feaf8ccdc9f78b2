"""What a run looks like: a table of plan steps, the last lines of the chief's log. Pure: an overview in, text out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from tf_scheduler.api.glance import Overview, StepRow
from tf_scheduler.model.plan import Override, Status

#: Rows of title, heading, borders and caption.
_FRAME = 6
_COLOURS: Mapping[str, str] = {
    Override.PAUSING: "yellow",
    Override.PAUSED: "yellow",
    Status.PENDING: "yellow",
    Status.WAITING: "yellow",
    Status.DELAYED: "yellow",
    Status.PREPARED: "cyan",
    Status.STARTING: "cyan",
    Status.STARTED: "cyan",
    Status.IN_PROGRESS: "cyan",
    Status.COMPLETE: "green",
    Status.ERROR: "red",
}


def screen(shown: Overview, log_lines: Sequence[str], seconds: float, height: int) -> RenderableType:
    """The whole view, in `height` rows: where tasks are many, those that run well are left out."""
    lines = log_lines[-max(1, min(len(log_lines), height // 3)) :]
    room = height - _FRAME - (len(lines) + 2 if lines else 0)
    parts: list[RenderableType] = [_table(shown, seconds, max(1, room))]
    if shown.leader is not None and lines:
        text = Text("\n".join(lines), no_wrap=True, overflow="ellipsis")
        parts.append(Panel(text, title=f"{shown.leader} log", title_align="left"))
    return Group(*parts)


def _title(shown: Overview, seconds: float) -> str:
    if shown.verdict:
        return f"{shown.service}: {shown.verdict}, ending: {shown.reason}, {seconds:.0f} s"
    return f"{shown.service}: {shown.plan} {shown.status}, {seconds:.0f} s"


def _table(shown: Overview, seconds: float, rows: int) -> Table:
    table = Table("phase", "task", "step", "where", "what", title=_title(shown, seconds), title_justify="left")
    some = shown.steps
    if len(some) > rows:
        some = tuple(sorted(some, key=lambda step: step.status == Status.COMPLETE.value)[:rows])
        table.caption = f"and {len(shown.steps) - len(some)} more"
    for step in some:
        table.add_row(step.phase, step.name, _coloured(step), _where(shown, step), Text(_what(shown, step)))
    return table


def _what(shown: Overview, step: StepRow) -> str:
    task = shown.task(step.task)
    return "; ".join(part for part in (step.message, task.progress if task else "") if part)


def _coloured(step: StepRow) -> Text:
    return Text(step.status, style=_COLOURS.get(step.status, ""))


def _where(shown: Overview, step: StepRow) -> str:
    task = shown.task(step.task)
    return f"{task.hostname} {task.address}" if task else ""
