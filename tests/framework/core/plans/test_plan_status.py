"""Plans for display, and the uninstall plan."""

from dataclasses import replace

import pytest

from builders import a_record, a_running_state, a_spec, a_status, with_fields
from tf_executor.contract.states import Override, Status, TaskState, Verdict
from tf_scheduler.api.views import plan_messages
from tf_scheduler.api.views.plan_messages import find_plan, plans
from tf_scheduler.core.plans.plan_status import is_teardown_due, status_at
from tf_scheduler.core.recovery.replacement import replace_launch
from tf_scheduler.core.state.reducer import apply
from tf_scheduler.model.effects import (
    LaunchRetired,
    RecoveryDecided,
    ResultDecided,
    StatusStored,
    TaskLaunched,
    TaskPaused,
)
from tf_scheduler.model.plan import PhaseSpec, PlanControl, PlanSpec, PlanStrategy
from tf_scheduler.model.state import Result, SchedulerState

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

    assert (False, True) == (is_teardown_due(apply(ENDED, *ends[1:])), is_teardown_due(apply(ENDED, *ends)))


def test_sdk_plan_is_complete_after_state_is_erased() -> None:
    """DC/OS removes the app then."""
    ends = [StatusStored(a_status(record.id, TaskState.KILLED)) for record in RUNNING.stored.tasks.values()]
    finished = with_fields(apply(ENDED, *ends), finished=True)
    states = (ENDED, finished, with_fields(finished, is_erased=True))

    assert [Status.PENDING, Status.IN_PROGRESS, Status.COMPLETE] == [
        plan_messages.sdk_uninstall_plan(s).status for s in states
    ]


def message(state, task="worker-0", plan="deploy"):
    """The message of the step of the task."""
    return next(step.message for phase in displayed(state, plan).phases for step in phase.steps if step.task == task)


OUTDATED = apply(
    RUNNING,
    TaskLaunched(replace(RUNNING.stored.tasks["worker-0"], config="old")),
    StatusStored(a_status("worker-0__1")),
)
LOST = apply(
    RUNNING,
    StatusStored(a_status("worker-0__1", TaskState.FAILED, message="exit code 1")),
    RecoveryDecided(replace_launch(RUNNING, RUNNING.stored.tasks["worker-0"], "it has failed", 9.0)),
)


@pytest.mark.parametrize(
    ("state", "plan", "expected"),
    [
        (SchedulerState(SPEC), "deploy", ""),
        (RUNNING, "deploy", "running on a"),
        (OUTDATED, "deploy", "running on a; its launch is outdated"),
        (apply(OUTDATED, LaunchRetired("worker-0__1", "deploy")), "deploy", "running on a; will be launched again"),
        (with_fields(RUNNING, statuses={}), "deploy", "launching on a"),
        (LOST, "recovery", "failed on a: exit code 1; it has failed"),
        (with_fields(LOST, delayed_tasks={}), "recovery", "failed on a: exit code 1; will be launched again"),
        (with_fields(SchedulerState(SPEC), reasons={"worker-0": ("no GPU", "no port")}), "deploy", "no GPU; no port"),
    ],
    ids=["unlaunched", "running", "outdated", "stopping", "launching", "delayed", "lost", "pending"],
)
def test_incomplete_step_has_reason(state, plan: str, expected: str) -> None:
    assert expected == message(state, plan=plan)


