"""What executors of ours tell the scheduler beside updates -> model events."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from tf_executor import reports
from tf_scheduler.model.events import ProgressReported
from tf_scheduler.model.ids import TaskId
from tf_scheduler.model.progress import Progress

from . import said


def progress(raw: Mapping[str, Any]) -> ProgressReported | None:
    """None: it is nobody's of ours, or of a version that we do not know."""
    told = reports.Progress.decode(said.data(raw.get("data")), said.ignored)
    if told is None:
        return None
    found = {name: value for name, value in asdict(told).items() if name != "task_id"}
    return ProgressReported(TaskId(told.task_id), Progress(**found))
