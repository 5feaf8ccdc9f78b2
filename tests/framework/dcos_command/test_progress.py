"""Drawing of the training progress."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import a_running_state, a_spec, a_status
from dcos_command.output import Line, Table, cell_text
from dcos_command.service import progress_bar, show_progress
from tf_executor.contract.strategies import Strategy
from tf_scheduler.api.views.base import Snapshot
from tf_scheduler.api.views.training import progress
from tf_scheduler.core.state.reducer import apply
from tf_scheduler.model.effects import StatusStored
from tf_scheduler.model.ids import TaskName
from tf_scheduler.model.state import CHIEF
from tf_scheduler.model.task import Members


def a_task(name, **said):
    silent = dict.fromkeys(("step", "total", "loss", "steps_per_second", "examples_per_second", "seconds_left"))
    return {"name": name, "job": name.partition("-")[0], "points": [], **silent, **said}


def a_job(**said):
    return {"tasks": 1, "reporting": 1, "step": None, "total": None, "steps_per_second": None,
            "examples_per_second": None, **said}  # fmt: skip


@pytest.mark.parametrize(
    ("fraction", "drawn"),
    [(0, "────"), (0.5, "━━──"), (0.625, "━━╸─"), (1, "━━━━"), (2, "━━━━"), (-1, "────"), (None, "╌╌╌╌")],
)
def test_bar_is_filled_in_halves(fraction: float | None, drawn: str) -> None:
    assert drawn == progress_bar(fraction, 4)


@given(st.floats(0, 1), st.integers(1, 80))
def test_bar_has_the_given_width(fraction, width) -> None:
    assert width == len(progress_bar(fraction, width))


def test_leader_represents_its_job() -> None:
    """Its loss and remaining time, next to the speed of the job."""
    answer = {
        "leader": "worker-1",
        "jobs": {
            "worker": a_job(step=50, total=100, steps_per_second=2.0, examples_per_second=64.0),
            "ps": a_job(reporting=0),
        },
        "tasks": [
            a_task("worker-0", step=50, loss=9.0),
            a_task("worker-1", step=60, loss=0.25, seconds_left=20.0, points=[{"loss": 2.0}, {"loss": 1.0}]),
            a_task("ps-0"),
        ],
    }
    answer["tasks"][1]["metrics"] = {"val_loss": None, "accuracy": 0.5}  # JSON has no NaN

    table, details, silent = show_progress(answer)

    assert "worker: val_loss nan, accuracy 0.5" == details
    assert isinstance(table, Table)
    assert isinstance(silent, Line)
    assert [["worker", "━" * 12 + "─" * 12, "50/100", "2", "64", "20 s", "0.25", "█▁"]] == [
        [cell_text(cell) for cell in row] for row in table.rows
    ]
    assert "ps" in cell_text(silent.words[0])


@pytest.mark.parametrize(
    ("confirmed", "error", "expected"),
    [
        (True, "", "workers of the chief: worker-0, worker-2"),
        (False, "", "workers of the chief: worker-0, worker-2 (not confirmed yet)"),
        (False, "no TensorFlow", "workers of the chief: worker-0, worker-2 (no TensorFlow)"),
    ],
)
def test_workers_that_join_and_leave_are_listed(confirmed: bool, error: str, expected: str) -> None:
    """A task that runs is not yet a worker of the chief."""
    spec = replace(a_spec(workers=3, chief=1, strategy=Strategy.PARAMETER_SERVER), live=True)
    state = a_running_state(spec)
    chief = state.stored.tasks[CHIEF].id
    workers = {TaskName(name): "" for name in ("worker-2", "worker-0")}
    members = Members(chief, 2, workers, 0.0, confirmed, error)
    state = apply(state, StatusStored(a_status(chief, healthy=True)), members)

    lines = [*show_progress(progress(Snapshot(state), {}, 0).body)]

    assert expected in lines
    assert progress(Snapshot(a_running_state(a_spec())), {}, 0).body["members"] is None


def test_absurd_numbers_keep_the_table_narrow() -> None:
    """A task can report any number; large ones have four digits and an exponent."""
    huge = a_job(step=2**63 - 1, total=2**63 - 1, steps_per_second=1e308, examples_per_second=1e308)
    job = a_task("worker-0", step=2**63 - 1, loss=1e308, seconds_left=1e308)
    (table,) = show_progress({"leader": None, "jobs": {"worker": huge}, "tasks": [job]})
    exact = a_job(step=999_999, total=1_000_000)
    (small,) = show_progress({"leader": None, "jobs": {"worker": exact}, "tasks": []})

    assert isinstance(table, Table)
    assert isinstance(small, Table)
    texts = [cell_text(cell) for cell in table.rows[0]]
    assert ["9.223e+18/9.223e+18", "1e+308", "1e+308", "1.157e+303 d", "1e+308"] == texts[2:7]
    assert 100 >= sum(map(len, texts)) + 2 * len(texts)
    assert "999,999/1,000,000" == cell_text(small.rows[0][2])


def test_slowest_task_represents_a_job_without_leader() -> None:
    """The others wait for it."""
    answer = {"leader": None, "jobs": {"worker": a_job(step=5)}, "tasks": [
        a_task("worker-0", step=9, loss=1.0), a_task("worker-1", step=5, loss=7.0), a_task("worker-2")]}  # fmt: skip

    (table,) = show_progress(answer)

    assert ["worker", "╌" * 24, "5", "–", "–", "–", "7", ""] == [cell_text(cell) for cell in table.rows[0]]


def test_silent_job_has_no_row() -> None:
    (table,) = show_progress({"leader": None, "jobs": {"worker": a_job(reporting=0)}, "tasks": [a_task("worker-0")]})

    assert "No task has reported" in table.empty
    assert [] == table.rows
