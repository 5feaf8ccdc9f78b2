"""What a run looks like: a table of plan steps and the last lines of the chief's log. Pure: state in, text out."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from tf_scheduler.core.plans import plans
from tf_scheduler.model.plan import Plan, Status, Step
from tf_scheduler.model.progress import Progress
from tf_scheduler.model.spec import JobKind
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.model.task import TaskRecord

#: Rows of title, heading, borders and caption.
_FRAME = 6
_COLOURS = {
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


def leader(state: SchedulerState) -> TaskRecord | None:
    """The task whose log tells how training goes: the chief, else worker 0."""
    for name in (f"{JobKind.CHIEF.value}-0", f"{JobKind.WORKER.value}-0"):
        for record in state.tasks.values():
            if record.name == name:
                return record
    return None


def screen(state: SchedulerState, log_lines: Sequence[str], seconds: float, height: int) -> RenderableType:
    """The whole view, in `height` rows: where tasks are many, those that run well are left out."""
    lines = log_lines[-max(1, min(len(log_lines), height // 3)) :]
    room = height - _FRAME - (len(lines) + 2 if lines else 0)
    parts: list[RenderableType] = [_table(state, seconds, max(1, room))]
    record = leader(state)
    if record is not None and lines:
        text = Text("\n".join(lines), no_wrap=True, overflow="ellipsis")
        parts.append(Panel(text, title=f"{record.name} log", title_align="left"))
    return Group(*parts)


def _title(state: SchedulerState, plan: Plan, seconds: float) -> str:
    if state.result is not None:
        return f"{state.spec.name}: {state.result.verdict.value}, ending: {state.result.reason}, {seconds:.0f} s"
    return f"{state.spec.name}: {plan.name} {plan.status.value}, {seconds:.0f} s"


def _table(state: SchedulerState, seconds: float, rows: int) -> Table:
    plan = _shown(state)
    title = _title(state, plan, seconds)
    table = Table("phase", "task", "step", "where", "what", title=title, title_justify="left")
    steps = [(phase, step) for phase in plan.phases for step in phase.steps]
    shown = steps if len(steps) <= rows else sorted(steps, key=lambda pair: pair[1].status is Status.COMPLETE)[:rows]
    for phase, step in shown:
        table.add_row(phase.name, step.name, _coloured(step), _where(state, step), Text(_what(state, step)))
    if len(shown) < len(steps):
        table.caption = f"and {len(steps) - len(shown)} more"
    return table


def _shown(state: SchedulerState) -> Plan:
    """The plan that works: deploy, or update when that has something to do."""
    found = {plan.name: plan for plan in plans(state)}
    update = found.get("update")
    return update if update is not None and update.status is not Status.COMPLETE else found["deploy"]


def _what(state: SchedulerState, step: Step) -> str:
    record = None if step.task is None else state.tasks.get(step.task)
    progress = None if record is None else state.progress.get(record.id)
    return "; ".join(part for part in (step.message, spoken(progress) if progress else "") if part)


def spoken(progress: Progress) -> str:
    """`step 120 of 500, 32.1 examples/s, loss 0.25, 12 s left`"""
    steps = f"step {progress.step}" if progress.total is None else f"step {progress.step} of {progress.total}"
    speed, unit = progress.examples_per_second, "examples"
    if speed is None:
        speed, unit = progress.steps_per_second, "steps"
    left = progress.seconds_left
    parts = (
        "" if progress.step is None else steps,
        "" if speed is None else f"{speed:.1f} {unit}/s",
        "" if progress.loss is None else f"loss {progress.loss:.4g}",
        "" if left is None else f"{left:.0f} s left",
    )
    return ", ".join(part for part in parts if part)


def _coloured(step: Step) -> Text:
    return Text(step.status.value, style=_COLOURS[step.status])


def _where(state: SchedulerState, step: Step) -> str:
    record = None if step.task is None else state.tasks.get(step.task)
    return f"{record.hostname} {record.address}" if record else ""
