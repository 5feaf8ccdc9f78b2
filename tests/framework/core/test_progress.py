from __future__ import annotations

import math
from dataclasses import replace

import pytest

from builders import a_spec, with_fields
from tf_executor.contract.reports import Progress, Usage, describe_progress
from tf_scheduler.core.scheduler import handle, restored_progress
from tf_scheduler.core.state.reducer import apply
from tf_scheduler.model.effects import RecoveryDecided, TaskForgotten, TaskLaunched
from tf_scheduler.model.events import Disconnected, ProgressReported, UsageReported
from tf_scheduler.model.ids import AgentId, TaskId, TaskName
from tf_scheduler.model.spec import JobKind
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.model.task import Cause, Recovery, TaskRecord

NAME = TaskName("worker-0")
FIRST, SECOND = TaskId("worker-0__1"), TaskId("worker-0__2")


def record(launch: TaskId) -> TaskRecord:
    return TaskRecord(NAME, launch, JobKind.WORKER, 0, AgentId("a-1"), "agent-1", "10.0.0.1:31000", 1, (), 0.0)


def with_progress(state: SchedulerState, launch: TaskId, *progress: Progress) -> SchedulerState:
    for item in progress:
        decision = handle(state, ProgressReported(launch, item), 0.0, lambda: "new")
        assert () == decision.changes
        state = decision.state
    return state


RUNNING = apply(SchedulerState(a_spec(workers=1, ps=0, chief=0)), TaskLaunched(record(FIRST)))


def test_newest_progress_of_launch_is_kept() -> None:
    """By its number: a late message does not replace a newer one."""
    state = with_progress(RUNNING, FIRST, Progress(1, 1.0, 10), Progress(3, 3.0, 30), Progress(2, 2.0, 20))
    assert {FIRST: Progress(3, 3.0, 30)} == state.process.progress


def test_progress_of_earlier_launch_is_ignored() -> None:
    """As is that of an unknown task. Without its agent it cannot be killed."""
    state = with_progress(RUNNING, SECOND, Progress(1, 1.0, 10))
    state = with_progress(state, TaskId("chief-0__9"), Progress(1, 1.0, 10))
    assert {} == state.process.progress


def test_new_launch_starts_without_progress() -> None:
    """So does a task that is forgotten."""
    state = with_progress(RUNNING, FIRST, Progress(1, 1.0, 10))
    assert {} == apply(state, TaskLaunched(record(SECOND))).process.progress
    assert {} == apply(state, TaskForgotten(NAME)).process.progress


def storage(sequence: int, error: str) -> Progress:
    return Progress(sequence, 1.0, storage_error=error)


def test_change_of_the_storage_is_an_event() -> None:
    """Each attempt fails with an error of its own; the last one is shown."""
    state, kinds = RUNNING, []
    for sequence, error in enumerate(("", "no such bucket", "timeout 1", "timeout 2", "", "")):
        decision = handle(state, ProgressReported(FIRST, storage(sequence, error)), 0.0, lambda: "new")
        state = decision.state
        kinds.append([(item.kind, item.warning) for item in decision.outcomes])
        assert error == state.storage_error(NAME)
    assert [[], [("StorageFailed", True)], [], [], [("StorageRestored", False)], []] == kinds


@pytest.mark.parametrize(("first_step", "kinds"), [(12, [[], ["NotRestored"], []]), (180, [[], [], []])])
def test_leader_that_does_not_restore_its_checkpoint_is_an_event(first_step: int, kinds: list[list[str]]) -> None:
    """Once, and as a warning: the steps of each restart are lost."""
    recovery = Recovery(NAME, FIRST, Cause.USER_ERROR, "failed", 0.0, 0.0, 0.0, step=205, saved_step=179)
    state = apply(RUNNING, RecoveryDecided(recovery), TaskLaunched(record(SECOND)))
    outcomes = []
    for sequence, step in enumerate((None, first_step, first_step)):
        report = Progress(sequence, 1.0, step, first_step=step)
        decision = handle(state, ProgressReported(SECOND, report), 0.0, lambda: "new")
        state = decision.state
        outcomes.append(decision.outcomes)
    assert kinds == [[item.kind for item in each] for each in outcomes]
    text = "worker-0: the program did not restore its checkpoint of step 179, and began again at step 12"
    assert all(item.message == text and item.warning for each in outcomes for item in each)


