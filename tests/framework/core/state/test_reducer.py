"""Changes of the stored state, and the derived values that follow them."""

import math
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import a_job, a_record, a_running_state, a_spec, a_status, with_fields
from tf_executor.contract.reports import Progress
from tf_executor.contract.states import TaskState, Verdict
from tf_executor.contract.strategies import Strategy
from tf_scheduler.core.state.reducer import (
    COLLATERAL_SECONDS,
    LAUNCH_TIMEOUT,
    MAX_RECENT_LOSSES,
    apply,
    due_at,
    lost_at,
)
from tf_scheduler.core.state.spec_index import scalable_job, with_workers
from tf_scheduler.model.effects import (
    FrameworkForgotten,
    FrameworkRegistered,
    LaunchRetired,
    PlanControlled,
    RecoveryDecided,
    ResultDecided,
    StatusStored,
    TaskForgotten,
    TaskLaunched,
    TaskPaused,
)
from tf_scheduler.model.ids import FrameworkId
from tf_scheduler.model.plan import PlanControl
from tf_scheduler.model.spec import JobKind
from tf_scheduler.model.state import Result, SchedulerState
from tf_scheduler.model.task import Cause, Recovery, Resized

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
    """`live_count` and `at_goal_count` take constant time because of them."""
    state = apply(a_running_state(SPEC), StatusStored(a_status("worker-0__1", TaskState.FINISHED)))
    state = apply(state, StatusStored(a_status("worker-1__1", healthy=False)))

    assert {TaskState.RUNNING: 3, TaskState.FINISHED: 1} == dict(state.derived.state_counts)
    assert (3, 3) == (state.live_count(), state.at_goal_count())


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
    (job,) = ELASTIC.jobs
    to_one = replace(job, min_count=1)
    assert to_one is scalable_job(replace(ELASTIC, jobs=(to_one,)))
    assert scalable_job(replace(ELASTIC, strategy=Strategy.INDEPENDENT)) is None
    assert scalable_job(replace(ELASTIC, jobs=(job, replace(job, section="gpu_worker")))) is None


def test_silent_task_without_record_is_lost_after_default_timeout() -> None:
    status = a_status("worker-0__1", TaskState.UNREACHABLE, timestamp=7.0)

    assert 7.0 + SPEC.recovery.unreachable_timeout == lost_at(SPEC, {}, {}, status)


def lost(name: str, since: float, cause: Cause = Cause.INFRASTRUCTURE) -> RecoveryDecided:
    return RecoveryDecided(Recovery(name, f"{name}__1", cause, "lost", since, since, since))


def test_recent_losses_are_those_that_others_may_follow_from() -> None:
    state = apply(a_running_state(SPEC), lost("ps-0", 1.0), lost("chief-0", 5.0, Cause.COLLATERAL))

    assert {"ps-0": 1.0} == state.derived.recent_losses
    later = apply(state, lost("worker-0", 1.0 + COLLATERAL_SECONDS))
    assert {"worker-0"} == set(later.derived.recent_losses)


def test_of_many_losses_the_oldest_and_newest_are_kept() -> None:
    state = apply(a_running_state(SPEC), *(lost(f"worker-{number}", 1.0 + number / 100) for number in range(500)))

    losses = list(state.derived.recent_losses)
    assert MAX_RECENT_LOSSES == len(losses)
    assert ("worker-0", "worker-499") == (losses[0], losses[-1])


def test_forgotten_task_leaves_no_recovery() -> None:
    """A task that is added later must not inherit failures."""
    state = apply(a_running_state(SPEC), lost("worker-0", 1.0), TaskForgotten("worker-0"))

    assert ({}, {}, {}) == (state.stored.recoveries, state.derived.launches_to_replace, state.derived.recent_losses)


def test_unknown_change_raises() -> None:
    with pytest.raises(TypeError):
        apply(a_running_state(SPEC), object())


def test_first_result_makes_kills_due() -> None:
    """Repetitions of earlier kills do not delay those at the end of the job."""
    waiting = with_fields(a_running_state(SPEC), next_kill_at=110.0)
    result = Result(Verdict.FAILED, "x", 100.0)

    ended = apply(waiting, ResultDecided(result))
    again = apply(with_fields(ended, next_kill_at=120.0), ResultDecided(replace(result, collateral=("worker-0",))))

    assert (0.0, 120.0) == (ended.session.next_kill_at, again.session.next_kill_at)


@pytest.mark.parametrize("change", [LaunchRetired("worker-0__1", "deploy"), PlanControlled("deploy", PlanControl())])
def test_command_makes_kills_due(change) -> None:
    """An operator does not wait for the repetition of other kills."""
    state = with_fields(a_running_state(SPEC), next_kill_at=110.0)

    assert 0.0 == apply(state, change).session.next_kill_at


NAMES = ("ps-0", "worker-0", "worker-1", "chief-0")
LAUNCHES = st.tuples(st.just("launch"), st.sampled_from(NAMES), st.integers(1, 50))
STATUSES = st.tuples(
    st.just("status"),
    st.sampled_from(NAMES),
    st.integers(1, 50),
    st.sampled_from([TaskState.STAGING, TaskState.RUNNING, TaskState.RUNNING, TaskState.UNREACHABLE, TaskState.FAILED]),
    st.sampled_from([None, True, False]),
)


