"""Services of many tasks, for measurements."""

from __future__ import annotations

from dataclasses import replace

from builders import a_spec, with_fields
from tf_executor.contract.states import TaskState
from tf_scheduler.core.state import spec_index
from tf_scheduler.core.state.reducer import apply
from tf_scheduler.model.effects import StatusStored, TaskLaunched
from tf_scheduler.model.ids import AgentId, FrameworkId, TaskId
from tf_scheduler.model.plan import PlanSpec, PlanStrategy
from tf_scheduler.model.spec import ServiceSpec
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.model.task import TaskRecord, TaskStatus


def a_service(count: int, strategy: PlanStrategy = PlanStrategy.PARALLEL) -> ServiceSpec:
    spec = a_spec(workers=count - 2, ps=1, chief=1)
    return replace(spec, plans={"deploy": PlanSpec("deploy", strategy)})


def launched(spec: ServiceSpec, state: TaskState | None) -> SchedulerState:
    """Return a state with all tasks launched and in `state`; None: without statuses."""
    records = [_record(spec, task.name, task.job.kind, task.index) for task in spec.tasks()]
    changes = [TaskLaunched(record) for record in records]
    said = [] if state is None else [StatusStored(status_of(record, state, "before")) for record in records]
    fresh = with_fields(SchedulerState(spec), framework_id=FrameworkId("fw-1"), connected=True, suppressed=True)
    return apply(fresh, *changes, *said)


def _record(spec, name, kind, index) -> TaskRecord:
    launch = TaskId(f"{name}__id")
    config = spec_index.config_digest(spec, name)
    return TaskRecord(
        name, launch, kind, index, AgentId("a"), "agent-1", f"10.0.0.1:{index}", 1, (), 1.0, config=config
    )


def status_of(record: TaskRecord, state: TaskState, uuid: str) -> TaskStatus:
    return TaskStatus(record.id, state, record.agent_id, uuid=uuid)
