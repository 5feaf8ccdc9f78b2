"""Recoveries that replace a launch, and the restart policies of tasks."""

from dataclasses import replace

import pytest

from builders import a_job, a_running_state, a_spec, a_status, with_fields
from tf_executor.contract.reports import Progress
from tf_executor.contract.states import TaskState
from tf_executor.contract.strategies import Strategy
from tf_scheduler.core.recovery.replacement import (
    EARLY_SECONDS,
    PREVIOUS_ADDRESS_WAIT,
    failures_alike,
    finished_peers,
    no_retry_reason,
    renew_address_wait,
    replace_launch,
    restart_group,
    restart_policy,
)
from tf_scheduler.core.state.reducer import apply
from tf_scheduler.model.effects import RecoveryDecided, StatusStored
from tf_scheduler.model.ids import TaskName
from tf_scheduler.model.resources import VirtualNetwork
from tf_scheduler.model.spec import JobKind, RestartPolicy, RestartWhen
from tf_scheduler.model.task import Cause

STATE = a_running_state(a_spec())


def test_replaced_launch_keeps_failure_history() -> None:
    before = replace_launch(STATE, STATE.stored.tasks["worker-0"], "x", 1.0)
    state = apply(STATE, RecoveryDecided(before))

    after = replace_launch(state, state.stored.tasks["worker-0"], "y", 9.0, Cause.ORDERED)

    assert (before.failures, "y", 9.0, 9.0 + PREVIOUS_ADDRESS_WAIT) == (
        after.failures,
        after.why,
        after.ready_at,
        after.previous_address_until,
    )


def test_program_that_ran_for_long_had_begun() -> None:
    """Also without server and progress, as if it had ended itself."""
    worker = STATE.stored.tasks["worker-0"]
    state = apply(STATE, StatusStored(a_status(worker.id, timestamp=10.0, healthy=None)))

    items = [replace_launch(state, worker, "x", 10.0 + EARLY_SECONDS - late) for late in (0.1, 0.0)]

    assert [False, True] == [item.has_begun for item in items]


def test_restart_group_skips_finished_and_replaced_tasks() -> None:
    """A lost ps restarts the chief, once."""
    chief = STATE.stored.tasks["chief-0"]
    finished = apply(STATE, StatusStored(a_status(chief.id, TaskState.FINISHED)))
    replaced = apply(STATE, RecoveryDecided(replace_launch(STATE, chief, "x", 1.0)))

    names = [TaskName("tensorboard-0"), TaskName("ps-0")]
    groups = [list(restart_group(state, names, 9.0, moved=False)) for state in (STATE, finished, replaced)]

    assert [[replace_launch(STATE, chief, "restarts with ps-0", 9.0)], [], []] == groups


@pytest.mark.parametrize(
    ("state", "peers"),
    [(state, ()) for state in (TaskState.RUNNING, TaskState.FAILED, TaskState.KILLED)]
    + [(state, ("chief-0",)) for state in (TaskState.UNREACHABLE, TaskState.LOST, TaskState.GONE)],
)
@pytest.mark.parametrize("moved", [False, True])
def test_named_task_on_silent_agent_restarts_chief(state: TaskState, peers: tuple[str, ...], moved: bool) -> None:
    """Its connections stay open; else they fail, and the chief looks up the name."""
    named = a_running_state(a_spec(network=VirtualNetwork("dcos")))
    worker = named.stored.tasks["worker-0"]
    named = apply(named, StatusStored(a_status(worker.id, state)))

    group = restart_group(named, [worker.name], 9.0, moved=moved)

    assert peers == tuple(item.task for item in group)


def test_previous_address_wait_restarts_when_launch_ends() -> None:
    """Only then is the address free; a lost agent is not awaited."""
    worker = STATE.stored.tasks["worker-0"]
    state = apply(STATE, RecoveryDecided(replace_launch(STATE, worker, "x", 1.0)))

    killed = renew_address_wait(state, worker, a_status(worker.id, TaskState.KILLED), 20.0)
    gone = renew_address_wait(state, worker, a_status(worker.id, TaskState.GONE), 20.0)

    assert (20.0 + PREVIOUS_ADDRESS_WAIT, 1.0) == (killed.previous_address_until, gone.previous_address_until)


