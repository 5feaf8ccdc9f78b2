"""Cost of a plan's status with ten thousand tasks.

Run with `-s` to see the numbers. Each benchmark asserts first that what it times is right.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from builders import a_spec, with_fields
from tf_executor.contract.states import Status, TaskState
from tf_scheduler.api.views import plan_messages
from tf_scheduler.core.plans import scheduling
from tf_scheduler.core.state import spec_index
from tf_scheduler.core.state.reducer import apply
from tf_scheduler.model.effects import PlanControlled, StatusStored, TaskLaunched
from tf_scheduler.model.ids import AgentId, FrameworkId, TaskId
from tf_scheduler.model.plan import PlanControl, PlanSpec, PlanStrategy
from tf_scheduler.model.spec import ServiceSpec
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.model.task import TaskRecord, TaskStatus

COUNTS = (100, 1_000, 10_000)
ROUNDS = 5


def a_service(count: int, strategy: PlanStrategy = PlanStrategy.PARALLEL) -> ServiceSpec:
    spec = a_spec(workers=count - 2, ps=1, chief=1)
    return replace(spec, plans={"deploy": PlanSpec("deploy", strategy)})


def launched(spec: ServiceSpec, state: TaskState | None) -> SchedulerState:
    """Return a state with all tasks launched and in `state`; None: without statuses."""
    records = [_record(spec, task.name, task.job.kind, task.index) for task in spec.tasks()]
    changes = [TaskLaunched(record) for record in records]
    said = [] if state is None else [StatusStored(_status(record, state, "before")) for record in records]
    fresh = with_fields(SchedulerState(spec), framework_id=FrameworkId("fw-1"), connected=True, suppressed=True)
    return apply(fresh, *changes, *said)


def _record(spec, name, kind, index) -> TaskRecord:
    launch = TaskId(f"{name}__id")
    config = spec_index.config_digest(spec, name)
    return TaskRecord(
        name, launch, kind, index, AgentId("a"), "agent-1", f"10.0.0.1:{index}", 1, (), 1.0, config=config
    )


def _status(record: TaskRecord, state: TaskState, uuid: str) -> TaskStatus:
    return TaskStatus(record.id, state, record.agent_id, uuid=uuid)


def best(action: Callable[[], object], rounds: int = ROUNDS) -> float:
    """Return the minimal seconds of a few rounds, to exclude other load."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return min(times)


def print_numbers(what: str, count: int, seconds: float) -> None:
    print(f"{what:45} {count:6} tasks {seconds * 1000:9.3f} ms")


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("said", [None, TaskState.RUNNING])
def test_the_status_of_a_plan(count, said) -> None:
    """Compute every step with its status and message."""
    state = launched(a_service(count), said)
    expected = Status.STARTING if said is None else Status.COMPLETE

    view = scheduling.view_of(state)
    plan = plan_messages.find_plan(state, "deploy", view)

    assert (expected, count) == (plan.status, len([step for phase in plan.phases for step in phase.steps]))
    assert {expected} == {step.status for phase in plan.phases for step in phase.steps}
    print_numbers(
        f"status of a plan, {expected.value}", count, best(lambda: plan_messages.find_plan(state, "deploy", view))
    )


@pytest.mark.parametrize("count", COUNTS)
def test_the_status_of_a_pending_plan(count) -> None:
    """No task is launched."""
    state = with_fields(SchedulerState(a_service(count)), connected=True)

    view = scheduling.view_of(state)
    plan = plan_messages.find_plan(state, "deploy", view)

    assert (Status.PENDING, count) == (plan.status, len([step for phase in plan.phases for step in phase.steps]))
    print_numbers("status of a plan, PENDING", count, best(lambda: plan_messages.find_plan(state, "deploy", view)))


def test_a_forced_plan_is_shown_as_fast() -> None:
    """Forced steps cost no additional time."""
    state = launched(a_service(10_000), None)
    forced = frozenset(("worker", f"worker-{index}") for index in range(5_000))
    control = PlanControl(forced=forced, target=spec_index.index_of(state.spec).target)
    state = apply(state, PlanControlled("deploy", control))

    view = scheduling.view_of(state)
    plan = plan_messages.find_plan(state, "deploy", view)

    assert 5_000 == sum(step.status is Status.COMPLETE for phase in plan.phases for step in phase.steps)
    print_numbers(
        "status of a plan, half of it forced", 10_000, best(lambda: plan_messages.find_plan(state, "deploy", view))
    )
