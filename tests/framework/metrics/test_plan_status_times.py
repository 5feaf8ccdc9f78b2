"""Time that plans spend in each status."""

from builders import a_spec
from metered_world import a_life
from tf_executor.contract.states import Status
from tf_scheduler.metrics.prometheus import PlanStatusTimes
from tf_scheduler.model.plan import Plan
from tf_scheduler.model.state import SchedulerState


class Service:
    """A plan whose status is set by hand, and two clocks."""

    def __init__(self) -> None:
        self.now, self.used, self.price, self.looks = 0.0, 0.0, 0.0, 0
        self.become(Status.PENDING)
        self.watch = PlanStatusTimes(lambda: self.state, self.plans, clock=lambda: self.now, cost=lambda: self.used)

    def become(self, status) -> None:
        self.state, self.status = SchedulerState(a_spec()), status

    def plans(self):
        self.looks += 1
        self.used += self.price
        return {"deploy": Plan("deploy", self.status, ())}


def test_time_counts_for_previous_status() -> None:
    """So the sum is the time since the start."""
    service = Service()
    service.watch.current()
    service.now = 3.0
    service.become(Status.COMPLETE)
    assert {"deploy": Status.COMPLETE} == service.watch.current()
    service.now = 10.0
    service.watch.current()

    assert {("deploy", Status.PENDING): 3.0, ("deploy", Status.COMPLETE): 7.0} == service.watch.seconds()


def test_unchanged_state_is_not_evaluated_again() -> None:
    service = Service()
    for second in range(5):
        service.now = float(second)
        service.watch.current()

    assert 1 == service.looks
    assert {("deploy", Status.PENDING): 4.0} == service.watch.seconds()


def test_expensive_evaluation_is_rare() -> None:
    """An evaluation of 0.2 s, at most every 10 s."""
    service = Service()
    service.price = 0.2
    for second in range(21):
        service.now = float(second)
        service.become(Status.STARTED)
        service.watch.current()

    assert 3 == service.looks


def test_times_of_simulated_service() -> None:
    world = a_life()
    list(world.samples())

    plans = {labels["plan"] for name, labels, _ in world.samples() if name == "tensorflow_plan_status_seconds_total"}
    assert {"deploy", "recovery"} <= plans
