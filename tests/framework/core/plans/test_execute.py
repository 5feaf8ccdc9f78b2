"""Actions of plans: stop launches, forget tasks, and complete plans."""

from dataclasses import replace

from builders import a_record, a_running_state, a_spec, a_status, with_fields
from tf_executor.contract.states import TaskState, Verdict
from tf_scheduler.core.plans.scheduling import KILL_INTERVAL, advance, kill_tasks, view_of
from tf_scheduler.core.state.reducer import apply
from tf_scheduler.core.state.spec_index import index_of
from tf_scheduler.model.effects import (
    Kill,
    LaunchRetired,
    PlanControlled,
    ResultDecided,
    StatusStored,
    TaskForgotten,
    TaskLaunched,
)
from tf_scheduler.model.plan import PhaseSpec, PlanControl, PlanSpec
from tf_scheduler.model.state import Result

SPEC = a_spec()
STATE = a_running_state(SPEC)
OUTDATED = apply(
    STATE,
    TaskLaunched(replace(a_record(SPEC, "worker-0", "2"), config="old")),
    StatusStored(a_status("worker-0__2")),
)


def run_plans(state, now=100.0):
    return advance(state, now, view_of(state))


def test_outdated_launch_is_retired_and_killed() -> None:
    decision = run_plans(OUTDATED)

    assert (LaunchRetired("worker-0__2", "deploy"),) == decision.changes
    assert (Kill("worker-0__2", "a"),) == decision.calls


def test_nothing_happens_without_connection() -> None:
    decision = run_plans(with_fields(OUTDATED, connected=False))

    assert ((), ()) == (decision.changes, decision.calls)


def test_kill_is_repeated_until_launch_ends() -> None:
    first = run_plans(OUTDATED)
    early, late = (run_plans(first.state, 100.0 + KILL_INTERVAL - seconds) for seconds in (1.0, 0.0))
    ended = run_plans(apply(first.state, StatusStored(a_status("worker-0__2", TaskState.KILLED))), 200.0)

    assert ((), first.calls, ()) == (early.calls, late.calls, ended.calls)


def test_kill_deadline_is_cleared_without_launches() -> None:
    assert 0.0 == kill_tasks(with_fields(STATE, next_kill_at=5.0), (), 9.0).state.session.next_kill_at


def test_completed_deploy_completes_update() -> None:
    """Update has no work until the options change."""
    changes = run_plans(STATE).changes

    assert ["deploy", "update"] == [change.plan for change in changes if isinstance(change, PlanControlled)]
    assert {index_of(SPEC).target} == {change.control.completed for change in changes}
    assert () == run_plans(run_plans(STATE).state).changes


def test_decommissioned_task_is_killed_then_forgotten() -> None:
    smaller = replace(run_plans(STATE).state, spec=a_spec(workers=1))
    killing = run_plans(smaller)
    ended = apply(killing.state, StatusStored(a_status("worker-1__1", TaskState.KILLED)))

    assert LaunchRetired("worker-1__1", "decommission") in killing.changes
    assert TaskForgotten("worker-1") in run_plans(ended).changes
    assert "worker-1" not in run_plans(ended).state.stored.tasks


def test_nothing_is_relaunched_after_the_result() -> None:
    """The job has ended; the outdated launch ends with it, not for a plan."""
    ended = apply(OUTDATED, ResultDecided(Result(Verdict.SUCCEEDED, "done", 9.0)))

    for state in (ended, with_fields(OUTDATED, finished=True)):
        assert ((), ()) == (run_plans(state).changes, run_plans(state).calls)


def test_kills_are_repeated_by_their_own_time() -> None:
    """The next check is that of the oldest KILL."""
    worker, chief = (STATE.stored.tasks[name] for name in ("worker-0", "chief-0"))
    first = kill_tasks(STATE, (worker,), 100.0).state
    both = kill_tasks(with_fields(first, next_kill_at=0.0), (worker, chief), 100.0 + KILL_INTERVAL - 1)

    assert (Kill("chief-0__1", "a"),) == both.calls
    assert 100.0 + KILL_INTERVAL == both.state.session.next_kill_at
    assert {"worker-0__1": 100.0, "chief-0__1": 99.0 + KILL_INTERVAL} == both.state.session.kills
    assert both.state.session.kills == both.state.session.kill_requested_at


def test_rollout_is_incomplete_while_one_task_starts() -> None:
    """Also if the rest of the plan was forced."""
    starting = apply(STATE, StatusStored(a_status("worker-0__1", TaskState.STARTING)))
    control = PlanControl(forced=frozenset({("ps",)}), target=index_of(SPEC).target)

    for state in (starting, with_fields(starting, controls={"deploy": control})):
        assert () == run_plans(state).changes


def test_message_has_reason_of_stop() -> None:
    decommissioned = replace(run_plans(STATE).state, spec=a_spec(workers=1))

    assert "plan deploy: stopping worker-0 to launch it again" == run_plans(OUTDATED).outcomes[0].message
    messages = [outcome.message for outcome in run_plans(decommissioned).outcomes]
    assert "plan decommission: stopping worker-1 to decommission it" in messages


def test_deploy_completes_update_and_no_user_plan() -> None:
    plan = PlanSpec("some", phases=(PhaseSpec("first", "worker"),))

    changes = run_plans(a_running_state(a_spec(plans={"some": plan}))).changes

    assert ["deploy", "update"] == [change.plan for change in changes if isinstance(change, PlanControlled)]


def test_only_current_launches_are_killed() -> None:
    """A stopped launch may have been replaced or forgotten since."""
    replaced = with_fields(STATE, retired={"worker-0__0": "update", "worker-9__1": "update"})

    assert () == run_plans(replaced).calls
