"""Lists of workers for a running chief, and when the chief restarts."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from builders import a_running_state, a_spec, a_status, with_fields
from tf_executor.contract.reports import Progress
from tf_executor.contract.states import TaskState
from tf_executor.contract.strategies import Strategy
from tf_scheduler.core.elastic.live_workers import (
    CHECK_AGAIN,
    CONFIRM_WITHIN,
    SEND_AGAIN,
    deadlines,
    direct_chief,
    record_members,
)
from tf_scheduler.core.plans.scheduling import view_of
from tf_scheduler.core.recovery.replacement import replace_launch, restart_group
from tf_scheduler.core.state.reducer import apply
from tf_scheduler.model.effects import (
    Decision,
    LaunchRetired,
    MessageExecutor,
    RecoveryDecided,
    StatusStored,
    TaskForgotten,
    TaskLaunched,
)
from tf_scheduler.model.ids import TaskId, TaskName
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.model.task import Members

NOW = 100.0
WORKERS = ("worker-0", "worker-1")


def a_training(*workers: str, **members: Any) -> SchedulerState:
    """Every task answers; the chief has confirmed list 2 of `workers`."""
    spec = replace(a_spec(workers=2, ps=1, chief=1, strategy=Strategy.PARAMETER_SERVER), live=True)
    state = with_fields(a_running_state(spec), connected=True)
    tasks = state.stored.tasks
    state = apply(state, *(StatusStored(a_status(item.id, healthy=True)) for item in tasks.values()))
    addresses = {TaskName(name): tasks[TaskName(name)].address for name in workers}
    sent = Members(tasks[TaskName("chief-0")].id, 2, addresses, NOW, confirmed=True)
    return apply(state, replace(sent, **members))


def decided(state: SchedulerState, now: float = NOW) -> Decision:
    return direct_chief(state, now, view_of(state))


def sent(decision: Decision) -> list[set[str]]:
    """Return the workers of each list that is sent."""
    messages = (call.data for call in decision.calls if isinstance(call, MessageExecutor))
    return [set(json.loads(data.split(b" ", 2)[2])["workers"]) for data in messages]


def changed(state: SchedulerState, name: str, status: TaskState = TaskState.RUNNING, **record: Any) -> SchedulerState:
    """Return the state with another record and status of a task."""
    new = replace(state.stored.tasks[TaskName(name)], **record)
    return apply(state, TaskLaunched(new), StatusStored(a_status(new.id, status, healthy=status is TaskState.RUNNING)))


def test_list_is_sent_again_although_a_worker_was_removed() -> None:
    """The chief confirms this list before it gets one without the worker."""
    removed = apply(a_training(*WORKERS, confirmed=False), TaskForgotten(TaskName("worker-1")))

    assert [{"0", "1"}] == sent(decided(removed))


def test_counted_workers_run_and_are_used_by_the_chief() -> None:
    """A worker that is not on the list, or is lost, adds nothing to the speed."""
    both, one = a_training(*WORKERS), a_training("worker-1")
    another = apply(one, Members(TaskName("another"), 9, {}, 0.0))

    assert (2, 1, 2) == (both.count_workers(), one.count_workers(), another.count_workers())
    assert 1 == changed(both, "worker-0", TaskState.FAILED).count_workers()


def test_first_list_has_the_workers_that_answer() -> None:
    decision = decided(apply(a_training(), Members(TaskName("another"), 9, {}, 0.0)))

    assert [{"0", "1"}] == sent(decision)
    (change,) = decision.changes
    assert isinstance(change, Members)
    assert (1, False) == (change.version, change.confirmed)
    assert () == decision.outcomes


def test_worker_joins_when_it_answers() -> None:
    decision = decided(a_training("worker-0"))

    assert [{"0", "1"}] == sent(decision)
    assert ["the running chief changes its workers; joining: worker-1"] == [item.message for item in decision.outcomes]


def test_same_workers_need_no_list() -> None:
    assert () == decided(a_training(*WORKERS)).changes


@pytest.mark.parametrize(("after", "count"), [(0.0, 1), (SEND_AGAIN - 1, 0), (SEND_AGAIN, 1)])
def test_unconfirmed_list_is_sent_again(after: float, count: int) -> None:
    state = a_training(*WORKERS, confirmed=False)
    state = state.with_session(members_sent_at=NOW if after else 0.0)

    assert count == len(sent(decided(state, NOW + after)))


@pytest.mark.parametrize(
    ("members", "after", "reason"),
    [
        ({"confirmed": False}, CONFIRM_WITHIN, "it did not confirm its workers within 60 s"),
        ({"confirmed": False, "error": "no"}, 1.0, "no"),
        ({"workers": {TaskName("worker-0"): "elsewhere:1"}}, 1.0, "worker-0 was lost, and runs at another address"),
        ({"workers": {}, "error": "TensorFlow 3"}, 1.0, "TensorFlow 3"),
    ],
)
def test_chief_restarts_if_it_cannot_change(members: dict[str, Any], after: float, reason: str) -> None:
    decision = decided(a_training(*WORKERS, **members), NOW + after)

    assert [LaunchRetired] == [type(change) for change in decision.changes]
    assert [f"chief-0 restarts to change its workers: {reason}"] == [item.message for item in decision.outcomes]


def test_first_list_may_stay_unconfirmed() -> None:
    """The program may read its data for minutes."""
    assert () == decided(a_training(*WORKERS, version=1, confirmed=False), NOW + 600).changes


@pytest.mark.parametrize(("joined", "restarted"), [("worker-0", []), ("worker-1", ["chief-0"])])
def test_chief_survives_the_move_of_an_unused_worker(joined: str, restarted: list[str]) -> None:
    """A worker that does not answer yet has not joined; one that is lost cannot leave."""
    state = changed(a_training(joined), "worker-1", TaskState.STARTING)

    assert restarted == [item.task for item in restart_group(state, [TaskName("worker-1")], NOW, moved=True)]


@pytest.mark.parametrize("state", [TaskState.FAILED, TaskState.UNREACHABLE])
def test_nothing_changes_while_a_worker_is_lost(state: TaskState) -> None:
    """TensorFlow waits for it at its address."""
    assert () == decided(changed(a_training("worker-0"), "worker-0", state)).changes


def test_lost_worker_stays_on_the_list() -> None:
    assert () == decided(changed(a_training(*WORKERS), "worker-1", TaskState.FAILED)).changes


def test_worker_that_left_is_launched_again_before_it_joins() -> None:
    """Every step would wait until its process has closed its old context."""
    state = changed(a_training(*WORKERS), "worker-1", is_placeholder=True)
    first = decided(state)
    (change,) = first.changes
    assert isinstance(change, Members)
    launch = state.stored.tasks[TaskName("worker-1")].id
    assert (launch,) == change.left

    wanted = changed(apply(first.state, replace(change, confirmed=True)), "worker-1", is_placeholder=False)
    again = decided(wanted)
    assert (LaunchRetired(launch, "deploy"),) == again.changes

    assert () == decided(again.state).changes
    new = changed(wanted, "worker-1", id=TaskId("worker-1__new"))
    assert [{"0", "1"}] == sent(decided(new))


def test_paused_worker_leaves() -> None:
    assert [{"0"}] == sent(decided(changed(a_training(*WORKERS), "worker-1", is_placeholder=True)))


def test_nothing_is_decided_without_a_chief_that_answers() -> None:
    """Or while it is being replaced."""
    gone = changed(a_training("worker-0"), "chief-0", TaskState.FAILED)
    state = a_training("worker-0")
    replaced = apply(state, RecoveryDecided(replace_launch(state, state.stored.tasks[TaskName("chief-0")], "x", NOW)))

    assert ((), ()) == (decided(gone).changes, decided(replaced).changes)
    assert ([], []) == ([*deadlines(gone)], [*deadlines(replaced)])
    assert [NOW + CHECK_AGAIN] == [*deadlines(decided(state).state)]


@pytest.mark.parametrize(
    ("version", "error", "expected"),
    [(None, None, None), (1, None, None), (2, None, (True, "")), (1, "no", (False, "no"))],
)
def test_answer_confirms_a_list_or_names_a_problem(version: Any, error: Any, expected: Any) -> None:
    state = a_training(*WORKERS, confirmed=False)
    chief = state.stored.tasks[TaskName("chief-0")].id

    changes = record_members(state, chief, Progress(1, NOW, members=version, members_error=error))

    assert ([] if expected is None else [expected]) == [(item.confirmed, item.error) for item in changes]
    assert () == record_members(state, "another", Progress(1, NOW, members=2))
