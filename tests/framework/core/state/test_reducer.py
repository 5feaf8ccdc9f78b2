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
    MAX_RECENT_LOSSES,
    apply,
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


def test_start_times_are_those_of_tasks_that_have_not_joined() -> None:
    starting = (StatusStored(a_status(f"worker-{number}__1", timestamp=10.0 + number)) for number in (1, 0))
    others = (StatusStored(a_status(f"{name}__1", healthy=True)) for name in ("ps-0", "chief-0"))
    state = apply(a_running_state(SPEC, TaskState.STARTING), *starting)
    joined = (StatusStored(a_status(f"worker-{number}__1", healthy=True)) for number in (0, 1))
    ready = apply(state, *others, *joined)

    assert (10.0, 11.0) == (state.derived.oldest_start, state.derived.newest_start)
    assert (math.inf, 0.0) == (ready.derived.oldest_start, ready.derived.newest_start)


def test_silent_task_without_record_is_lost_after_default_timeout() -> None:
    status = a_status("worker-0__1", TaskState.UNREACHABLE, timestamp=7.0)

    assert 7.0 + SPEC.recovery.unreachable_timeout == lost_at(SPEC, {}, {}, status)


def test_only_staging_launch_awaits_its_start() -> None:
    """The check of all launches is not repeated for a program that runs."""
    state = with_fields(a_running_state(SPEC), oldest_unstarted_launch=math.inf)
    launched_at = state.stored.tasks["worker-0"].launched_at

    times = [
        apply(state, StatusStored(a_status("worker-0__1", task_state))).derived.oldest_unstarted_launch
        for task_state in (TaskState.RUNNING, TaskState.STAGING)
    ]

    assert [math.inf, launched_at] == times


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
    "oldest_start": math.inf,
    "newest_start": 0.0,
    "oldest_unstarted_launch": math.inf,
    "oldest_silent_launch": 0.0,
}


def check_derived(state, launches) -> None:
    derived, statuses = state.derived, list(state.stored.statuses.values())
    running = [status for status in statuses if status.state is TaskState.RUNNING]
    starting = [status.timestamp for status in running if status.healthy is None]
    assert Counter(status.state for status in statuses) == dict(derived.state_counts)
    assert (len(starting), sum(status.healthy is False for status in running)) == (
        derived.starting_count,
        derived.unhealthy_count,
    )
    if starting:
        assert (derived.oldest_start, max(starting)) <= (min(starting), derived.newest_start)
        assert max(starting) <= derived.newest_start
    else:
        assert (math.inf, 0.0) == (derived.oldest_start, derived.newest_start)
    silent = [record.launched_at for record in state.stored.tasks.values() if state.status(record.name) is None]
    staging = [
        record.launched_at
        for record in state.stored.tasks.values()
        if (status := state.status(record.name)) is None or status.state is TaskState.STAGING
    ]
    assert derived.oldest_silent_launch <= min(silent, default=math.inf)
    assert derived.oldest_unstarted_launch <= min(staging, default=math.inf)
    unreachable = [item for item in statuses if item.state is TaskState.UNREACHABLE]
    lost = [lost_at(SPEC, state.stored.tasks, state.stored.recoveries, item) for item in unreachable]
    assert derived.next_lost_at <= min(lost, default=math.inf)
    assert min(launches, default=None) == derived.first_launch_at


def test_times_of_next_checks_are_those_of_remaining_launches() -> None:
    """An old launch that has started or ended must not cause checks forever."""
    state = apply(a_running_state(SPEC), StatusStored(a_status("worker-0__1", TaskState.UNREACHABLE, timestamp=5.0)))
    assert 5.0 + SPEC.recovery.unreachable_timeout == state.derived.next_lost_at

    state = apply(state, StatusStored(a_status("worker-0__1", TaskState.FAILED)))
    again = apply(state, TaskLaunched(replace(a_record(SPEC, "worker-0", "2"), launched_at=70.0)))

    assert math.inf == state.derived.next_lost_at
    assert (70.0, 70.0) == (again.derived.oldest_silent_launch, again.derived.oldest_unstarted_launch)


def test_first_ready_task_makes_all_starting_tasks_due() -> None:
    """Until then they need not join, and their oldest start may be skipped."""
    state = with_fields(a_running_state(SPEC), oldest_start=500.0)
    starting = apply(state, StatusStored(a_status("worker-0__1", timestamp=7.0)))
    skipped = with_fields(starting, oldest_start=500.0)

    first = apply(skipped, StatusStored(a_status("ps-0__1", healthy=True)))
    second = apply(with_fields(first, oldest_start=500.0), StatusStored(a_status("chief-0__1", healthy=True)))

    assert (0.0, 500.0) == (first.derived.oldest_start, second.derived.oldest_start)


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

    assert state.derived.oldest_unstarted_launch == after.derived.oldest_unstarted_launch