@given(st.lists(LAUNCHES | STATUSES | st.tuples(st.just("forget"), st.sampled_from(NAMES)), max_size=25))
def test_derived_values_follow_records_and_statuses(steps) -> None:
    """Counts are exact. Times of the next check may be early, never late."""
    state, launches = with_fields(a_running_state(SPEC), tasks={}, statuses={}, **START), []
    for number, (kind, name, *rest) in enumerate(steps):
        record = state.stored.tasks.get(name)
        if kind == "launch":
            state = apply(state, TaskLaunched(replace(a_record(SPEC, name, str(number)), launched_at=float(rest[0]))))
            launches.append(float(rest[0]))
        elif record is not None and kind == "status":
            at, task_state, healthy = rest
            state = apply(state, StatusStored(a_status(record.id, task_state, timestamp=float(at), healthy=healthy)))
        elif record is not None:
            state = apply(state, TaskForgotten(name))
            launches = launches if state.stored.tasks else []
        check_derived(state, launches)


START = {
    "state_counts": {},
    "starting_count": 0,
    "first_launch_at": None,
    "next_check_at": math.inf,
}


def check_derived(state, launches) -> None:
    derived, statuses = state.derived, list(state.stored.statuses.values())
    running = [status for status in statuses if status.state is TaskState.RUNNING]
    starting = [status for status in running if status.healthy is None]
    assert Counter(status.state for status in statuses) == dict(derived.state_counts)
    assert (len(starting), sum(status.healthy is False for status in running)) == (
        derived.starting_count,
        derived.unhealthy_count,
    )
    due = (due_at(SPEC, item, state.status(item.name), state.stored.recoveries) for item in state.stored.tasks.values())
    assert derived.next_check_at <= min(due, default=math.inf)
    assert min(launches, default=None) == derived.first_launch_at


START_TIMEOUT = SPEC.recovery.start_timeout or math.nan


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (None, 5.0 + LAUNCH_TIMEOUT),
        (a_status("worker-0__1", TaskState.STAGING), 5.0 + START_TIMEOUT),
        (a_status("worker-0__1", TaskState.STARTING), math.inf),
        (a_status("worker-0__1", timestamp=7.0), 7.0 + START_TIMEOUT),
        (a_status("worker-0__1", timestamp=7.0, healthy=True), math.inf),
        (a_status("worker-0__1", TaskState.UNREACHABLE, timestamp=7.0), 7.0 + SPEC.recovery.unreachable_timeout),
        (a_status("worker-0__1", TaskState.FAILED), math.inf),
    ],
)
def test_launch_must_leave_its_state_in_time(status, expected: float) -> None:
    record = a_record(SPEC, "worker-0")

    assert expected == due_at(SPEC, record, status, {})


def test_first_ready_task_makes_all_starting_tasks_due() -> None:
    """Until then they need not join."""
    starting = apply(a_running_state(SPEC), StatusStored(a_status("worker-0__1", timestamp=7.0)))

    first = apply(with_fields(starting, next_check_at=500.0), StatusStored(a_status("ps-0__1", healthy=True)))
    second = apply(with_fields(first, next_check_at=500.0), StatusStored(a_status("chief-0__1", healthy=True)))

    assert (0.0, 500.0) == (first.derived.next_check_at, second.derived.next_check_at)


def test_repeated_recovery_does_not_delay_task_again() -> None:
    """Its back-off may be over; a later one of the same launch counts."""
    recovery = lost("worker-0", 1.0).recovery
    state = apply(a_running_state(SPEC), RecoveryDecided(recovery))
    ready = with_fields(state, delayed_tasks={})

    same = apply(ready, RecoveryDecided(replace(recovery, why="other")))
    later = apply(ready, RecoveryDecided(replace(recovery, ready_at=9.0)))

    assert {"worker-0": "worker-0__1"} == state.derived.launches_to_replace
    assert ({}, {"worker-0": 9.0}) == (same.derived.delayed_tasks, later.derived.delayed_tasks)


def test_forgotten_framework_leaves_an_empty_state() -> None:
    state = apply(
        a_running_state(SPEC),
        FrameworkRegistered(FrameworkId("f"), removed=True),
        ResultDecided(Result(Verdict.FAILED, "x", 1.0)),
        lost("worker-0", 1.0),
    )

    assert SchedulerState(SPEC).stored == apply(state, FrameworkForgotten()).stored
    assert SchedulerState(SPEC).derived == apply(state, FrameworkForgotten()).derived


def test_relaunch_forgets_progress_and_others_keep_theirs() -> None:
    state = with_fields(a_running_state(SPEC), progress={"worker-0__1": Progress(1, 1.0), "ps-0__1": Progress(2, 1.0)})

    after = apply(state, TaskLaunched(a_record(SPEC, "worker-0", "2")))

    assert ["ps-0__1"] == list(after.process.progress)


def test_only_workers_are_scaled() -> None:
    jobs = (a_job(JobKind.WORKER, 3, min_count=2), a_job(JobKind.EVALUATOR))
    spec = a_spec(strategy=Strategy.MULTI_WORKER_MIRRORED, jobs=jobs)

    assert jobs[0] is scalable_job(spec)
    assert [2, 1] == [job.count for job in with_workers(spec, 2).jobs]


def test_service_that_is_not_elastic_keeps_its_workers() -> None:
    spec = a_spec(workers=3)

    assert spec is with_workers(spec, 2)


def test_status_of_a_removed_task_starts_no_timeout() -> None:
    """Only launches that are known may be late."""
    state = a_running_state(a_spec())

    after = apply(state, StatusStored(a_status("worker-9__1", TaskState.STAGING)))

    assert state.derived.next_check_at == after.derived.next_check_at
