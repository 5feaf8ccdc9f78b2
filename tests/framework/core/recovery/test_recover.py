"""Recovery of ended tasks: relaunch, or failure of the job."""

from dataclasses import replace

import pytest

from builders import a_job, a_running_state, a_spec, a_status, with_fields
from tf_scheduler.core.recovery import recover
from tf_scheduler.core.state.reducer import apply
from tf_scheduler.model.effects import AgentFailureRecorded, RecoveryDecided, StatusStored
from tf_scheduler.model.spec import JobKind, RestartPolicy, RestartWhen, Strategy
from tf_scheduler.model.state import Verdict
from tf_scheduler.model.task import Cause, Recovery, TaskState

SPEC = a_spec()
STATE = a_running_state(SPEC)
NOW = 20.0


def end(state, name="worker-0", task_state=TaskState.FAILED, now=NOW, ran=True, **options):
    """The task ends, by default with exit code 1."""
    record = state.stored.tasks[name]
    status = a_status(record.id, task_state, **{"exit_code": 1, **options})
    before = a_status(record.id) if ran else None
    after = apply(state, StatusStored(status))
    return recover.on_task_end(after, recover.StatusChange(record, status, before, now, lambda: "id"))


def recoveries(decision):
    return {change.recovery.task: change.recovery for change in decision.changes if isinstance(change, RecoveryDecided)}


def verdict(decision):
    return decision.state.stored.result and decision.state.stored.result.verdict


def with_history(state=STATE, name="worker-0", **options):
    """The task was relaunched before."""
    base = Recovery(name, f"{name}__0", Cause.USER_ERROR, "x", 1.0, 1.0, 1.0, consecutive_failures=1)
    return apply(state, RecoveryDecided(replace(base, **options)))


def test_failed_worker_is_relaunched_alone() -> None:
    (item,) = recoveries(end(STATE)).values()

    assert ("worker-0", Cause.USER_ERROR, (NOW,), 1, NOW) == (
        item.task,
        item.cause,
        item.failures,
        item.consecutive_failures,
        item.ready_at,
    )


def test_tasks_that_depend_on_lost_task_restart_with_it() -> None:
    """The chief ends with its ps."""
    items = recoveries(end(STATE, "ps-0"))

    assert {"ps-0", "chief-0"} == items.keys()
    assert items["ps-0"].ready_at == items["chief-0"].ready_at
    assert () == items["chief-0"].failures


@pytest.mark.parametrize(
    ("launched_at", "expected"),
    [(NOW - recover.STEADY_SECONDS, 1), (NOW - recover.STEADY_SECONDS + 1, 2)],
)
def test_steady_launch_resets_back_off(launched_at: float, expected: int) -> None:
    state = with_history()
    tasks = {name: replace(record, launched_at=launched_at) for name, record in state.stored.tasks.items()}

    assert expected == recoveries(end(with_fields(state, tasks=tasks)))["worker-0"].consecutive_failures


@pytest.mark.parametrize(("failures", "expected"), [((15.0,), None), ((15.0, 16.0), Verdict.FAILED)])
def test_job_fails_after_too_many_failures(failures, expected) -> None:
    state = with_history(a_running_state(replace(SPEC, restart=RestartPolicy(max_failures=2))), failures=failures)

    assert expected is verdict(end(state))


def test_job_fails_if_relaunch_is_not_allowed() -> None:
    never = a_running_state(replace(SPEC, restart=RestartPolicy(when=RestartWhen.NEVER)))

    assert Verdict.FAILED is verdict(end(never))
    assert Verdict.FAILED is verdict(end(STATE, task_state=TaskState.ERROR))


def test_failed_side_job_does_not_fail_job() -> None:
    jobs = (a_job(JobKind.WORKER), a_job(JobKind.EVALUATOR))
    decision = end(a_running_state(a_spec(jobs=jobs)), "evaluator-0", TaskState.ERROR)

    assert (None, ()) == (verdict(decision), decision.changes)


