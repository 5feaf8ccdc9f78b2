"""Open tasks of a roll-out, and the control of its plan."""

from dataclasses import replace

import pytest

from builders import a_record, a_running_state, a_spec, a_status, with_fields
from tf_executor.contract.states import TaskState
from tf_scheduler.core.plans.rollout import (
    active_rollout,
    completion_target,
    current_control,
    latest_launch_number,
    steps_to_relaunch,
    was_completed,
)
from tf_scheduler.core.plans.scheduling import view_of
from tf_scheduler.core.state.reducer import apply
from tf_scheduler.core.state.spec_index import index_of
from tf_scheduler.model.effects import StatusStored, TaskLaunched
from tf_scheduler.model.ids import TaskId
from tf_scheduler.model.plan import PlanControl
from tf_scheduler.model.state import SchedulerState

SPEC = a_spec()
DEPLOY = index_of(SPEC).launch_plans[0]


def test_all_tasks_are_open_before_first_launch() -> None:
    assert {task.name for task in SPEC.tasks()} == view_of(SchedulerState(SPEC)).open_tasks


def test_running_tasks_with_current_options_are_not_open() -> None:
    assert set() == view_of(a_running_state(SPEC)).open_tasks


def test_outdated_parameter_server_opens_chief() -> None:
    """The chief restarts with it (core/state/restart_units.py)."""
    state = apply(a_running_state(SPEC), TaskLaunched(replace(a_record(SPEC, "ps-0", "2"), config="old")))

    assert {"ps-0", "chief-0"} == view_of(state).open_tasks


def test_finished_task_is_not_open_although_outdated() -> None:
    state = apply(a_running_state(SPEC), TaskLaunched(replace(a_record(SPEC, "worker-0", "2"), config="old")))
    state = apply(state, StatusStored(a_status("worker-0__2", TaskState.FINISHED)))

    assert set() == view_of(state).open_tasks


def test_new_address_opens_chief() -> None:
    """Only the chief needs every address."""
    state = apply(a_running_state(SPEC), TaskLaunched(replace(a_record(SPEC, "worker-0", "2"), generation=2)))

    assert {"chief-0"} == view_of(state).open_tasks


def test_forced_nodes_are_void_for_other_options() -> None:
    old = PlanControl(forced=frozenset({()}), released=frozenset({("worker", "*")}), target="old")
    current = replace(old, target=index_of(SPEC).target)

    assert (frozenset(), frozenset()) == (
        current_control(SPEC, {"deploy": old}, DEPLOY).forced,
        current_control(SPEC, {"deploy": old}, DEPLOY).released,
    )
    assert current == current_control(SPEC, {"deploy": current}, DEPLOY)


def test_update_is_active_after_first_deployment() -> None:
    completed = PlanControl(completed=completion_target(SPEC, DEPLOY))

    assert ("deploy", "update") == (active_rollout({}), active_rollout({"deploy": completed}))
    assert (False, True) == tuple(was_completed(SPEC, DEPLOY, control) for control in (PlanControl(), completed))


def test_launch_is_newer_than_every_ordered_restart() -> None:
    """In any plan; otherwise a restarted task would count as the old one."""
    controls = {"deploy": PlanControl(restarted={("worker",): 7, ("ps",): 2}), "update": PlanControl()}

    assert 7 == latest_launch_number({}, controls)
    assert 0 == latest_launch_number({}, {})


@pytest.mark.parametrize(("restarted", "expected"), [(4, set()), (5, {"worker-0"}), (6, {"worker-0"})])
def test_restart_opens_launches_up_to_its_number(restarted: int, expected) -> None:
    """The launch that ran when the operator restarted the step has that number."""
    state = apply(a_running_state(SPEC), TaskLaunched(a_record(SPEC, "worker-0", serial=5)))
    control = PlanControl(restarted={("worker", "worker-0"): restarted})

    assert expected == view_of(with_fields(state, controls={"deploy": control})).open_tasks


@pytest.mark.parametrize(("restarted", "expected"), [(4, set()), (5, {"worker-0"})])
def test_plan_of_the_user_relaunches_up_to_its_restart(restarted: int, expected) -> None:
    """And launches of other plans, but none twice."""
    tasks = {name: record for name, record in a_running_state(SPEC).stored.tasks.items() if name != "worker-1"}
    tasks["worker-0"] = a_record(SPEC, "worker-0", serial=5)
    control = PlanControl(restarted={(): restarted})
    own = PlanControl(restarted={(): 0})

    opened, other = (steps_to_relaunch(DEPLOY, item, tasks, {}) for item in (control, own))

    assert expected == opened & {"worker-0"}
    assert {"worker-1"} == set(other)
    tasks["worker-0"] = replace(tasks["worker-0"], plan="other")
    assert {"worker-0", "worker-1"} == set(steps_to_relaunch(DEPLOY, own, tasks, {}))
    assert {"ps-0", "worker-0", "worker-1"} == set(steps_to_relaunch(DEPLOY, own, tasks, {TaskId("ps-0__1"): "deploy"}))


@pytest.mark.parametrize(
    ("plan", "completed", "expected"),
    [(0, "older", True), (1, "older", False), (0, "", False), (1, index_of(SPEC).target, True)],
)
def test_deploy_is_complete_forever_and_update_for_its_options(plan: int, completed: str, expected: bool) -> None:
    control = PlanControl(completed=completed)

    assert expected is was_completed(SPEC, index_of(SPEC).launch_plans[plan], control)
