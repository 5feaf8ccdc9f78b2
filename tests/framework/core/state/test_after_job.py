"""Tasks that keep running after the job, and until when."""

from dataclasses import replace

from builders import a_job, a_running_state, a_spec, a_status, with_fields
from tf_executor.contract.states import TaskState, Verdict
from tf_scheduler.core.state import after_job
from tf_scheduler.core.state.reducer import apply
from tf_scheduler.model.effects import ResultDecided, StatusStored
from tf_scheduler.model.plan import UNINSTALL, PlanControl
from tf_scheduler.model.spec import AfterFinish, CleanupPolicy, FinishPolicy, JobKind
from tf_scheduler.model.state import Result
from tf_scheduler.model.task import AbandonedLaunch

JOBS = (a_job(JobKind.WORKER, 1), a_job(JobKind.EVALUATOR, 1), a_job(JobKind.TENSORBOARD, 1))


def ended(verdict=Verdict.SUCCEEDED, **finish):
    """Every task runs, and the job has ended at 100."""
    spec = replace(a_spec(jobs=JOBS), finish=replace(FinishPolicy(), **finish))
    return apply(a_running_state(spec), ResultDecided(Result(verdict, "done", 100.0)))


def retained(state):
    return [record.name for record in after_job.retained_tasks(state)]


def test_evaluator_continues_after_success() -> None:
    state = ended(evaluator_seconds=30.0)

    assert ["evaluator-0"] == retained(state)
    assert [130.0] == list(after_job.deadlines(state))


def test_ended_evaluator_has_no_deadline() -> None:
    state = apply(ended(evaluator_seconds=30.0), StatusStored(a_status("evaluator-0__1", TaskState.FINISHED)))

    assert [] == list(after_job.deadlines(state))


def test_evaluator_stops_after_failure() -> None:
    assert [] == retained(ended(Verdict.FAILED, evaluator_seconds=30.0))


def test_tensorboard_is_kept_if_configured() -> None:
    state = ended(after_finish=AfterFinish.KEEP_TENSORBOARD, evaluator_seconds=0.0, keep_seconds=None)

    assert ["tensorboard-0"] == retained(state)
    assert [] == list(after_job.deadlines(state))


def test_cleanup_none_keeps_all_tasks() -> None:
    assert 3 == len(retained(ended(cleanup=CleanupPolicy.NONE, keep_seconds=60.0)))


def test_all_tasks_are_kept_until_one_ends_or_is_killed() -> None:
    state = ended(cleanup=CleanupPolicy.NONE, keep_seconds=60.0)
    killing = with_fields(state, kills={"worker-0__1": 100.0})

    assert [True, False] == [after_job.keeps_all(state, now) for now in (159.0, 160.0)]
    assert not after_job.keeps_all(killing, 159.0)
    assert not after_job.keeps_all(ended(evaluator_seconds=30.0), 101.0)
    assert not after_job.keeps_all(a_running_state(a_spec(jobs=JOBS)), 101.0)


def test_tasks_stop_at_their_end_time() -> None:
    state = ended(evaluator_seconds=30.0)
    records = list(state.stored.tasks.values())

    assert ["tensorboard-0", "worker-0"] == sorted(r.name for r in after_job.tasks_to_stop(state, records, 129.0))
    assert 3 == len(after_job.tasks_to_stop(state, records, 130.0))


def test_requested_stop_retains_no_task() -> None:
    assert [] == retained(with_fields(ended(evaluator_seconds=30.0), stop_requested=True))
    assert [] == retained(ended(Verdict.STOPPED, cleanup=CleanupPolicy.NONE, keep_seconds=60.0))


def test_retained_tasks_are_announced_with_their_time() -> None:
    """A user who looks for leftovers finds the reason in the log."""
    limited = after_job.announce(ended(cleanup=CleanupPolicy.NONE, keep_seconds=60.0)).outcomes
    unlimited = after_job.announce(ended(cleanup=CleanupPolicy.NONE, keep_seconds=None)).outcomes

    assert "worker-0 at a:0 keeps running for up to 60 s" in [item.message for item in limited]
    assert "worker-0 at a:0 keeps running until the service is stopped" in [item.message for item in unlimited]
    assert {"TaskRetained"} == {item.kind for item in (*limited, *unlimited)}


def abandoning(*since, **fields):
    """Launches were given up at these times, and TEARDOWN may wait for their agents."""
    launches = (AbandonedLaunch(f"old__{number}", "a", f"host-{number}", at) for number, at in enumerate(since))
    state = apply(ended(), *launches)
    return with_fields(state, **{"waits_for_agents": True, **fields})


def test_teardown_waits_for_each_agent() -> None:
    forced = {UNINSTALL: PlanControl(forced=frozenset({()}))}
    states = (abandoning(), abandoning(5.0, 9.0, 7.0), abandoning(5.0, controls=forced))

    assert [0.0, 9.0 + after_job.AGENT_WAIT, 0.0] == [after_job.agents_awaited_until(state) for state in states]


def test_agents_are_awaited_until_the_service_has_finished() -> None:
    states = (abandoning(5.0), abandoning(), abandoning(5.0, finished=True), abandoning(5.0, waits_for_agents=False))

    assert [True, False, False, False] == [after_job.awaits_agents(state) for state in states]


def test_message_names_first_abandoned_launches() -> None:
    five, six = (after_job.abandoned_message(abandoning(*range(count))) for count in (5, 6))
    later = after_job.abandoned_message(abandoning(1.0, waits_for_agents=False))

    assert "" == after_job.abandoned_message(abandoning())
    assert five.startswith("the removal of the framework waits up to 600 s for agents that do not answer: old ")
    assert not later.startswith("the removal")
    assert ("host-4" in five, "more" in five) == (True, False)
    assert ("host-5" in six, six.endswith("; and 1 more")) == (False, True)
    assert 2 == len(list(after_job.left_to_mesos(abandoning(1.0, 2.0))))


def test_retained_task_that_is_being_killed_has_no_deadline() -> None:
    """An operator stops it before."""
    state = with_fields(ended(evaluator_seconds=30.0), kills={"evaluator-0__1": 110.0})

    assert ([], []) == (retained(state), list(after_job.deadlines(state)))
