"""What executors of ours tell the scheduler beside updates -> model events."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from tf_executor import reports
from tf_scheduler.model.events import ProgressReported
from tf_scheduler.model.ids import TaskId
from tf_scheduler.model.progress import Progress


def progress(raw: Mapping[str, Any]) -> ProgressReported | None:
    """None: it is nobody's of ours, or of a version that we do not know."""
    try:
        told = reports.Progress.decode(base64.b64decode(raw["data"]))
    except (KeyError, ValueError):
        return None
    if told is None:
        return None
    found = {name: value for name, value in asdict(told).items() if name != "task_id"}
    return ProgressReported(TaskId(told.task_id), Progress(**found))
