"""Start-up timeout of tasks whose TensorFlow server does not answer."""

from dataclasses import replace

import pytest

from builders import a_job, a_record, a_running_state, a_spec, a_status, with_fields
from tf_executor.contract.reports import Progress
from tf_executor.contract.states import TaskState, Verdict
from tf_executor.contract.strategies import Strategy
from tf_scheduler.core.recovery import startup_timeout
from tf_scheduler.core.recovery.replacement import replace_launch
from tf_scheduler.core.recovery.startup_timeout import (
    LATE_LAUNCHES_COUNT,
    MAX_LATE_LAUNCHES,
    RECONNECT_GRACE,
    Wait,
    overdue_launches,
    unstarted_status,
    with_start_time,
)
from tf_scheduler.core.state.backoff import jitter_from_id, restart_delay
from tf_scheduler.core.state.reducer import apply
from tf_scheduler.model.effects import RecoveryDecided, ResultDecided, StatusStored, TaskLaunched
from tf_scheduler.model.spec import JobKind, Program, RecoveryPolicy
from tf_scheduler.model.state import DerivedState, Result
from tf_scheduler.model.task import Cause

TIMEOUT = 100.0
SPEC = replace(a_spec(), recovery=RecoveryPolicy(start_timeout=TIMEOUT))
#: All tasks run since 10, and none has joined.
STARTING = apply(
    a_running_state(SPEC), *(StatusStored(a_status(f"{task.name}__1", timestamp=10.0)) for task in SPEC.tasks())
)
#: Only worker-0 has not joined.
WAITING = apply(
    STARTING,
    *(StatusStored(a_status(f"{task.name}__1", healthy=True)) for task in SPEC.tasks() if task.name != "worker-0"),
)


def expire(state, now=10.0 + TIMEOUT):
    checked, found = overdue_launches(state, now)
    warned = startup_timeout.warn_no_server(checked, now)
    return warned.then(lambda after: startup_timeout.relaunch_late(after, found[Wait.JOIN], now, lambda: "id"))


def unstarted(state, now):
    """Return the launches that have not started in time."""
    return [record.id for record in overdue_launches(state, now)[1][Wait.START]]


def late(decision):
    return {item.recovery.task: item.recovery for item in decision.changes if isinstance(item, RecoveryDecided)}


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        (None, (50.0, None)),
        (a_status("x", TaskState.STARTING, timestamp=1.0), (50.0, None)),
        (a_status("x", timestamp=10.0), (10.0, None)),
        (a_status("x", timestamp=10.0, healthy=True), (50.0, True)),
    ],
)
def test_start_time_is_that_of_first_running_status(stored, expected) -> None:
    status = with_start_time(a_status("x", timestamp=50.0), stored)

    assert expected == (status.timestamp, status.healthy)


def test_task_that_misses_its_peers_is_relaunched_after_timeout() -> None:
    assert 10.0 + TIMEOUT == overdue_launches(WAITING, 1.0)[0].derived.next_check_at
    assert () == expire(WAITING, 9.0 + TIMEOUT).changes
    assert (Cause.NOT_JOINED, 1) == (
        late(expire(WAITING))["worker-0"].cause,
        late(expire(WAITING))["worker-0"].start_timeouts,
    )


def test_ready_tasks_are_counted() -> None:
    states = (replace(STARTING, derived=DerivedState()), STARTING, WAITING)

    assert [0, 0, 3] == [startup_timeout.joined_count(state) for state in states]


@pytest.mark.parametrize(
    "state",
    [
        with_fields(WAITING, progress={"worker-0__1": Progress(1, 1.0)}),
        with_fields(WAITING, retired={"worker-0__1": "update"}),
        replace(WAITING, spec=a_spec(recovery=RecoveryPolicy(start_timeout=None))),
        apply(WAITING, RecoveryDecided(replace_launch(WAITING, WAITING.stored.tasks["worker-0"], "x", 20.0))),
    ],
    ids=["progress", "stopping", "unlimited", "replaced"],
)
def test_task_is_not_late_without_need_to_join(state) -> None:
    """A deadline may remain until the next check, but not after it."""
    decision = expire(state)

    assert () == decision.changes
    assert decision.state.derived.next_check_at > 10.0 + TIMEOUT


def test_reconnect_delays_timeout() -> None:
    """Progress is unknown after a reconnect."""
    checked, found = overdue_launches(with_fields(WAITING, connected_at=500.0), 500.0)

    assert ([], 500.0 + RECONNECT_GRACE) == (found[Wait.JOIN], checked.derived.next_check_at)


def test_too_many_late_launches_fail_job() -> None:
    before = replace(
        replace_launch(WAITING, WAITING.stored.tasks["worker-0"], "x", 1.0),
        launch="worker-0__0",
        start_timeouts=MAX_LATE_LAUNCHES,
    )
    decision = expire(apply(WAITING, RecoveryDecided(before)))

    assert decision.state.stored.result is not None
    assert Verdict.FAILED is decision.state.stored.result.verdict


