"""What executors tell of the training, kept for those who look."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tf_scheduler.model.effects import Decision
from tf_scheduler.model.events import ProgressReported
from tf_scheduler.model.ids import TaskId, name_of
from tf_scheduler.model.progress import Progress
from tf_scheduler.model.state import SchedulerState

from .reduce import decide


def reported(state: SchedulerState, event: ProgressReported) -> Decision:
    """Keep it, unless it is of another launch, or older than what we have."""
    record = state.tasks.get(name_of(event.task_id))
    known = state.progress.get(event.task_id)
    if record is None or record.id != event.task_id or (known and known.sequence >= event.progress.sequence):
        return decide(state)
    return decide(replace(state, progress={**state.progress, event.task_id: event.progress}))


def still_of(state: SchedulerState, heard: Mapping[TaskId, Progress]) -> dict[TaskId, Progress]:
    """What was heard of launches that are still those of their tasks."""
    return {record.id: heard[record.id] for record in state.tasks.values() if record.id in heard}


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