def test_finished_peer_makes_recovery_impossible() -> None:
    spec = a_spec(strategy=Strategy.MULTI_WORKER_MIRRORED, jobs=(a_job(JobKind.WORKER, 2),))
    finished = apply(a_running_state(spec), StatusStored(a_status("worker-1__1", TaskState.FINISHED)))

    assert Verdict.FAILED is verdict(end(finished))
    assert verdict(end(a_running_state(spec))) is None


@pytest.mark.parametrize(
    ("seconds", "strategy", "cause"),
    [
        (recover.COLLATERAL_SECONDS - 1, Strategy.PARAMETER_SERVER, Cause.COLLATERAL),
        (recover.COLLATERAL_SECONDS, Strategy.PARAMETER_SERVER, Cause.USER_ERROR),
        (1.0, Strategy.INDEPENDENT, Cause.USER_ERROR),
    ],
)
def test_failure_soon_after_loss_of_peer_is_collateral(seconds: float, strategy, cause) -> None:
    state = with_history(a_running_state(replace(SPEC, strategy=strategy)), "worker-1", since=NOW - seconds)

    item = recoveries(end(state))["worker-0"]

    assert (cause, cause is Cause.USER_ERROR) == (item.cause, bool(item.failures))


def test_second_crash_at_one_address_avoids_it() -> None:
    """Another process may hold the port."""
    address = STATE.stored.tasks["worker-0"].address

    first = recoveries(end(STATE))["worker-0"]
    second = recoveries(end(with_history(crashed_at=address)))["worker-0"]
    served = recoveries(end(with_fields(with_history(crashed_at=address), progress={"worker-0__1": None})))["worker-0"]

    assert (address, ()) == (first.crashed_at, first.bad_addresses)
    assert (address,) == second.bad_addresses
    assert () == served.bad_addresses


@pytest.mark.parametrize(("ran", "moves"), [(True, False), (False, True)])
def test_launch_lost_before_its_start_moves(ran: bool, moves: bool) -> None:
    decision = end(STATE, task_state=TaskState.LOST, ran=ran, exit_code=None)

    assert moves is recoveries(decision)["worker-0"].must_move
    assert any(isinstance(change, AgentFailureRecorded) for change in decision.changes)


@pytest.mark.parametrize(("source", "blamed"), [("SOURCE_AGENT", True), ("SOURCE_MASTER", False)])
def test_launch_dropped_by_its_agent_moves(source: str, blamed: bool) -> None:
    """An agent with a full disk drops each launch; the master drops invalid ones."""
    decision = end(STATE, task_state=TaskState.DROPPED, ran=False, exit_code=None, source=source)

    recovery = recoveries(decision)["worker-0"]
    assert (Cause.NOT_STARTED, (), blamed) == (recovery.cause, recovery.failures, recovery.must_move)
    assert blamed is any(isinstance(change, AgentFailureRecorded) for change in decision.changes)


def test_out_of_memory_counts_as_failure_of_task_only() -> None:
    decision = end(STATE, exit_code=None, signal=9, out_of_memory=True)

    recovery = recoveries(decision)["worker-0"]
    assert (Cause.USER_ERROR, (NOW,)) == (recovery.cause, recovery.failures)
    assert not any(isinstance(change, AgentFailureRecorded) for change in decision.changes)


def test_unreachable_task_is_lost_after_timeout() -> None:
    timeout = SPEC.recovery.unreachable_timeout
    state = apply(STATE, StatusStored(a_status("worker-0__1", TaskState.UNREACHABLE, timestamp=10.0)))

    assert 10.0 + timeout == min(recover.deadlines(state))
    assert (state, ()) == recover.unreachable_too_long(state, 9.0 + timeout)
    _, (silent,) = recover.unreachable_too_long(state, 10.0 + timeout)
    status = recover.lost(state, silent)
    assert ("worker-0__1", TaskState.LOST) == (status.id, status.state)


def test_launch_is_ready_after_its_back_off() -> None:
    state = with_history(launch="worker-0__1", ready_at=30.0)

    assert 30.0 == min(recover.deadlines(state))
    assert [False, True] == [recover.mark_ready(state, now).is_ready("worker-0") for now in (29.0, 30.0)]