@pytest.mark.parametrize(
    ("interrupted", "words"),
    [
        (frozenset(), "the plan will launch it again in the order of its steps"),
        (frozenset({()}), "waits for an operator to start or continue the plan"),
    ],
)
def test_step_of_user_plan_describes_its_action(interrupted, words: str) -> None:
    plan = PlanSpec("some", PlanStrategy.SERIAL, phases=(PhaseSpec("first", "worker"),))
    state = a_running_state(a_spec(plans={"some": plan}))
    control = PlanControl(interrupted=interrupted, restarted={(): 7})

    assert f"running on a; {words}" == message(with_fields(state, controls={"some": control}), "worker-1", "some")


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, "nothing is left behind"),
        ({"finished": True, "removed": True}, "nothing is left behind"),
        ({"left_behind": ("task x", "task y")}, "left behind: task x; task y"),
        (
            {"finished": True, "framework_id": None},
            "nothing is left behind as far as known: no state is stored, and Mesos did not name a framework "
            "to end in time",
        ),
        (
            {"finished": True, "refused": "it was refused"},
            "left behind: framework f-1 (it was refused), which remains until service.failover_timeout expires or an "
            "operator tears it down",
        ),
    ],
    ids=["running", "removed", "left", "unregistered", "refused"],
)
def test_leftovers_are_named(fields, expected: str) -> None:
    assert expected == plan_messages.leftovers_message(with_fields(ENDED, **{"framework_id": "f-1", **fields}))


def test_interrupted_uninstall_does_not_tear_down() -> None:
    ends = [StatusStored(a_status(record.id, TaskState.KILLED)) for record in RUNNING.stored.tasks.values()]
    control = {"uninstall": PlanControl(interrupted=frozenset({()}))}

    assert not is_teardown_due(with_fields(apply(ENDED, *ends), controls=control))


def test_last_sdk_phase_follows_the_framework() -> None:
    ends = [StatusStored(a_status(record.id, TaskState.KILLED)) for record in RUNNING.stored.tasks.values()]
    finished = with_fields(apply(ENDED, *ends), finished=True, removed=True, framework_id="f-1")
    states = (ENDED, finished, with_fields(finished, is_erased=True))

    (before, during, after) = (plan_messages.sdk_uninstall_plan(state).phases[-1].steps[0] for state in states)

    assert [Status.PENDING, Status.STARTING, Status.COMPLETE] == [before.status, during.status, after.status]
    assert ["waits for the end of the framework", "nothing is left behind"] == [before.message, during.message]


def test_uninstall_steps_name_launch_and_wait_for_tasks() -> None:
    steps = [step for phase in displayed(ENDED, "uninstall").phases for step in phase.steps]

    assert "worker-0__1: running on a" in [step.message for step in steps]
    assert "waits for the end of all tasks" == steps[-1].message


def test_canary_phases_wait_only_before_they_begin() -> None:
    canary = a_spec(plans={"deploy": PlanSpec("deploy", PlanStrategy.CANARY)})
    launched = {"ps-0": a_running_state(canary).stored.tasks["ps-0"]}

    plan = displayed(with_fields(SchedulerState(canary), tasks=launched))

    assert [Status.PENDING, Status.WAITING] == [status_at(plan, (phase,)) for phase in ("ps", "worker")]


def test_canary_phase_that_has_begun_is_not_waiting() -> None:
    """The steps of the phases are no canaries."""
    phases = (PhaseSpec("ps", "ps"), PhaseSpec("worker", "worker"))
    canary = a_spec(chief=0, plans={"deploy": PlanSpec("deploy", PlanStrategy.CANARY, phases=phases)})
    launched = (TaskLaunched(a_record(canary, "ps-0")), StatusStored(a_status("ps-0__1", TaskState.STARTING)))

    plan = displayed(apply(SchedulerState(canary), *launched))

    assert [Status.STARTING, Status.WAITING] == [phase.status for phase in plan.phases]


def test_lost_task_that_another_plan_relaunches_names_no_earlier_loss() -> None:
    """Its step is not delayed."""
    ready = with_fields(LOST, delayed_tasks={})

    assert "it has failed" not in message(ready, plan="recovery")


def test_framework_that_is_unknown_before_the_end_is_not_left_behind() -> None:
    assert plan_messages.NO_LEFTOVERS == plan_messages.leftovers_message(with_fields(RUNNING, framework_id=None))
