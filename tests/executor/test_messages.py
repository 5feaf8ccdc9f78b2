from __future__ import annotations

import pytest

from tf_executor.contract.reports import TaskEnd
from tf_executor.lifecycle.events import (
    Exited,
    LaunchRequested,
    LifecycleState,
    Overdue,
    SendReport,
    Spawned,
    Stage,
    StopReason,
    final_report,
)
from tf_executor.lifecycle.steps import step


@pytest.mark.parametrize(
    ("ending", "expected"),
    [
        (TaskEnd(exit_code=0), ("TASK_FINISHED", "exit code 0")),
        (TaskEnd(exit_code=3), ("TASK_FAILED", "exit code 3")),
        (TaskEnd(exit_code=127), ("TASK_FAILED", "exit code 127 (command not found)")),
        (TaskEnd(exit_code=137), ("TASK_FAILED", "exit code 137 (killed by signal 9 (SIGKILL))")),
        (TaskEnd(signal=9), ("TASK_FAILED", "killed by signal 9 (SIGKILL)")),
        (TaskEnd(signal=11), ("TASK_FAILED", "killed by signal 11 (SIGSEGV)")),
        (TaskEnd(signal=40), ("TASK_FAILED", "killed by signal 40")),
    ],
)
def test_final_report_without_request(ending: TaskEnd, expected: tuple[str, str]) -> None:
    assert SendReport(*expected, ending) == final_report(ending)


@pytest.mark.parametrize(
    ("ending", "expected"),
    [
        (TaskEnd(signal=9), "stopped on request; killed by signal 9 (SIGKILL)"),
        (TaskEnd(signal=15), "stopped on request"),
        (TaskEnd(exit_code=0), "stopped on request"),
        (TaskEnd(exit_code=143), "stopped on request"),
        (TaskEnd(exit_code=3), "stopped on request; exit code 3"),
        (TaskEnd(signal=11), "stopped on request; killed by signal 11 (SIGSEGV)"),
        (TaskEnd(), "stopped on request; the program did not exit"),
    ],
)
def test_final_report_after_request_is_killed(ending: TaskEnd, expected: str) -> None:
    assert SendReport("TASK_KILLED", expected, ending) == final_report(ending, StopReason("stopped on request"))


def test_final_report_of_unstarted_program() -> None:
    report = final_report(TaskEnd(), StopReason("stopped on request"), started=False)
    assert "stopped on request; the program had not started" == report.message


def test_final_report_of_failed_task() -> None:
    stopped = StopReason("took too long", failed=True, reason="REASON_X", healthy=False)
    expected = SendReport("TASK_FAILED", "took too long; exit code 0", TaskEnd(0), "REASON_X", healthy=False)
    assert expected == final_report(TaskEnd(0), stopped)


MEMORY = "out of evidence: the kernel killed 1 process of the task's container"


@pytest.mark.parametrize(
    ("ending", "trouble", "evidence", "message"),
    [
        (
            TaskEnd(0),
            "the post command failed: exit code 1",
            "",
            "the program succeeded, but the post command failed: exit code 1",
        ),
        (TaskEnd(3), "the post command failed: exit code 1", "", "exit code 3; the post command failed: exit code 1"),
        (TaskEnd(signal=9), "", MEMORY, f"killed by signal 9 (SIGKILL); {MEMORY}"),
        (TaskEnd(1), "", MEMORY, f"exit code 1; {MEMORY}"),
    ],
)
def test_final_report_names_failed_stage(ending: TaskEnd, trouble: str, evidence: str, message: str) -> None:
    assert SendReport("TASK_FAILED", message, ending) == final_report(ending, None, trouble, evidence)


def test_stage_failure_names_stage() -> None:
    launch = LaunchRequested((Stage.FETCH, Stage.PROGRAM), hook_timeout=60.0)
    running, _ = step(step(LifecycleState(), launch, 0.0)[0], Spawned(), 0.0)
    assert "the fetch of files failed: exit code 2" == step(running, Exited(TaskEnd(2)), 1.0)[0].failure
    assert "the fetch of files took longer than 60 s" == step(running, Overdue(), 60.0)[0].failure
