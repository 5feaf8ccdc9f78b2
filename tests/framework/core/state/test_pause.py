"""Paused tasks, and those that are paused with them."""

from dataclasses import replace

from builders import a_record, a_running_state, a_spec, a_status, with_fields
from kit.commands import run_program
from tf_executor.contract.states import Override, TaskState
from tf_scheduler.core.state import spec_index
from tf_scheduler.core.state.reducer import apply
from tf_scheduler.model.effects import StatusStored, TaskLaunched, TaskPaused
from tf_scheduler.model.ids import TaskName

SPEC = a_spec()
PS_0 = TaskName("ps-0")


def test_parameter_server_pauses_chief() -> None:
    """The chief cannot train without it."""
    assert {"ps-0", "chief-0"} == spec_index.sleeping_tasks(SPEC, {PS_0: 1.0})
    assert (True, False) == tuple(spec_index.is_sleeping(SPEC, {PS_0: 1.0}, name) for name in ("chief-0", "worker-0"))


def test_override_shows_pausing_then_paused() -> None:
    state = apply(a_running_state(SPEC), TaskPaused("worker-0", 1.0))
    placeholder = replace(a_record(SPEC, "worker-0", "2"), is_placeholder=True)
    paused = apply(state, TaskLaunched(placeholder), StatusStored(a_status(placeholder.id)))

    assert (Override.PAUSING, Override.PAUSED) == tuple(
        spec_index.override_of(each, "worker-0") for each in (state, paused)
    )
    assert spec_index.override_of(paused, "worker-1") is None


def test_finished_task_has_no_override() -> None:
    state = apply(a_running_state(SPEC), TaskPaused("worker-0", 1.0))
    state = apply(state, StatusStored(a_status("worker-0__1", TaskState.FINISHED)))

    assert spec_index.override_of(state, "worker-0") is None


def test_placeholder_prints_how_to_resume() -> None:
    state = with_fields(a_running_state(replace(SPEC, name="it's")), paused={"ps-0": 1.0})
    command = spec_index.placeholder_command(state, state.stored.tasks["chief-0"])

    printed, _, sleep = command.partition("; while")
    output = run_program("sh", "-c", printed, check=True).stdout

    assert "chief-0 of it's is paused: it restarts together with ps-0, which an operator paused." in output
    assert "To resume: dcos tensorflow --name=it's pod resume ps-0" in output
    assert " :; do sleep 3600; done" == sleep


def test_placeholder_without_status_is_still_pausing() -> None:
    placeholder = replace(a_record(SPEC, "worker-0", "2"), is_placeholder=True)
    state = apply(a_running_state(SPEC), TaskPaused("worker-0", 1.0), TaskLaunched(placeholder))

    assert Override.PAUSING is spec_index.override_of(state, "worker-0")


def test_worker_pauses_without_chief() -> None:
    """It stays at its address, so the chief may continue."""
    assert {"worker-0"} == spec_index.sleeping_tasks(SPEC, {TaskName("worker-0"): 1.0})


def test_unrelated_paused_task_is_not_named() -> None:
    """Only what must be resumed before the program runs again."""
    state = with_fields(a_running_state(SPEC), paused={"ps-0": 1.0, "worker-1": 2.0})

    assert "restarts together with ps-0, which" in spec_index.pause_reason(state, TaskName("chief-0"))