def test_report_about_storage_is_not_progress() -> None:
    """The time without progress continues, and the last step remains."""
    state = with_progress(RUNNING, FIRST, Progress(1, 1.0, 10, source="report"))
    later = handle(state, ProgressReported(FIRST, storage(2, "timeout")), 50.0, lambda: "new").state
    assert (state.process.progress, (NAME, 0.0)) == (later.process.progress, later.process.last_progress)


def test_new_launch_starts_without_error_of_storage() -> None:
    state = with_progress(RUNNING, FIRST, storage(1, "timeout"))
    assert "" == apply(state, TaskLaunched(record(SECOND))).storage_error(NAME)


def test_usage_of_another_launch_is_ignored() -> None:
    """A launch without an agent cannot be killed, one with an agent is."""
    usage = Usage(300.0, 200.0, 0.5)
    state = handle(RUNNING, UsageReported(FIRST, usage), 0.0, lambda: "new").state
    other = handle(state, UsageReported(SECOND, Usage(900.0), AgentId("a-2")), 0.0, lambda: "new")
    assert {NAME: (FIRST, usage)} == other.state.process.usage
    assert {} == other.state.process.progress
    assert [SECOND] == [call.task_id for call in other.calls]


def test_lost_connection_keeps_progress() -> None:
    """The training continues meanwhile."""
    state = with_progress(RUNNING, FIRST, Progress(1, 1.0, 10))
    after = handle(with_fields(state, connected=True), Disconnected("gone"), 0.0, lambda: "new").state
    assert state.process.progress == after.process.progress


@pytest.mark.parametrize(
    ("progress", "expected"),
    [
        (Progress(1, 0.0), ""),
        (Progress(1, 0.0, step=7), "step 7"),
        (Progress(1, 0.0, loss=math.nan), "loss nan"),
        (
            Progress(1, 0.0, 120, 500, 0.123456, 3840, 10.0, 320.04, metrics={"lr": 0.001}, seconds_left=38.0),
            "step 120 of 500, 24 %, loss 0.1235, lr 0.001, 10 steps/s, 320 examples/s, 38 s left",
        ),
        (Progress(1, 0.0, 120, steps_per_second=10.0), "step 120, 10 steps/s"),
        (
            Progress(1, 0.0, 2**63, 2**64, 1e308, 1, 1e308, seconds_left=0.0),
            "step 9.223e+18 of 1.845e+19, 50 %, loss 1e+308, 1e+308 steps/s, 0 s left",
        ),
        (
            Progress(1, 0.0, 1, 2**63, None, 1, 1e-3, seconds_left=2.0**63 * 1e3),
            "step 1 of 9.223e+18, 0 %, 0.001 steps/s, 1.068e+17 d left",
        ),
    ],
)
def test_progress_in_words(progress: Progress, expected: str) -> None:
    """Unknown values are omitted."""
    assert expected == describe_progress(progress)


def test_last_restored_progress_is_the_newest() -> None:
    other = replace(record(TaskId("worker-1__1")), name=TaskName("worker-1"))
    progress = {FIRST: Progress(0, 1.0), other.id: Progress(0, 2.0)}

    state = restored_progress(apply(RUNNING, TaskLaunched(other)), progress)

    assert ("worker-1", 2.0) == state.process.last_progress


def test_restored_progress_skips_ended_launches() -> None:
    """Their tasks may have been relaunched."""
    progress = {FIRST: Progress(0, 1.0, step=8, total=8), TaskId("worker-1__1"): Progress(0, 1.0)}
    again = apply(RUNNING, TaskLaunched(record(SECOND)))

    restarted = restored_progress(RUNNING, progress)
    assert ({FIRST: progress[FIRST]}, (NAME, 1.0)) == (restarted.process.progress, restarted.process.last_progress)
    without = restored_progress(again, progress).process
    assert ({}, None) == (without.progress, without.last_progress)
    assert 9 == with_progress(restarted, FIRST, Progress(1, 2.0, step=9)).process.progress[FIRST].step
