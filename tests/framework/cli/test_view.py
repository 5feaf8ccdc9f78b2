from __future__ import annotations

import io

from rich.console import Console

from builders import a_spec, with_fields
from tf_scheduler.api.views.base import Snapshot
from tf_scheduler.api.views.overview import overview
from tf_scheduler.cli.local_run.follow import run_view
from tf_scheduler.core.state.reducer import apply
from tf_scheduler.model.effects import TaskLaunched
from tf_scheduler.model.ids import AgentId, TaskId, TaskName
from tf_scheduler.model.spec import JobKind
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.model.task import Progress, TaskRecord


def test_progress_is_in_the_row_of_its_task() -> None:
    chief = TaskRecord(
        TaskName("chief-0"), TaskId("chief-0__1"), JobKind.CHIEF, 0, AgentId("a"), "agent-1", "10.0.0.1:1", 1, (), 0.0
    )
    state = apply(SchedulerState(a_spec()), TaskLaunched(chief))
    state = with_fields(state, progress={chief.id: Progress(1, 0.0, step=120, total=500)})
    paper = io.StringIO()
    Console(width=200, file=paper).print(run_view(overview(Snapshot(state)), [], 1.0, 40))
    rows = [row for row in paper.getvalue().splitlines() if "chief-0" in row]
    assert ["step 120 of 500" in row for row in rows] == [True]
