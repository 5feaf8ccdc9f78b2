"""A value has the same form in terminal, table, page, report and API."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import pytest
from rich.console import Console

import dcos_command.main  # noqa: F401 - the groups of commands
from builders import a_spec, with_fields
from dcos_command.output import Table, cell_text
from dcos_command.service import show_progress
from kit.api import a_record
from tf_executor.contract.reports import Progress, describe_progress
from tf_executor.contract.states import TaskState
from tf_scheduler.api.views import training
from tf_scheduler.api.views.base import Snapshot
from tf_scheduler.api.views.overview import overview
from tf_scheduler.cli.local_run.view import RunHistory, run_view
from tf_scheduler.core.state.reducer import apply
from tf_scheduler.history.model import Run
from tf_scheduler.model.effects import StatusStored, TaskLaunched
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.model.task import TaskStatus
from tf_scheduler.report import render_page

VALUES: dict[str, Any] = {
    "step": 12_345,
    "total": 20_000,
    "loss": 0.0324,
    "steps_per_second": 0.0324,
    "seconds_left": 125.0,
}


def running_state() -> SchedulerState:
    """Return a job whose chief reports these values."""
    spec = a_spec()
    records = [a_record(spec, task.name) for task in spec.tasks()]
    statuses = [TaskStatus(record.id, TaskState.RUNNING, healthy=True) for record in records]
    state = apply(SchedulerState(spec), *map(TaskLaunched, records), *map(StatusStored, statuses))
    chief = next(record for record in records if record.name == "chief-0")
    return with_fields(state, progress={chief.id: Progress(1, 0.0, **VALUES, source="report")}, connected=True)


def terminal() -> str:
    paper = io.StringIO()
    drawing = run_view(overview(Snapshot(running_state())), (), (125.0, 0.0), (200, 40), "", RunHistory())
    Console(width=200, file=paper).print(drawing)
    return paper.getvalue()


def table() -> str:
    parts = show_progress(training.progress(Snapshot(running_state()), {}, 0).body)
    return "\n".join(cell_text(cell) for part in parts if isinstance(part, Table) for row in part.rows for cell in row)


def page() -> str:
    body = training.progress(Snapshot(running_state()), {}, 0).body
    return "\n".join(body["summary"].values())


def report() -> str:
    curves = {"chief-0": (Progress(1, 125.0, step=12_345, loss=0.0324, steps_per_second=0.0324),)}
    run = Run("digits-1", "digits", "succeeded", "", submitted=0.0, seconds=125.0, curves=curves)
    return render_page(run)


def api() -> str:
    (row,) = (row for row in overview(Snapshot(running_state())).tasks if row.name == "chief-0")
    return str(asdict(row)["progress"])


@pytest.mark.parametrize("surface", [terminal, table, page, report, api], ids=lambda surface: surface.__name__)
def test_value_has_one_form_everywhere(surface: Callable[[], str]) -> None:
    """0.0324 steps/s was "0.0" in the table, and 125 s were "2:05" in the terminal."""
    text = surface()

    assert [] == [form for form in ("12,345", "0.0324", "2 min 5 s") if form not in text]


def test_sentence_has_the_same_forms() -> None:
    sentence = "step 12,345 of 20,000, 62 %, loss 0.0324, 0.0324 steps/s, 2 min 5 s left"
    assert sentence == describe_progress(Progress(1, 0.0, **VALUES))
