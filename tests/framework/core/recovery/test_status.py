"""Status updates: stored, acknowledged, and their consequences."""

from dataclasses import replace

import pytest

from builders import a_record, a_running_state, a_spec, a_status, an_offer, with_fields
from tf_executor.contract.states import TaskState, Verdict
from tf_executor.contract.strategies import Strategy
from tf_scheduler.core.offers import rounds
from tf_scheduler.core.plans.scheduling import KILL_INTERVAL, view_of
from tf_scheduler.core.recovery import status as updates
from tf_scheduler.core.recovery.replacement import replace_launch
from tf_scheduler.core.recovery.startup_timeout import Wait, overdue_launches
from tf_scheduler.core.state.reducer import MIN_LAUNCH_SECONDS, apply
from tf_scheduler.model.effects import (
    Acknowledge,
    Kill,
    Reconcile,
    RecoveryDecided,
    ResultDecided,
    StatusStored,
    TaskLaunched,
)
from tf_scheduler.model.events import OffersReceived
from tf_scheduler.model.resources import Resource
from tf_scheduler.model.spec import RecoveryPolicy
from tf_scheduler.model.state import Result

SPEC = a_spec()
STATE = a_running_state(SPEC)
FAILED = apply(STATE, ResultDecided(Result(Verdict.FAILED, "x", 100.0)))


def update(state, task_id="worker-0__1", task_state=TaskState.RUNNING, uuid="new", now=110.0, **options):
    status = a_status(task_id, task_state, uuid, **options)
    return updates.on_update(state, status, now, lambda: "id", view_of(state))


def kinds(decision):
    return [type(item) for item in (*decision.changes, *decision.calls)]


@pytest.mark.parametrize(
    ("task_id", "task_state", "expected"),
    [
        ("worker-9__1", TaskState.RUNNING, [Acknowledge, Kill]),
        ("worker-0__0", TaskState.RUNNING, [Acknowledge, Kill]),
        ("worker-9__1", TaskState.FINISHED, [Acknowledge]),
    ],
)
def test_unknown_launch_is_killed_unless_it_has_ended(task_id: str, task_state, expected) -> None:
    assert expected == kinds(update(STATE, task_id, task_state))


@pytest.mark.parametrize("task_state", [TaskState.RUNNING, TaskState.KILLED, TaskState.FAILED, TaskState.UNREACHABLE])
@pytest.mark.parametrize("sent", [0.0, 3710.0])
def test_time_of_a_status_is_that_of_the_scheduler(task_state, sent: float) -> None:
    """Agents' clocks may be an hour ahead or behind."""
    after = update(STATE, task_state=task_state, timestamp=sent, healthy=True).state

    assert 110.0 == after.stored.statuses["worker-0__1"].timestamp


@pytest.mark.parametrize(
    ("uuid", "expected"),
    [("new", [StatusStored, Acknowledge]), ("uuid", [Acknowledge]), ("", [])],
)
def test_only_news_are_stored_and_only_updates_acknowledged(uuid: str, expected) -> None:
    """A repeated update has the stored uuid; an answer to reconciliation has none."""
    assert expected == kinds(update(STATE, uuid=uuid))


def test_launch_that_counts_as_lost_is_killed() -> None:
    lost = apply(STATE, StatusStored(a_status("worker-0__1", TaskState.LOST)))

    assert [Acknowledge, Kill] == kinds(update(lost))


def test_unreachable_time_is_that_of_first_status() -> None:
    first = update(STATE, task_state=TaskState.UNREACHABLE, timestamp=1.0)
    second = update(first.state, task_state=TaskState.UNREACHABLE, uuid="other", now=150.0)

    back = update(second.state, uuid="third", now=160.0)
    assert [110.0, 160.0] == [item.state.stored.statuses["worker-0__1"].timestamp for item in (second, back)]


def test_status_without_addresses_keeps_known_ones() -> None:
    known = update(STATE, addresses=("10.0.0.9",))

    assert ("10.0.0.9",) == update(known.state, uuid="other").state.stored.statuses["worker-0__1"].addresses


def test_out_of_memory_names_option() -> None:
    failed = update(STATE, task_state=TaskState.FAILED, signal=9, message="killed by signal 9", out_of_memory=True)

    assert "killed by signal 9; raise worker.mem" == failed.state.stored.statuses["worker-0__1"].message


