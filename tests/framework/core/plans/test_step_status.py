"""Status of each step."""

from dataclasses import replace

import pytest

from builders import a_record, a_running_state, a_spec, a_status, with_fields
from tf_executor.contract.states import Status, TaskState, Verdict
from tf_scheduler.core.plans.definitions import decommission_plan, uninstall_plan
from tf_scheduler.core.plans.scheduling import view_of
from tf_scheduler.core.plans.step_status import launched_status, plan_progress
from tf_scheduler.core.recovery.replacement import replace_launch
from tf_scheduler.core.state.reducer import apply
from tf_scheduler.core.state.spec_index import index_of
from tf_scheduler.model.effects import LaunchRetired, RecoveryDecided, ResultDecided, StatusStored, TaskLaunched
from tf_scheduler.model.plan import PlanControl
from tf_scheduler.model.state import Result, SchedulerState

SPEC = a_spec()
STATE = a_running_state(SPEC)
WORKER = "worker-0__1"
LOST = apply(STATE, RecoveryDecided(replace_launch(STATE, STATE.stored.tasks["worker-0"], "lost", 9.0)))
FORCED = PlanControl(forced=frozenset({("worker",)}), target=index_of(SPEC).target)


def status(state, plan="deploy", task="worker-0"):
    """Status of the step that launches the task."""
    progress = view_of(state).progress[plan]
    return progress.status(*progress.plan.by_task[task])


def relaunched(**options):
    return apply(STATE, TaskLaunched(replace(a_record(SPEC, "worker-0", "2"), **options)))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"state": TaskState.STAGING}, Status.STARTING),
        ({"state": TaskState.RUNNING}, Status.COMPLETE),
        ({"state": TaskState.RUNNING, "healthy": False}, Status.STARTED),
        ({"state": TaskState.UNREACHABLE}, Status.STARTED),
        ({"state": TaskState.FINISHED}, Status.COMPLETE),
        ({"state": TaskState.FAILED}, Status.ERROR),
    ],
)
def test_wanted_launch_decides_status(options, expected) -> None:
    assert expected is status(apply(STATE, StatusStored(a_status(WORKER, **options))))


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (SchedulerState(SPEC), Status.PENDING),
        (relaunched(), Status.STARTING),
        (relaunched(config="old"), Status.PENDING),
        (apply(STATE, LaunchRetired(WORKER, "deploy")), Status.PREPARED),
        (with_fields(SchedulerState(SPEC), controls={"deploy": FORCED}), Status.COMPLETE),
        (LOST, Status.DELAYED),
        (with_fields(LOST, delayed_tasks={}), Status.PENDING),
    ],
    ids=["unlaunched", "launched", "outdated", "retired", "forced", "delayed", "lost"],
)
def test_records_and_commands_decide_before_statuses(state, expected) -> None:
    assert expected is status(state)


def test_forced_nodes_apply_to_their_steps_only() -> None:
    state = with_fields(SchedulerState(SPEC), controls={"deploy": FORCED})

    assert (Status.COMPLETE, Status.PENDING) == (status(state), status(state, task="ps-0"))


def test_completed_rollout_ignores_lost_tasks() -> None:
    """Recovery works on them."""
    control = PlanControl(completed=index_of(SPEC).target, target=index_of(SPEC).target)
    state = with_fields(LOST, controls={"deploy": control, "update": control})

    assert [Status.COMPLETE, Status.COMPLETE, Status.DELAYED] == [
        status(state, plan) for plan in ("deploy", "update", "recovery")
    ]


def test_lost_task_that_still_runs_is_not_complete() -> None:
    """It is stopped and moves to another agent."""
    progress = view_of(LOST).progress["deploy"]

    assert not progress.complete(*progress.plan.by_task["worker-0"])


def test_erase_follows_end_of_decommissioned_task() -> None:
    smaller = replace(STATE, spec=a_spec(workers=1))
    ended = apply(smaller, StatusStored(a_status("worker-1__1", TaskState.KILLED)))
    plan = decommission_plan(smaller.spec, smaller.stored.tasks)

    statuses = [
        [plan_progress(view_of(state), plan).status(*step) for step in plan.steps()] for state in (smaller, ended)
    ]

    assert [[Status.PENDING, Status.PENDING], [Status.COMPLETE, Status.PENDING]] == statuses


def test_deregistering_is_complete_when_finished_not_when_forced() -> None:
    """TEARDOWN is sent nevertheless; otherwise the framework would stay registered."""
    control = {"uninstall": PlanControl(forced=frozenset({()}))}
    state = with_fields(apply(STATE, ResultDecided(Result(Verdict.STOPPED, "x", 9.0))), controls=control)
    plan = uninstall_plan(state.stored.tasks)
    *kills, last = plan.steps()

    forced = plan_progress(view_of(state), plan, state)
    sent = plan_progress(view_of(state), plan, state.with_session(teardown_at=9.0))
    finished = plan_progress(view_of(state), plan, state.with_process(finished=True))

    assert all(forced.status(*step) is Status.COMPLETE for step in kills)
    assert [Status.PENDING, Status.STARTING, Status.COMPLETE] == [p.status(*last) for p in (forced, sent, finished)]


def test_launch_that_starts_is_not_complete() -> None:
    progress = view_of(apply(STATE, StatusStored(a_status(WORKER, TaskState.STARTING)))).progress["deploy"]

    complete = [name for name, (node, step) in progress.plan.by_task.items() if progress.complete(node, step)]

    assert ["chief-0", "ps-0", "worker-1"] == sorted(complete)


def test_placeholder_is_not_the_program() -> None:
    """A paused task has started its placeholder; a failed one is an error."""
    placeholder = {"worker-0": replace(STATE.stored.tasks["worker-0"], is_placeholder=True)}
    state = with_fields(STATE, tasks={**STATE.stored.tasks, **placeholder})
    failed = apply(state, StatusStored(a_status(WORKER, TaskState.FAILED)))

    assert (Status.STARTED, Status.ERROR) == (launched_status(state, "worker-0"), launched_status(failed, "worker-0"))


@pytest.mark.parametrize("task_state", [TaskState.KILLED, TaskState.KILLING])
def test_launch_that_was_stopped_with_the_job_is_complete(task_state) -> None:
    killed = apply(STATE, StatusStored(a_status(WORKER, task_state)))
    ended = apply(killed, ResultDecided(Result(Verdict.SUCCEEDED, "x", 9.0)))

    assert Status.COMPLETE is launched_status(ended, "worker-0")
    assert Status.COMPLETE is not launched_status(killed, "worker-0")
    assert Status.ERROR is launched_status(apply(ended, StatusStored(a_status(WORKER, TaskState.FAILED))), "worker-0")


def test_recovery_has_work_until_lost_tasks_run_again() -> None:
    assert ({"worker-0"}, set()) == tuple(set(view_of(s).progress["recovery"].open()) for s in (LOST, STATE))
