"""End of the job: kills, abandoned tasks, and TEARDOWN."""

from dataclasses import replace

import pytest

from builders import a_running_state, a_spec, a_status, with_fields
from tf_executor.contract.settings import RunSettings
from tf_executor.contract.states import TaskState, Verdict
from tf_scheduler.core import job_end
from tf_scheduler.core.job_end import UNREACHABLE_STOP_TIMEOUT
from tf_scheduler.core.plans.scheduling import KILL_INTERVAL, STOP_TIMEOUT
from tf_scheduler.core.state.reducer import apply
from tf_scheduler.model.effects import Kill, ResultDecided, ShutdownExecutor, StatusStored, Teardown
from tf_scheduler.model.ids import FrameworkId
from tf_scheduler.model.plan import UNINSTALL, PlanControl
from tf_scheduler.model.spec import AfterFinish, FinishPolicy, JobKind
from tf_scheduler.model.state import Result
from tf_scheduler.model.task import AbandonedLaunch

SPEC = a_spec(workers=1, ps=0, chief=0)
RUNNING = with_fields(a_running_state(SPEC), framework_id=FrameworkId("f"))
NOW = 100.0
STOPPED = job_end.request_stop(RUNNING, "wanted", NOW).state
ENDED = apply(STOPPED, StatusStored(a_status("worker-0__1", TaskState.KILLED)))


def test_stop_request_does_not_replace_result() -> None:
    failed = apply(RUNNING, ResultDecided(Result(Verdict.FAILED, "x", 9.0)))

    assert Result(Verdict.STOPPED, "wanted", NOW) == STOPPED.stored.result
    assert failed.stored.result == job_end.request_stop(failed, "wanted", NOW).state.stored.result


def test_tasks_are_killed_before_teardown() -> None:
    killing = job_end.advance(STOPPED, NOW)
    torn_down = job_end.advance(ENDED, NOW)

    assert (Kill("worker-0__1", "a"),) == killing.calls
    assert [ShutdownExecutor, Teardown] == [type(call) for call in torn_down.calls]


def test_teardown_is_repeated_at_intervals() -> None:
    """Mesos does not acknowledge it, and the connection may be lost."""
    first = job_end.advance(ENDED, NOW).state

    assert () == job_end.advance(first, NOW + KILL_INTERVAL - 1).calls
    again = job_end.advance(first, NOW + KILL_INTERVAL)
    assert (True, ()) == (Teardown() in again.calls, again.outcomes)


@pytest.mark.parametrize(
    "state",
    [RUNNING, with_fields(STOPPED, connected=False), with_fields(ENDED, connected=False)],
    ids=["running", "disconnected", "disconnected without tasks"],
)
def test_nothing_happens_before_result_or_without_connection(state) -> None:
    assert () == job_end.advance(state, NOW).calls


@pytest.mark.parametrize(
    ("task_state", "timeout", "expected"),
    [
        (TaskState.RUNNING, STOP_TIMEOUT + SPEC.jobs[0].settings.kill_grace, (1, 0)),
        (TaskState.UNREACHABLE, UNREACHABLE_STOP_TIMEOUT, (0, 1)),
        (TaskState.UNKNOWN, UNREACHABLE_STOP_TIMEOUT, (0, 1)),
    ],
)
def test_task_that_does_not_end_is_given_up(task_state, timeout: float, expected) -> None:
    """Left behind, or abandoned while its agent may return."""
    killing = job_end.advance(apply(STOPPED, StatusStored(a_status("worker-0__1", task_state))), NOW).state

    early, late = (job_end.advance(with_fields(killing, next_kill_at=0.0), NOW + timeout - s).state for s in (1, 0))

    assert ((), {}) == (early.process.left_behind, early.stored.abandoned)
    assert expected == (len(late.process.left_behind), len(late.stored.abandoned))
    assert TaskState.LOST is late.stored.statuses["worker-0__1"].state


