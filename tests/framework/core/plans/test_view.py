"""Plans for display, and the uninstall plan."""

from dataclasses import replace

import pytest

from builders import a_running_state, a_spec, a_status, with_fields
from tf_scheduler.core.plans import view
from tf_scheduler.core.plans.view import find_plan, plans, status_at
from tf_scheduler.core.state.reducer import apply
from tf_scheduler.model.effects import ResultDecided, StatusStored, TaskPaused
from tf_scheduler.model.plan import Override, PhaseSpec, PlanControl, PlanSpec, PlanStrategy, Status
from tf_scheduler.model.state import Result, SchedulerState, Verdict
from tf_scheduler.model.task import TaskState

SPEC = a_spec()
RUNNING = a_running_state(SPEC)
ENDED = apply(RUNNING, ResultDecided(Result(Verdict.SUCCEEDED, "done", 9.0)))


def displayed(state, name="deploy"):
    """The plan, which must exist."""
    plan = find_plan(state, name)
    assert plan is not None
    return plan


def test_plan_omits_tasks_that_do_not_exist() -> None:
    """The plan was written for a larger job."""
    plan = PlanSpec("some", phases=(PhaseSpec("first", "worker", indexes=(5, 1)),))

    phases = displayed(SchedulerState(replace(a_spec(workers=2), plans={"some": plan})), "some").phases

    assert [["worker-1"]] == [[step.name for step in phase.steps] for phase in phases]


def test_unknown_plan_is_none() -> None:
    assert find_plan(RUNNING, "unknown") is None


def test_uninstall_is_first_plan_after_result() -> None:
    assert ["deploy", "recovery", "decommission"] == [plan.name for plan in plans(RUNNING)]
    assert "uninstall" == plans(ENDED)[0].name


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        ((), Status.IN_PROGRESS),
        (("worker",), Status.PENDING),
        (("worker", "worker-0"), Status.PENDING),
        (("ps",), Status.COMPLETE),
    ],
)
def test_status_of_plan_phase_and_step(node, expected) -> None:
    state = with_fields(RUNNING, tasks={"ps-0": RUNNING.stored.tasks["ps-0"]})

    assert expected is status_at(displayed(state), node)


def test_rejected_options_are_errors_of_rollout() -> None:
    plan = displayed(with_fields(RUNNING, rejected=("bad option",)))

    assert (Status.ERROR, ("bad option",)) == (plan.status, plan.errors)


def test_interrupted_and_canary_steps_wait() -> None:
    canary = a_spec(plans={"deploy": PlanSpec("deploy", PlanStrategy.CANARY)})
    interrupted = {"deploy": PlanControl(interrupted=frozenset({("worker", "worker-1")}))}

    canaries = displayed(SchedulerState(canary))
    stopped = displayed(with_fields(SchedulerState(SPEC), controls=interrupted))

    assert Status.WAITING is status_at(canaries, ("worker", "worker-0"))
    assert Status.WAITING is status_at(stopped, ("worker", "worker-1"))
    assert Status.PENDING is status_at(stopped, ("worker", "worker-0"))


def test_paused_task_has_override() -> None:
    plan = displayed(apply(RUNNING, TaskPaused("worker-0", 1.0)))

    overrides = {step.name: step.override for phase in plan.phases for step in phase.steps if step.override}
    assert {"worker-0": Override.PAUSING} == overrides


def test_teardown_is_due_after_last_task_has_ended() -> None:
    ends = [StatusStored(a_status(record.id, TaskState.KILLED)) for record in RUNNING.stored.tasks.values()]

    assert (False, True) == (view.is_teardown_due(apply(ENDED, *ends[1:])), view.is_teardown_due(apply(ENDED, *ends)))


def test_sdk_plan_is_complete_after_state_is_erased() -> None:
    """DC/OS removes the app then."""
    ends = [StatusStored(a_status(record.id, TaskState.KILLED)) for record in RUNNING.stored.tasks.values()]
    finished = with_fields(apply(ENDED, *ends), finished=True)
    states = (ENDED, finished, with_fields(finished, is_erased=True))

    assert [Status.PENDING, Status.IN_PROGRESS, Status.COMPLETE] == [view.sdk_uninstall_plan(s).status for s in states]
