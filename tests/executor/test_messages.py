from __future__ import annotations

import pytest

from tf_executor.events import Report, Stage
from tf_executor.messages import Stopped, conclusion, stage_failed, stage_too_long
from tf_executor.reports import Ending


@pytest.mark.parametrize(
    ("ending", "expected"),
    [
        (Ending(exit_code=0), ("TASK_FINISHED", "exit code 0")),
        (Ending(exit_code=3), ("TASK_FAILED", "exit code 3")),
        (Ending(exit_code=127), ("TASK_FAILED", "exit code 127 (the shell did not find the command)")),
        (
            Ending(exit_code=137),
            ("TASK_FAILED", "exit code 137 (from a shell: its command was killed by signal 9 (SIGKILL))"),
        ),
        (Ending(signal=9), ("TASK_FAILED", "killed by signal 9 (SIGKILL)")),
        (Ending(signal=11), ("TASK_FAILED", "killed by signal 11 (SIGSEGV)")),
        (Ending(signal=40), ("TASK_FAILED", "killed by signal 40")),
    ],
)
def test_an_end_that_nobody_asked_for(ending: Ending, expected: tuple[str, str]) -> None:
    """State and sentence say what is known, and nothing of what a SIGKILL may have been for."""
    assert Report(*expected, ending) == conclusion(ending)


@pytest.mark.parametrize(
    ("ending", "expected"),
    [
        (Ending(signal=9), "killed on request; killed by signal 9 (SIGKILL)"),
        (Ending(exit_code=0), "killed on request; exit code 0"),
        (Ending(), "killed on request; the program did not end"),
    ],
)
def test_an_end_on_request_is_always_killed(ending: Ending, expected: str) -> None:
    """Whatever the program returned: it was asked to stop, and nobody is suspected of having too little memory."""
    assert Report("TASK_KILLED", expected, ending) == conclusion(ending, Stopped("killed on request"))


def test_a_stop_before_the_program_ran() -> None:
    """Nothing is said of an end that there was not."""
    stopped = Stopped("killed on request")
    assert "killed on request; the program had not started" == conclusion(Ending(), stopped, started=False).message


def test_a_stop_by_the_tasks_own_fault_is_a_failure() -> None:
    """With Mesos' word for it."""
    stopped = Stopped("took too long", failed=True, reason="REASON_X", healthy=False)
    expected = Report("TASK_FAILED", "took too long; exit code 0", Ending(0), "REASON_X", healthy=False)
    assert expected == conclusion(Ending(0), stopped)


MEMORY = "out of memory: the kernel killed 1 process of the task's container meanwhile"


@pytest.mark.parametrize(
    ("ending", "trouble", "memory", "message"),
    [
        (
            Ending(0),
            "the post command failed: exit code 1",
            "",
            "the program succeeded, but the post command failed: exit code 1",
        ),
        (Ending(3), "the post command failed: exit code 1", "", "exit code 3; the post command failed: exit code 1"),
        (Ending(signal=9), "", MEMORY, f"killed by signal 9 (SIGKILL); {MEMORY}"),
        (Ending(1), "", MEMORY, f"exit code 1; {MEMORY}"),
    ],
)
def test_what_failed_beside_the_program_is_told(ending: Ending, trouble: str, memory: str, message: str) -> None:
    """With the kernel's word for it, if there is one: lack of memory is not guessed."""
    assert Report("TASK_FAILED", message, ending) == conclusion(ending, None, trouble, memory)


def test_a_failed_stage_is_named() -> None:
    """As a person would call it."""
    assert "the pre command failed: exit code 2" == stage_failed(Stage.PRE, Ending(2))
    assert "the fetch of files took longer than 60 s" == stage_too_long(Stage.FETCH, 60.0)
