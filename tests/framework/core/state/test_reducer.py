"""Changes of the stored state, and the derived values that follow them."""

import pytest

from builders import a_job, a_record, a_running_state, a_spec, a_status
from tf_scheduler.core.state.reducer import apply, scalable_job, with_workers
from tf_scheduler.model.effects import (
    FrameworkForgotten,
    FrameworkRegistered,
    PlanControlled,
    Resized,
    StatusStored,
    TaskForgotten,
    TaskLaunched,
    TaskPaused,
)
from tf_scheduler.model.ids import FrameworkId
from tf_scheduler.model.plan import PlanControl
from tf_scheduler.model.spec import JobKind, Strategy
from tf_scheduler.model.task import TaskState

SPEC = a_spec()
ELASTIC = a_spec(strategy=Strategy.MULTI_WORKER_MIRRORED, jobs=(a_job(JobKind.WORKER, 3, min_count=2),))


def test_no_change_returns_same_state() -> None:
    """Plans are cached by identity."""
    state = a_running_state(SPEC)

    assert apply(state) is state


def test_relaunch_forgets_previous_launch() -> None:
    state = apply(a_running_state(SPEC), TaskLaunched(a_record(SPEC, "worker-0", "2")))

    assert "worker-0__2" == state.stored.tasks["worker-0"].id
    assert "worker-0__1" not in state.stored.statuses
    assert 1 == state.unstarted_count()


def test_state_counts_follow_statuses() -> None:
    """`live_count` and `at_goal` take constant time because of them."""
    state = apply(a_running_state(SPEC), StatusStored(a_status("worker-0__1", TaskState.FINISHED)))
    state = apply(state, StatusStored(a_status("worker-1__1", healthy=False)))

    assert {TaskState.RUNNING: 3, TaskState.FINISHED: 1} == dict(state.derived.state_counts)
    assert (3, 3) == (state.live_count(), state.at_goal())


def test_forgotten_task_leaves_no_derived_values() -> None:
    state = apply(a_running_state(SPEC), TaskPaused("worker-0", 1.0), TaskForgotten("worker-0"))

    assert "worker-0" not in {**state.stored.tasks, **state.stored.paused}
    assert {TaskState.RUNNING: 3} == dict(state.derived.state_counts)


def test_forgotten_framework_keeps_plan_controls() -> None:
    """Operators' decisions outlast the framework."""
    control = PlanControl(interrupted=frozenset({()}))
    state = apply(a_running_state(SPEC), FrameworkRegistered(FrameworkId("f")), PlanControlled("update", control))

    state = apply(state, FrameworkForgotten())

    assert (None, {}, {}) == (state.stored.framework_id, state.stored.tasks, state.derived.state_counts)
    assert {"update": control} == state.stored.controls


def test_resize_remembers_full_spec_until_restored() -> None:
    small = apply(a_running_state(ELASTIC), Resized(2, 9.0))
    full = apply(small, Resized(None, 9.0))

    assert (2, ELASTIC) == (small.spec.task_count, small.stored.full_spec)
    assert (ELASTIC, None) == (full.spec, full.stored.full_spec)


@pytest.mark.parametrize("count", [1, 3, 4])
def test_invalid_size_keeps_spec(count: int) -> None:
    assert ELASTIC is with_workers(ELASTIC, count)


def test_only_collective_workers_are_scalable() -> None:
    assert ELASTIC.jobs[0] is scalable_job(ELASTIC)
    assert scalable_job(SPEC) is None


def test_unknown_change_raises() -> None:
    with pytest.raises(TypeError):
        apply(a_running_state(SPEC), object())