def test_late_launches_of_long_ago_do_not_count() -> None:
    """The task has trained since then; a plan may have relaunched it."""
    before = replace(
        replace_launch(WAITING, WAITING.stored.tasks["worker-0"], "x", 10.0 - LATE_LAUNCHES_COUNT),
        launch="worker-0__0",
        start_timeouts=MAX_LATE_LAUNCHES,
    )
    decision = expire(apply(WAITING, RecoveryDecided(before)))

    assert None is decision.state.stored.result
    assert 1 == late(decision)["worker-0"].start_timeouts


def test_peer_that_joined_keeps_its_late_launches() -> None:
    """Otherwise tasks that are late in turn would restart forever."""
    statuses = (a_status(f"{name}__1", healthy=None if name == "ps-0" else True) for name in STARTING.stored.tasks)
    state = apply(STARTING, *map(StatusStored, statuses))
    chief = replace_launch(state, state.stored.tasks["chief-0"], "x", 1.0)
    before = replace(chief, launch="chief-0__0", start_timeouts=MAX_LATE_LAUNCHES)

    found = late(expire(apply(state, RecoveryDecided(before))))

    assert {"ps-0": 1, "chief-0": MAX_LATE_LAUNCHES} == {name: item.start_timeouts for name, item in found.items()}


def test_missing_servers_of_all_tasks_are_a_single_warning() -> None:
    """The programs may have no server."""
    first = expire(STARTING)

    assert ((), 1) == (first.changes, len(first.outcomes))
    assert () == expire(first.state, 11.0 + TIMEOUT).outcomes


def test_launch_that_stages_after_silence_is_lost_after_timeout() -> None:
    """The check of another launch has left it out while its agent was silent."""
    launches = (TaskLaunched(a_record(SPEC, name, "2")) for name in ("worker-0", "worker-1"))
    state = apply(WAITING, *launches, StatusStored(a_status("worker-0__2", TaskState.UNREACHABLE)))
    checked, found = overdue_launches(state, 5.0 + TIMEOUT)
    (other,) = (unstarted_status(state, record, 5.0 + TIMEOUT) for record in found[Wait.START])
    staging = StatusStored(a_status("worker-0__2", TaskState.STAGING))

    state = apply(checked, StatusStored(other), staging)

    assert 5.0 + TIMEOUT == state.derived.next_check_at
    assert ["worker-0__2"] == unstarted(state, 6.0 + TIMEOUT)


def test_unhealthy_task_is_not_ready() -> None:
    unhealthy = apply(WAITING, StatusStored(a_status("worker-1__1", healthy=False)))

    assert 2 == startup_timeout.joined_count(unhealthy)


@pytest.mark.parametrize(
    ("command", "options", "expected"),
    [
        ("", {"program": Program("train")}, ["worker-0"]),
        ("python train.py", {"program": Program("train")}, []),
        ("", {}, []),
        ("", {"program": Program("train"), "strategy": Strategy.INDEPENDENT}, []),
    ],
    ids=["by the executor", "command of the job", "command of the service", "without servers"],
)
def test_server_is_expected_if_the_executor_opens_it(command: str, options, expected) -> None:
    """A command of the user may have no server."""
    jobs = (a_job(JobKind.WORKER, command=command), a_job(JobKind.PS))
    spec = replace(a_spec(jobs=jobs, **options), recovery=RecoveryPolicy(start_timeout=TIMEOUT))
    state = apply(a_running_state(spec), StatusStored(a_status("worker-0__1", timestamp=10.0)))

    assert expected == [name for name in late(expire(state)) if name == "worker-0"]


def test_one_ready_task_ends_the_wait_for_any_server() -> None:
    """What misses it is then relaunched."""
    one = apply(STARTING, StatusStored(a_status("ps-0__1", healthy=True)))

    assert () == expire(one, 9.0 + TIMEOUT).outcomes
    assert {"TaskRecovers"} == {outcome.kind for outcome in expire(one).outcomes}


@pytest.mark.parametrize(
    ("workers", "words"), [(3, "ps-0, worker-0, worker-1, worker-2 and chief-0 answers"), (5, "and 3 others")]
)
def test_warning_names_the_first_tasks(workers: int, words: str) -> None:
    spec = replace(a_spec(workers=workers), recovery=RecoveryPolicy(start_timeout=TIMEOUT))
    statuses = (StatusStored(a_status(f"{task.name}__1", timestamp=10.0)) for task in spec.tasks())

    (outcome,) = expire(apply(a_running_state(spec), *statuses)).outcomes

    assert words in outcome.message, outcome.message


