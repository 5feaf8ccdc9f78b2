"""Readers of tf.data service restart when they cannot go on with its new tasks."""

from __future__ import annotations

from typing import Any

import pytest

from builders import a_job, a_record, a_running_state, a_spec
from tf_executor.contract.strategies import Strategy
from tf_scheduler.core.recovery.replacement import restart_readers
from tf_scheduler.core.state.reducer import apply
from tf_scheduler.model.effects import RecoveryDecided, TaskLaunched
from tf_scheduler.model.ids import TaskName
from tf_scheduler.model.spec import JobKind
from tf_scheduler.model.state import SchedulerState

SPEC = a_spec(
    strategy=Strategy.INDEPENDENT,
    jobs=(a_job(JobKind.DISPATCHER), a_job(JobKind.DATA_WORKER), a_job(JobKind.WORKER, 2)),
)
DISPATCHER, DATA_WORKER = "data-dispatcher-0", "data-worker-0"
JOURNAL = "/shared/journals/data-dispatcher-0__1"


def launched(state: SchedulerState, name: str, launch: str, **options: Any) -> SchedulerState:
    return apply(state, TaskLaunched(a_record(SPEC, name, launch, **options)))


def restarted(before: SchedulerState, after: SchedulerState) -> set[str]:
    changes = restart_readers(after, before, 10.0).changes
    return {item.recovery.task for item in changes if isinstance(item, RecoveryDecided)}


@pytest.mark.parametrize(
    ("journal", "expected"),
    [(JOURNAL, set()), ("/shared/journals/data-dispatcher-0__2", {DATA_WORKER, "worker-0", "worker-1"})],
)
def test_readers_restart_with_another_journal(journal: str, expected: set[str]) -> None:
    before = launched(a_running_state(SPEC), DISPATCHER, "1", journal=JOURNAL)

    assert expected == restarted(before, launched(before, DISPATCHER, "2", journal=journal))


@pytest.mark.parametrize(("address", "moves"), [("a:0", False), ("elsewhere:7", True)])
def test_readers_restart_when_a_data_worker_moves(address: str, moves: bool) -> None:
    """They wait for a worker at the old address."""
    before = launched(a_running_state(SPEC), DISPATCHER, "1", journal=JOURNAL)
    before = launched(before, DATA_WORKER, "1", address="a:0")

    found = restarted(before, launched(before, DATA_WORKER, "2", address=address, serial=2))

    assert moves is ({"worker-0", "worker-1"} <= found)
    assert moves or not found


def test_nothing_restarts_without_a_launch() -> None:
    state = a_running_state(SPEC)

    assert set() == restarted(state, state)
    assert set() == restarted(state, launched(state, TaskName("worker-0"), "2"))
