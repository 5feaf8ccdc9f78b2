"""What executors tell of the training, kept for those who look."""

from __future__ import annotations

from dataclasses import replace

from tf_scheduler.model.effects import Decision
from tf_scheduler.model.events import ProgressReported
from tf_scheduler.model.ids import name_of
from tf_scheduler.model.state import SchedulerState

from .reduce import decide


def reported(state: SchedulerState, event: ProgressReported) -> Decision:
    """Keep it, unless it is of another launch, or older than what we have."""
    record = state.tasks.get(name_of(event.task_id))
    known = state.progress.get(event.task_id)
    if record is None or record.id != event.task_id or (known and known.sequence >= event.progress.sequence):
        return decide(state)
    return decide(replace(state, progress={**state.progress, event.task_id: event.progress}))
