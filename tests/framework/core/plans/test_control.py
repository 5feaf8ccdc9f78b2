"""What the commands of operators mean later."""

from builders import a_spec
from tf_scheduler.core.plans.control import last_serial
from tf_scheduler.core.plans.outline import outline
from tf_scheduler.model.plan import PlanControl


def test_a_launch_is_newer_than_every_one_that_was_ordered_anew():
    """In whatever plan that was: else a restarted task would count as the old one."""
    controls = {"deploy": PlanControl(restarted={("worker",): 7, ("ps",): 2}), "update": PlanControl()}

    assert 7 == last_serial({}, controls)
    assert 0 == last_serial({}, {})


def test_the_digest_of_options_does_not_depend_on_how_they_are_written():
    """A scheduler that starts again must not take its own tasks for outdated."""
    assert outline(a_spec()).target == outline(a_spec()).target
    assert outline(a_spec(workers=2)).target != outline(a_spec(workers=3)).target
