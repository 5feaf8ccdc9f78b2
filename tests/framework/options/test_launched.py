"""Effects of an update on running tasks, each compared with its own launch."""

import pytest

from builders import a_status, with_fields
from tf_executor.contract.reports import Progress
from tf_executor.contract.states import TaskState
from tf_scheduler.core.state import spec_index
from tf_scheduler.core.state.reducer import apply
from tf_scheduler.model.effects import StatusStored, TaskLaunched
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.model.task import TaskRecord
from tf_scheduler.options.load import resolve
from tf_scheduler.options.spec import to_spec
from tf_scheduler.options.update import difference


def options(strategy="parameter_server", **worker):
    document = {"service": {"command": "x", "strategy": strategy}, "worker": {"count": 2, **worker}}
    ps = int(strategy == "parameter_server")
    return resolve({**document, "parameter_server": {"count": ps}, "chief": {"count": ps}})


def running(old, **others):
    """Return a state in which tasks run with `old`, those in `others` with theirs."""
    state = SchedulerState(to_spec(old))
    for task in state.spec.tasks():
        config = spec_index.config_digest(to_spec(others.get(task.name.replace("-", "_"), old)), task.name)
        name = task.name
        record = TaskRecord(name, f"{name}__1", task.job.kind, task.index, "a", "a", "a:1", 1, (), 5.0, config=config)
        state = apply(state, TaskLaunched(record), StatusStored(a_status(record.id)))
    return state


def restarted(old, new, state):
    return {item.task: item.reason for item in difference(old, new, state).restarted}


BEFORE, AFTER = options(), options(environment={"A": "1"})


def test_task_with_new_options_does_not_restart() -> None:
    """As after a canary whose update is rolled back."""
    assert {"worker-0", "worker-1"} == set(restarted(BEFORE, AFTER, running(BEFORE)))
    canary = running(AFTER, worker_1=BEFORE, chief_0=BEFORE, ps_0=BEFORE)

    assert {"worker-0": "its environment changed"} == restarted(AFTER, BEFORE, canary)


def test_task_skipped_by_earlier_update_restarts() -> None:
    """Even if its options are equal in old and new."""
    canary = running(AFTER, worker_1=BEFORE)
    more = options(environment={"A": "1"}, cpus=0.7)

    assert "its resources changed" == restarted(AFTER, more, canary)["worker-1"]
    assert {"worker-1": "it was launched with earlier options"} == restarted(AFTER, AFTER, canary)


def test_dependent_restart_has_reason() -> None:
    """A ring restarts as a whole, whatever its tasks were launched with."""
    before, after = options("multi_worker_mirrored"), options("multi_worker_mirrored", environment={"A": "1"})
    canary = running(after, worker_1=before)

    assert {"worker-0", "worker-1"} <= set(restarted(after, before, canary))
    assert "worker-0 restarts" == restarted(after, before, canary)["worker-1"]


def test_preview_has_steps_of_restarted_tasks() -> None:
    """They show what an update loses."""
    reported = {"worker-0__1": Progress(1, 0.0, step=48, saved_step=20)}
    state = with_fields(running(BEFORE), progress=reported)

    steps = {item.task: (item.step, item.saved_step) for item in difference(BEFORE, AFTER, state).restarted}

    assert ((48, 20), (None, None)) == (steps["worker-0"], steps["worker-1"])
    assert {(None, None)} == {(item.step, item.saved_step) for item in difference(BEFORE, AFTER).restarted}


def test_pending_task_does_not_restart() -> None:
    preview = difference(BEFORE, options(count=1), SchedulerState(to_spec(BEFORE)))

    assert ((), ("worker-1",)) == (preview.restarted, preview.removed)


@pytest.mark.parametrize("state", [TaskState.FINISHED, TaskState.FAILED])
def test_ended_task_does_not_restart(state) -> None:
    """A failed task is launched again anyway."""
    now = running(BEFORE)
    now = apply(now, StatusStored(a_status("worker-0__1", state)))

    assert "worker-0" not in restarted(BEFORE, AFTER, now)


def test_running_task_is_not_added() -> None:
    """As when an update that would have stopped the task is undone."""
    fewer = options(count=1)

    assert () == difference(fewer, BEFORE, running(BEFORE)).added
    assert ("worker-1",) == difference(fewer, fewer, running(BEFORE)).removed