def test_memory_limit_of_container_names_its_parts() -> None:
    """The kernel's limit includes the executor, so it appears in no option."""
    resources = (Resource("mem", 32_000), Resource("cpus", 9_000), Resource("mem", 64_000))
    state = apply(STATE, TaskLaunched(replace(a_record(SPEC, "worker-0", "2"), resources=resources)))
    limit = {"reason": "REASON_CONTAINER_LIMITATION_MEMORY", "message": "limit exceeded", "out_of_memory": True}

    after = update(state, "worker-0__2", TaskState.FAILED, **limit).state

    expected = "limit exceeded; allowed 96 MB = worker.mem 32 + executor.mem 64; raise worker.mem"
    assert expected == after.stored.statuses["worker-0__2"].message


def test_exited_placeholder_has_failed() -> None:
    """The program of the paused task did not finish."""
    placeholder = replace(a_record(SPEC, "worker-0", "2"), is_placeholder=True)
    state = with_fields(apply(STATE, TaskLaunched(placeholder)), paused={"worker-0": 1.0})

    after = update(state, "worker-0__2", TaskState.FINISHED).state

    assert TaskState.FAILED is after.stored.statuses["worker-0__2"].state


def test_finished_chief_ends_job_and_finished_worker_does_not() -> None:
    finished = (update(STATE, f"{name}__1", TaskState.FINISHED).state for name in ("worker-0", "chief-0"))
    worker, chief = (updates.conclude(state, 9.0).state.stored.result for state in finished)

    assert (None, Verdict.SUCCEEDED, "chief-0") == (worker, chief.verdict, chief.reason.partition(" ")[0])


def test_failed_task_is_recovered() -> None:
    decision = update(STATE, task_state=TaskState.FAILED, exit_code=1)

    assert ["worker-0"] == [c.recovery.task for c in decision.changes if isinstance(c, RecoveryDecided)]


@pytest.mark.parametrize(("now", "expected"), [(119.9, ("worker-0",)), (120.0, ())])
def test_failures_soon_after_failed_job_are_collateral(now: float, expected) -> None:
    after = update(FAILED, task_state=TaskState.FAILED, now=now).state

    assert expected == after.stored.result.collateral


@pytest.mark.parametrize("verdict", [Verdict.STOPPED, Verdict.SUCCEEDED])
def test_failure_after_job_that_did_not_fail_is_not_collateral(verdict: Verdict) -> None:
    state = apply(STATE, ResultDecided(Result(verdict, "x", 100.0)))

    assert () == update(state, task_state=TaskState.FAILED).state.stored.result.collateral


def test_unstarted_launch_is_lost_and_killed() -> None:
    """Its agent may start it later."""
    spec = replace(SPEC, recovery=RecoveryPolicy(start_timeout=1.0))
    state = apply(a_running_state(spec), TaskLaunched(a_record(spec, "worker-0", "2")))
    due = 5.0 + MIN_LAUNCH_SECONDS

    early, late = (
        updates.expire_unstarted(state, overdue_launches(state, at)[1][Wait.START], at, lambda: "id", view_of(state))
        for at in (due - 1, due)
    )

    assert ((), ()) == (early.changes, early.calls)
    assert TaskState.LOST is late.state.stored.statuses["worker-0__2"].state
    assert (Kill("worker-0__2", "a"),) == late.calls


def test_message_names_task_agent_state_and_reason() -> None:
    status = a_status("worker-0__1", TaskState.FAILED, message="exit code 3")

    assert "worker-0 on a has failed: exit code 3" == updates.describe(STATE.stored.tasks["worker-0"], status)


def test_out_of_memory_message_names_option() -> None:
    """The user reads what to change; the text of the kernel stays."""
    for message, expected in (("killed", "killed; raise worker.mem"), ("", "out of memory; raise worker.mem")):
        after = update(STATE, task_state=TaskState.FAILED, out_of_memory=True, message=message).state
        assert expected == after.stored.statuses["worker-0__1"].message


def test_executor_that_never_reported_cannot_start_in_image() -> None:
    """After it has reported, another cause has ended it."""
    spec = replace(SPEC, jobs=tuple(replace(job, image="tf") for job in SPEC.jobs))
    unstarted = apply(a_running_state(spec), TaskLaunched(a_record(spec, "worker-0", "2")))
    end = {"task_state": TaskState.FAILED, "reason": "REASON_EXECUTOR_TERMINATED", "message": "killed"}

    first = update(unstarted, "worker-0__2", **end).state.stored.statuses["worker-0__2"]
    later = update(a_running_state(spec), **end).state.stored.statuses["worker-0__1"]

    assert (True, "the executor did not start in the image `tf`") == (first.end.cannot_start, first.end.error)
    assert (False, "killed") == (later.end.cannot_start, later.message)


