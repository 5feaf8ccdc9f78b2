"""Cost of a status update and of a plan's status with ten thousand tasks.

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
from tf_scheduler.core.scheduler import handle, next_deadline
from tf_scheduler.core.state import spec_index
from tf_scheduler.core.state.reducer import apply
from tf_scheduler.model.effects import Acknowledge, PlanControlled, StatusStored, TaskLaunched
from tf_scheduler.model.events import StatusUpdated
from tf_scheduler.model.ids import AgentId, FrameworkId, TaskId
from tf_scheduler.model.plan import PlanControl, PlanSpec, PlanStrategy
from tf_scheduler.model.spec import ServiceSpec
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.model.task import TaskRecord, TaskStatus

COUNTS = (100, 1_000, 10_000)
ROUNDS = 5
#: Number of successive updates, of tasks spread over the whole service.
UPDATES = 200


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


def updates(state: SchedulerState, to: TaskState) -> list[StatusUpdated]:
    records = list(state.stored.tasks.values())
    chosen = records[:: max(1, len(records) // UPDATES)][:UPDATES]
    return [StatusUpdated(_status(record, to, f"uuid-{number}")) for number, record in enumerate(chosen)]


def play(state: SchedulerState, events: list[StatusUpdated]) -> SchedulerState:
    view = None
    for event in events:
        decision = handle(state, event, 2.0, lambda: "id", view)
        assert any(isinstance(call, Acknowledge) for call in decision.calls)
        state, view = decision.state, decision.view
        next_deadline(state)
    return state


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize(
    ("before", "to"), [(None, TaskState.RUNNING), (TaskState.STARTING, TaskState.RUNNING), (TaskState.RUNNING,) * 2]
)
def test_a_status_update(count, before, to) -> None:
    """Measure the decision and the next deadline, as in the runner."""
    state = launched(a_service(count), before)
    events = updates(state, to)

    after = play(state, events)

    assert {to} == {after.stored.statuses[event.status.id].state for event in events}
    seconds = best(lambda: play(state, events), 3) / len(events)
    print_numbers(f"update {'nothing' if before is None else before.label} -> {to.label}", count, seconds)


@pytest.mark.parametrize("count", COUNTS)
def test_a_status_update_while_the_next_step_waits(count) -> None:
    """The last task of a serial plan waits, so every update is checked for its turn."""
    spec = a_service(count, PlanStrategy.SERIAL)
    whole = launched(spec, TaskState.RUNNING)
    tasks = {name: record for name, record in whole.stored.tasks.items() if name != "chief-0"}
    statuses = {record.id: whole.stored.statuses[record.id] for record in tasks.values()}
    state = with_fields(whole, tasks=tasks, statuses=statuses, state_counts={TaskState.RUNNING: len(tasks)})
    events = updates(state, TaskState.RUNNING)

    after = play(state, events)

    assert ["chief-0"] == [task.name for gang in scheduling.view_of(after).gangs for task in gang.tasks]
    seconds = best(lambda: play(state, events), 3) / len(events)
    print_numbers("update while a serial plan waits for offers", count, seconds)


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


@pytest.mark.parametrize("count", COUNTS)
def test_the_end_of_a_job(count) -> None:
    """Updates of killed tasks, one after the other."""
    from tf_scheduler.model.events import StopRequested

    stopped = handle(launched(a_service(count), TaskState.RUNNING), StopRequested("enough"), 1.5, lambda: "id").state
    events = updates(stopped, TaskState.KILLED)

    after = play(stopped, events)

    assert count - len(events) == after.live_count()
    print_numbers("update of a killed task, at the end", count, best(lambda: play(stopped, events), 3) / len(events))


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