@pytest.mark.parametrize(
    "state",
    [
        replace(WAITING, spec=a_spec(recovery=RecoveryPolicy(start_timeout=None))),
        apply(WAITING, ResultDecided(Result(Verdict.FAILED, "x", 1.0))),
    ],
    ids=["unlimited", "the job has ended"],
)
def test_silent_launch_waits_without_timeout(state) -> None:
    state = apply(state, TaskLaunched(a_record(SPEC, "worker-0", "2")))

    assert [] == unstarted(state, 1e9)


def test_only_silent_and_staging_launches_are_lost() -> None:
    """Another launch may be younger, and a program that starts has another timeout."""
    younger = replace(a_record(SPEC, "worker-1", "2"), launched_at=7.0)
    state = apply(WAITING, TaskLaunched(a_record(SPEC, "worker-0", "2")), TaskLaunched(younger))
    starting = apply(state, StatusStored(a_status("worker-0__2", TaskState.STARTING)))

    assert (["worker-0__2"], []) == (unstarted(state, 5.0 + TIMEOUT), unstarted(starting, 6.9 + TIMEOUT))


def test_second_late_launch_is_relaunched_and_third_fails_job() -> None:
    before = replace(
        replace_launch(WAITING, WAITING.stored.tasks["worker-0"], "x", 1.0),
        launch="worker-0__0",
        start_timeouts=MAX_LATE_LAUNCHES - 1,
    )
    decision = expire(apply(WAITING, RecoveryDecided(before)))

    assert MAX_LATE_LAUNCHES == late(decision)["worker-0"].start_timeouts
    assert [True] == [outcome.warning for outcome in decision.outcomes]


@pytest.mark.parametrize(("started", "expected"), [(1.5, 2.0), (30.0, 30.0)])
def test_next_check_is_when_the_next_task_is_late(started: float, expected: float) -> None:
    """At least a second later, so that many tasks are checked together."""
    state = apply(WAITING, StatusStored(a_status("worker-0__1", timestamp=started)))

    checked, _ = overdue_launches(state, 1.0 + TIMEOUT)

    assert expected + TIMEOUT == checked.derived.next_check_at


def test_progress_of_one_task_silences_the_warning() -> None:
    """The programs train without a server."""
    assert () == expire(with_fields(STARTING, progress={"worker-0__1": Progress(1, 1.0)})).outcomes


def test_relaunch_of_second_late_launch_waits_for_its_back_off() -> None:
    """The first is relaunched immediately."""
    now, worker = 10.0 + TIMEOUT, WAITING.stored.tasks["worker-0"]
    before = replace(replace_launch(WAITING, worker, "x", 1.0), launch="worker-0__0", start_timeouts=1)

    first, second = (late(expire(state))["worker-0"] for state in (WAITING, apply(WAITING, RecoveryDecided(before))))

    delay = restart_delay(SPEC.restart, 2, jitter_from_id("id"))
    assert delay > 0.0
    assert (now, now + delay) == (first.ready_at, second.ready_at)


def test_late_evaluator_is_not_awaited() -> None:
    """The others train without it."""
    spec = replace(a_spec(jobs=(a_job(), a_job(JobKind.EVALUATOR))), recovery=SPEC.recovery)
    statuses = (a_status("worker-0__1", healthy=True), a_status("evaluator-0__1", timestamp=10.0))

    assert () == expire(apply(a_running_state(spec), *map(StatusStored, statuses))).changes


def test_several_late_tasks_fail_the_job_once() -> None:
    names = ("worker-0", "worker-1")
    items = (replace_launch(STARTING, STARTING.stored.tasks[name], "x", 1.0) for name in names)
    before = [replace(item, launch=f"{item.task}__0", start_timeouts=MAX_LATE_LAUNCHES) for item in items]
    ready = [StatusStored(a_status(f"{name}__1", healthy=True)) for name in ("ps-0", "chief-0")]

    decision = expire(apply(STARTING, *map(RecoveryDecided, before), *ready))

    assert 1 == sum(isinstance(change, ResultDecided) for change in decision.changes)


@pytest.mark.parametrize(
    ("ready", "words"), [(["ps-0"], "and 1 other server does"), (["ps-0", "chief-0"], "and 2 other servers do")]
)
def test_message_counts_the_servers_that_answer(ready, words: str) -> None:
    state = apply(STARTING, *(StatusStored(a_status(f"{name}__1", healthy=True)) for name in ready))

    assert words in late(expire(state))["worker-0"].why


def test_stored_launch_of_a_removed_task_is_ignored() -> None:
    """So is an older launch of the same task."""
    tasks = WAITING.stored.tasks
    removed = with_fields(WAITING, tasks={name: item for name, item in tasks.items() if name != "worker-0"})
    newer = with_fields(WAITING, tasks={**tasks, "worker-0": a_record(SPEC, "worker-0", "2")})

    assert [(), ()] == [expire(state).changes for state in (removed, newer)]