def test_unregistered_or_removed_framework_is_finished() -> None:
    never, removed = (with_fields(STOPPED, **fields) for fields in ({"framework_id": None}, {"removed": True}))

    assert all(job_end.advance(state, NOW).state.process.finished for state in (never, removed))
    assert not job_end.advance(STOPPED, NOW).state.process.finished


def test_idle_service_is_not_torn_down_until_forced() -> None:
    spec = replace(SPEC, finish=FinishPolicy(after_finish=AfterFinish.IDLE))
    state = with_fields(a_running_state(spec), framework_id=FrameworkId("f"))
    state = apply(state, StatusStored(a_status("worker-0__1", TaskState.FINISHED)))
    state = apply(state, ResultDecided(Result(Verdict.SUCCEEDED, "done", 9.0)))
    forced = with_fields(state, controls={UNINSTALL: PlanControl(forced=frozenset({()}))})

    assert () == job_end.advance(state, NOW).calls
    assert Teardown() in job_end.advance(forced, NOW).calls


def test_job_fails_at_its_deadline() -> None:
    """Since its first launch, at 5."""
    state = with_fields(RUNNING, first_launch_at=5.0)
    limited = replace(state, spec=replace(SPEC, finish=FinishPolicy(deadline=60.0)))

    assert ([65.0], []) == (list(job_end.deadlines(limited)), list(job_end.deadlines(state)))
    assert () == job_end.check_deadline(limited, 64.0).changes
    assert Verdict.FAILED is job_end.check_deadline(limited, 65.0).state.stored.result.verdict
    ended = apply(limited, ResultDecided(Result(Verdict.SUCCEEDED, "x", 9.0)))
    assert [] == list(job_end.deadlines(ended))


def test_task_may_use_the_longest_kill_grace_of_all_jobs() -> None:
    """The message has the seconds since its KILL."""
    jobs = (SPEC.jobs[0], replace(SPEC.jobs[0], kind=JobKind.CHIEF, settings=RunSettings(kill_grace=50.0)))
    state = job_end.request_stop(a_running_state(replace(SPEC, jobs=jobs)), "wanted", NOW).state
    killing = job_end.advance(with_fields(state, framework_id=FrameworkId("f")), NOW).state

    early, late = (
        job_end.advance(with_fields(killing, next_kill_at=0.0), NOW + STOP_TIMEOUT + seconds) for seconds in (49, 50)
    )

    assert () == early.state.process.left_behind
    assert {"worker-0 on a did not end within 130 s; Mesos ends it with the framework"} < {
        *late.state.process.left_behind
    }


def test_forced_end_of_a_live_task_is_a_warning() -> None:
    forced = with_fields(STOPPED, controls={UNINSTALL: PlanControl(forced=frozenset({()}))})

    decision = job_end.advance(forced, NOW)

    assert [True] == [outcome.warning for outcome in decision.outcomes if outcome.kind == "LeftBehind"]


def test_sent_teardown_is_repeated_although_agents_are_awaited() -> None:
    """The first wait has ended; it does not begin again."""
    abandoned = AbandonedLaunch.of(RUNNING.stored.tasks["worker-0"], NOW)
    sent = with_fields(ENDED, abandoned={abandoned.id: abandoned}, teardown_at=NOW)

    assert Teardown() in job_end.advance(sent, NOW + KILL_INTERVAL).calls


def test_wait_for_agents_is_a_warning() -> None:
    abandoned = AbandonedLaunch.of(RUNNING.stored.tasks["worker-0"], NOW)

    decision = job_end.advance(with_fields(ENDED, abandoned={abandoned.id: abandoned}), NOW)

    assert [("LaunchAbandoned", True)] == [(outcome.kind, outcome.warning) for outcome in decision.outcomes]
    assert () == decision.calls


def test_passed_deadline_is_a_warning() -> None:
    limited = replace(RUNNING, spec=replace(SPEC, finish=FinishPolicy(deadline=60.0)))

    (outcome,) = job_end.check_deadline(limited, 65.0).outcomes

    assert ("DeadlinePassed", True) == (outcome.kind, outcome.warning)
