"""Definitions of plans, and values derived from the state."""

from dataclasses import replace

from builders import a_record, a_running_state, a_spec, with_fields
from tf_executor.contract.states import Verdict
from tf_scheduler.core.plans.definitions import KILL_TASKS, decommission_plan, uninstall_plan
from tf_scheduler.core.plans.scheduling import view_of
from tf_scheduler.core.recovery.replacement import replace_launch
from tf_scheduler.core.state.reducer import apply
from tf_scheduler.model.effects import LaunchRetired, RecoveryDecided, ResultDecided, TaskLaunched
from tf_scheduler.model.plan import DEREGISTER, PhaseSpec, PlanControl, PlanSpec
from tf_scheduler.model.state import Result

SPEC = a_spec(workers=3)
STATE = a_running_state(SPEC)
LOST = apply(STATE, RecoveryDecided(replace_launch(STATE, STATE.stored.tasks["worker-1"], "lost", 9.0)))


def phases(plan):
    return [phase.name for phase in plan.phases]


def test_decommission_stops_removed_jobs_then_highest_indexes() -> None:
    plan = decommission_plan(a_spec(workers=1, ps=0), STATE.stored.tasks)

    assert ["ps-0", "worker-2", "worker-1"] == phases(plan)
    assert ["kill-ps-0", "erase-ps-0"] == [step.name for step in plan.phases[0].steps]


def test_current_tasks_are_not_decommissioned() -> None:
    assert () == decommission_plan(SPEC, STATE.stored.tasks).phases


def test_uninstall_deregisters_after_all_tasks_are_killed() -> None:
    plan = uninstall_plan(STATE.stored.tasks)

    assert [KILL_TASKS, DEREGISTER] == phases(plan)
    assert {DEREGISTER: (KILL_TASKS,)} == plan.after


def test_recovery_plan_has_lost_tasks_until_relaunch_or_result() -> None:
    relaunched = apply(LOST, TaskLaunched(a_record(SPEC, "worker-1", "2")))
    ended = apply(LOST, ResultDecided(Result(Verdict.FAILED, "x", 10.0)))

    plans = [view_of(state).recovery.plan for state in (STATE, LOST, relaunched, ended)]

    assert [[], ["worker-1"], [], []] == [phases(plan) for plan in plans]


def test_lost_task_that_is_decommissioned_is_not_relaunched() -> None:
    smaller = replace(LOST, spec=a_spec(workers=1))

    assert [{"worker-1"}, set()] == [view_of(state).recovery.lost for state in (LOST, smaller)]


def test_recovery_plan_has_paused_tasks() -> None:
    placeholder = replace(a_record(SPEC, "worker-0", "2"), is_placeholder=True)
    state = with_fields(apply(STATE, TaskLaunched(placeholder)), paused={"worker-0": 1.0})

    assert ["worker-0"] == phases(view_of(state).recovery.plan)


def test_job_does_not_need_launches_that_a_plan_replaces() -> None:
    retired = apply(STATE, LaunchRetired("worker-0__1", "update"))
    outdated = apply(STATE, TaskLaunched(replace(a_record(SPEC, "worker-0", "2"), config="old")))

    needed = [view_of(state).needs(state.stored.tasks["worker-0"]) for state in (STATE, retired, outdated)]

    assert [True, False, False] == needed


def test_update_follows_completed_deploy() -> None:
    spec = a_spec(plans={"some": PlanSpec("some", phases=(PhaseSpec("first", "worker"),))})
    state = a_running_state(spec)
    deployed = with_fields(state, controls={"deploy": PlanControl(completed="target")})

    names = [[plan.name for plan in view_of(each).definitions] for each in (state, deployed)]

    assert ["deploy", "recovery", "decommission", "some"] == names[0]
    assert ["deploy", "update", "recovery", "decommission", "some"] == names[1]
    assert {"some"} == view_of(state).unstarted_plans()
    assert set() == view_of(with_fields(state, controls={"some": PlanControl()})).unstarted_plans()


def test_state_without_relevant_change_keeps_view() -> None:
    """Plans of 10,000 tasks are computed once."""
    view = view_of(STATE)

    assert view.after(STATE.with_session(next_kill_at=9.0)) is view
    assert view.after(LOST).records is view.records


def test_recovery_keeps_paused_tasks_until_the_job_ends() -> None:
    """They are relaunched when an operator resumes them."""
    placeholder = {"worker-1": replace(STATE.stored.tasks["worker-1"], is_placeholder=True)}
    paused = with_fields(STATE, tasks={**STATE.stored.tasks, **placeholder}, paused={"worker-1": 1.0})
    ended = apply(paused, ResultDecided(Result(Verdict.SUCCEEDED, "done", 9.0)))

    plans = [view_of(state).recovery.plan for state in (STATE, paused, ended)]

    assert [[], ["worker-1"], []] == [[step.task for _, step in plan.steps()] for plan in plans]