def test_late_success_cancels_relaunch_of_independent_task() -> None:
    """The task is done; one that trains with others restarts with them."""
    for strategy, expected in ((Strategy.INDEPENDENT, ""), (Strategy.MULTI_WORKER_MIRRORED, "worker-0__1")):
        state = a_running_state(a_spec(strategy=strategy, chief=0, ps=0))
        state = apply(state, StatusStored(a_status("worker-0__1", TaskState.LOST)))
        recovery = replace_launch(state, state.stored.tasks["worker-0"], "x", 20.0)
        after = update(apply(state, RecoveryDecided(recovery)), task_state=TaskState.FINISHED).state
        assert expected == after.stored.recoveries["worker-0"].launch


def test_success_after_replacement_is_reported() -> None:
    """Nothing else would show that the first copy had done the work."""
    replaced = update(STATE, "worker-0__0", TaskState.FINISHED)
    failed = update(
        apply(STATE, StatusStored(a_status("worker-0__1", TaskState.FAILED))), task_state=TaskState.FINISHED
    )
    finished = update(
        apply(STATE, StatusStored(a_status("worker-0__1", TaskState.FINISHED))), task_state=TaskState.FINISHED
    )

    assert [
        ("LateSuccess", "worker-0__0 has finished, which is ignored: it was replaced"),
        ("LateSuccess", "worker-0__1 has finished, which is ignored: it has failed before"),
    ] == [(item.kind, item.message) for item in (*replaced.outcomes, *failed.outcomes)]
    assert () == finished.outcomes


def test_foreign_launch_is_killed_again_after_a_while() -> None:
    """The first KILL may be lost; each status must not cause another one."""
    first = update(STATE, "worker-9__1", now=110.0)
    soon, later = (
        update(first.state, "worker-9__1", now=110.0 + after) for after in (KILL_INTERVAL - 1, KILL_INTERVAL)
    )

    assert [[Acknowledge, Kill], [Acknowledge], [Acknowledge, Kill]] == [kinds(item) for item in (first, soon, later)]
    assert [] == kinds(update(STATE, "worker-9__1", agent_id=None))


@pytest.mark.parametrize(
    ("task_id", "hostname"), [("worker-0__1", "a"), ("worker-0__0", "node-7"), ("worker-9__1", "node-7")]
)
def test_launch_that_may_still_run_is_remembered_with_its_host(task_id: str, hostname: str) -> None:
    """The record of a later launch of the task names another host."""
    agent = an_offer(agent="node-7").agent_id
    state = rounds.on_offers(STATE, OffersReceived((an_offer(agent="node-7"),)), 1.0, ()).state
    state = apply(state, StatusStored(a_status("worker-0__1", TaskState.LOST)))

    (change,) = update(state, task_id, TaskState.UNREACHABLE, agent_id=agent).changes

    assert (task_id, hostname) == (change.id, change.hostname)


def test_task_without_answer_is_asked_about_before_it_is_lost() -> None:
    """Only those that Mesos was not asked about since; the others are lost."""
    state = with_fields(STATE, connected=True)
    for name, at in (("worker-0", 10.0), ("worker-1", 20.0)):
        state = update(state, f"{name}__1", TaskState.UNREACHABLE, now=at).state
    due = 10.0 + SPEC.recovery.unreachable_timeout

    def expire(state, now):
        overdue = overdue_launches(state, now)[1][Wait.RETURN]
        return updates.expire_unreachable(state, overdue, now, lambda: "id", view_of(state))

    first = expire(state, due)
    answered = update(first.state, "worker-0__1", TaskState.UNREACHABLE, uuid="answer").state
    second = expire(answered, due + 10.0)

    assert [Reconcile] == kinds(first)
    assert ({"worker-0__1"}, {"worker-1__1"}) == (set(first.calls[0].tasks), set(second.calls[0].tasks))
    assert TaskState.LOST is second.state.stored.statuses["worker-0__1"].state
    assert {"worker-0__1"} == set(second.state.stored.abandoned)


@pytest.mark.parametrize(
    ("launch", "believed", "killed"),
    [
        ("worker-0__1", TaskState.RUNNING, False),
        ("worker-0__1", TaskState.LOST, True),
        ("worker-0__0", TaskState.RUNNING, True),
        ("worker-9__1", TaskState.RUNNING, True),
    ],
)
def test_program_that_shows_life_is_killed_if_unwanted(launch: str, believed, killed: bool) -> None:
    state = apply(STATE, StatusStored(a_status("worker-0__1", believed)))

    assert ([Kill] if killed else []) == kinds(updates.on_sign_of_life(state, launch, "a", 1.0))


def test_abandoned_launch_is_a_warning() -> None:
    (outcome,) = update(STATE, "worker-0__0", TaskState.UNREACHABLE).outcomes

    assert ("LaunchAbandoned", True) == (outcome.kind, outcome.warning)
