"""What executors of ours tell the scheduler beside updates -> model events."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from tf_executor import reports
from tf_scheduler.model.events import ProgressReported
from tf_scheduler.model.ids import TaskId, executor_of
from tf_scheduler.model.progress import Progress

from . import said


def progress(raw: Mapping[str, Any]) -> ProgressReported | None:
    """None: it is nobody's of ours, of a version that we do not know, or about the task of another executor."""
    told = reports.Progress.decode(said.data(raw.get("data")), said.ignored)
    if told is None:
        return None
    if executor_of(TaskId(told.task_id)) != _executor(raw):
        said.ignored("an executor tells the progress of another one's task: ignored")
        return None
    found = {name: value for name, value in asdict(told).items() if name != "task_id"}
    return ProgressReported(TaskId(told.task_id), Progress(**found))


def _executor(raw: Mapping[str, Any]) -> object:
    """Whom the agent names as the sender."""
    named = raw.get("executor_id")
    return named.get("value") if isinstance(named, Mapping) else None
