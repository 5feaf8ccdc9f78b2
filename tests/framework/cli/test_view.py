from __future__ import annotations

import io
import math
from dataclasses import replace

import pytest
from rich.console import Console

from builders import a_spec
from tf_scheduler.api.overview import overview
from tf_scheduler.cli.view import screen
from tf_scheduler.core.progress import spoken
from tf_scheduler.core.reduce import apply
from tf_scheduler.model.effects import TaskLaunched
from tf_scheduler.model.ids import AgentId, TaskId, TaskName
from tf_scheduler.model.progress import Progress
from tf_scheduler.model.spec import JobKind
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.model.task import TaskRecord


@pytest.mark.parametrize(
    ("progress", "expected"),
    [
        (Progress(1, 0.0), ""),
        (Progress(1, 0.0, step=7), "step 7"),
        (Progress(1, 0.0, loss=math.nan), "loss nan"),
        (
            Progress(1, 0.0, 120, 500, 0.123456, 3840, 10.0, 320.04),
            "step 120 of 500, 320.0 examples/s, loss 0.1235, 38 s left",
        ),
        (Progress(1, 0.0, 120, steps_per_second=10.0), "step 120, 10.0 steps/s"),
    ],
)
def test_progress_in_words(progress: Progress, expected: str) -> None:
    """Only what is known."""
    assert expected == spoken(progress)


def test_progress_stands_beside_its_task() -> None:
    """In the row of the chief."""
    chief = TaskRecord(
        TaskName("chief-0"), TaskId("chief-0__1"), JobKind.CHIEF, 0, AgentId("a"), "agent-1", "10.0.0.1:1", 1, (), 0.0
    )
    state = apply(SchedulerState(a_spec()), TaskLaunched(chief))
    state = replace(state, progress={chief.id: Progress(1, 0.0, step=120, total=500)})
    paper = io.StringIO()
    Console(width=200, file=paper).print(screen(overview(state), [], 1.0, 40))
    rows = [row for row in paper.getvalue().splitlines() if "chief-0" in row]
    assert ["step 120 of 500" in row for row in rows] == [True]