@pytest.mark.parametrize(
    ("when", "cause", "code", "retries"),
    [
        (RestartWhen.ON_FAILURE, Cause.USER_ERROR, 1, True),
        (RestartWhen.ON_FAILURE, Cause.INVALID_TASK, None, False),
        (RestartWhen.ALWAYS, Cause.USER_ERROR, 1, True),
        (RestartWhen.NEVER, Cause.USER_ERROR, 1, False),
        (RestartWhen.NEVER, Cause.NOT_STARTED, None, True),
        (RestartWhen.EXIT_CODE, Cause.USER_ERROR, 1, False),
        (RestartWhen.EXIT_CODE, Cause.USER_ERROR, 128, True),
    ],
)
def test_restart_policy_decides_about_retry(when, cause, code: int | None, retries: bool) -> None:
    status = a_status("worker-0__1", TaskState.FAILED, exit_code=code)

    assert retries is (no_retry_reason(RestartPolicy(when=when), cause, status) == "")


@pytest.mark.parametrize("healthy", [True, False])
def test_replaced_launch_has_served_if_its_server_answered(healthy: bool) -> None:
    worker = STATE.stored.tasks["worker-0"]
    before = replace(replace_launch(STATE, worker, "x", 1.0), launch="worker-0__0", start_timeouts=2)
    state = apply(STATE, RecoveryDecided(before), StatusStored(a_status(worker.id, healthy=healthy)))

    after = replace_launch(state, worker, "x", 1.0)

    assert (healthy, False, 0 if healthy else 2) == (after.has_served, after.has_begun, after.start_timeouts)


def test_finished_peers_are_other_tasks_of_the_cluster() -> None:
    """Neither the task itself nor an evaluator, which trains nothing."""
    jobs = (a_job(JobKind.WORKER, 3), a_job(JobKind.EVALUATOR))
    state = a_running_state(a_spec(strategy=Strategy.MULTI_WORKER_MIRRORED, jobs=jobs), TaskState.FINISHED)

    assert ["worker-0", "worker-2"] == finished_peers(state, state.stored.tasks["worker-1"])


@pytest.mark.parametrize("begun", [{"has_begun": True}, {"progress": True}])
def test_program_that_has_trained_had_begun(begun) -> None:
    """In this launch, or in an earlier one."""
    worker = STATE.stored.tasks["worker-0"]
    before = replace(
        replace_launch(STATE, worker, "x", 1.0), launch="worker-0__0", has_begun="has_begun" in begun, start_timeouts=2
    )
    progress = {worker.id: Progress(1, 1.0)} if "progress" in begun else {}
    state = with_fields(apply(STATE, RecoveryDecided(before)), progress=progress)

    after = replace_launch(state, worker, "x", 1.0)

    assert (True, 0 if progress else 2) == (after.has_begun, after.start_timeouts)


def test_restart_group_skips_tasks_that_are_not_launched() -> None:
    tasks = {name: record for name, record in STATE.stored.tasks.items() if name != "chief-0"}

    assert [] == list(restart_group(with_fields(STATE, tasks=tasks), [TaskName("ps-0")], 9.0, moved=False))


def test_task_that_is_not_launched_has_not_finished() -> None:
    jobs = (a_job(JobKind.WORKER, 3),)
    state = a_running_state(a_spec(strategy=Strategy.MULTI_WORKER_MIRRORED, jobs=jobs), TaskState.FINISHED)
    tasks = {name: record for name, record in state.stored.tasks.items() if name != "worker-2"}

    assert ["worker-0"] == finished_peers(with_fields(state, tasks=tasks), tasks[TaskName("worker-1")])


@pytest.mark.parametrize(
    ("own", "others", "expected"),
    [
        ((100.0,), {}, [100.0]),
        ((100.0, 101.0), {}, [100.0, 101.0]),
        ((100.0,), {"worker-1": (96.0, 104.0)}, [100.0]),
        ((100.0,), {"worker-1": (90.0, 95.0), "chief-0": (80.0,)}, [90.0, 95.0, 100.0]),
        ((100.0,), {"worker-1": (91.0, 94.0, 97.0)}, [91.0, 100.0]),
        ((40.0, 100.0), {"worker-1": (50.0, 50.1)}, [50.1, 100.0]),
    ],
)
def test_failures_of_one_incident_count_once(own, others, expected) -> None:
    """Those of the task's job with the same error, in the last 50 s."""
    state = a_running_state(a_spec(restart=RestartPolicy(window=50.0)))
    items = {
        name: replace(replace_launch(state, state.stored.tasks[name], "x", 100.0), failures=times, last_end="1: full")
        for name, times in {**others, "worker-0": own}.items()
    }
    state = apply(state, *map(RecoveryDecided, items.values()))

    assert expected == failures_alike(state, items["worker-0"])


def test_task_of_a_removed_job_has_the_policy_of_the_service() -> None:
    worker = STATE.stored.tasks["worker-0"]
    spec = a_spec(jobs=(a_job(JobKind.PS),), restart=RestartPolicy(max_failures=7))

    assert spec.restart == restart_policy(spec, worker)
