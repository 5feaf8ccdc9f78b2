"""Stored commands and options, and their effect on plans."""

from dataclasses import replace

from builders import a_spec
from tf_scheduler.core.plans.rollout import latest_launch_number
from tf_scheduler.core.plans.view import find_plan
from tf_scheduler.core.state.spec_index import index_of
from tf_scheduler.model.plan import PhaseSpec, PlanControl, PlanSpec
from tf_scheduler.model.state import SchedulerState


def test_launch_is_newer_than_every_ordered_restart():
    """In whichever plan; otherwise a restarted task would count as the old one."""
    controls = {"deploy": PlanControl(restarted={("worker",): 7, ("ps",): 2}), "update": PlanControl()}

    assert 7 == latest_launch_number({}, controls)
    assert 0 == latest_launch_number({}, {})


def test_digest_of_options_ignores_their_notation():
    """A restarted scheduler must not take its own tasks for outdated."""
    assert index_of(a_spec()).target == index_of(a_spec()).target
    assert index_of(a_spec(workers=2)).target != index_of(a_spec(workers=3)).target


def test_plan_omits_tasks_that_do_not_exist():
    """The plan was written for a larger job."""
    plan = PlanSpec("some", phases=(PhaseSpec("first", "worker", indexes=(5, 1)),))

    plan_found = find_plan(SchedulerState(replace(a_spec(workers=2), plans={"some": plan})), "some")

    assert [["worker-1"]] == [[step.name for step in phase.steps] for phase in plan_found.phases]
