"""Values for tests: every field has a default, a test names only what it is about."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from kit.payloads import nested
from tf_executor.contract.reports import TaskEnd
from tf_executor.contract.states import TaskState
from tf_executor.contract.strategies import Strategy
from tf_scheduler.core.state.reducer import apply
from tf_scheduler.core.state.spec_index import index_of
from tf_scheduler.model.effects import StatusStored, TaskLaunched
from tf_scheduler.model.ids import AgentId, OfferId, TaskId, TaskName
from tf_scheduler.model.offer import ExecutorLogin, Offer
from tf_scheduler.model.resources import Needs, Resource, thousandths
from tf_scheduler.model.spec import ExecutorSpec, JobKind, JobSpec, ServiceSpec
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.model.task import TaskRecord, TaskStatus

#: Of an agent that authenticates executors.
LOGIN = ExecutorLogin(is_required=True)
EXECUTOR = Needs(cpus=thousandths(0.1), mem=thousandths(64))


def scalar(name: str, value: float, shape: str = "{}") -> Resource:
    return Resource(name, thousandths(value), shape)


def ports(*ranges: tuple[int, int], shape: str = "{}") -> Resource:
    return Resource("ports", tuple(ranges), shape)


def an_offer(
    name: str = "offer-1",
    agent: str = "agent-1",
    cpus: float = 4,
    mem: float = 8192,
    disk: float = 10_000,
    gpus: float = 0,
    port_ranges: tuple[tuple[int, int], ...] = ((31000, 31009),),
    shape: str = "{}",
    **options: Any,
) -> Offer:
    values = {"cpus": cpus, "mem": mem, "disk": disk, "gpus": gpus}
    resources = tuple(scalar(key, value, shape) for key, value in values.items() if value)
    return Offer(
        id=OfferId(name),
        agent_id=AgentId(f"{agent}-id"),
        hostname=agent,
        address="10.0.0.1",
        resources=(*resources, *([ports(*port_ranges, shape=shape)] if port_ranges else [])),
        **{"login": LOGIN, **options},
    )


def needs(cpus: float = 0.5, mem: float = 1024, disk: float = 0, gpus: int = 0, ports: int = 1) -> Needs:
    return Needs(thousandths(cpus), thousandths(mem), thousandths(disk), thousandths(gpus), ports)


def a_job(kind: JobKind = JobKind.WORKER, count: int = 1, **options: Any) -> JobSpec:
    fields = {"kind": kind, "count": count, "needs": needs(), "command": "python train.py", **options}
    return JobSpec(**nested(fields))


def a_spec(workers: int = 2, ps: int = 1, chief: int = 1, **options: Any) -> ServiceSpec:
    counts = ((JobKind.PS, ps), (JobKind.WORKER, workers), (JobKind.CHIEF, chief))
    return ServiceSpec(
        **{
            "name": "digits",
            "user": "nobody",
            "role": "digits-role",
            "strategy": Strategy.PARAMETER_SERVER,
            "jobs": tuple(a_job(kind, count) for kind, count in counts if count),
            "executor": ExecutorSpec("file:///tmp/executor.pyz", needs=EXECUTOR),
            **options,
        }
    )


def declaring(spec: ServiceSpec, *names: str) -> ServiceSpec:
    """The spec whose jobs declare these variables, which plans then accept."""
    return replace(spec, jobs=tuple(replace(job, environment=dict.fromkeys(names, "")) for job in spec.jobs))


def a_status(task_id: str, state: TaskState = TaskState.RUNNING, uuid: str = "uuid", **options: Any) -> TaskStatus:
    """A status; options that are fields of `TaskEnd` describe the end of its program."""
    end = TaskEnd(**{each.name: options.pop(each.name) for each in fields(TaskEnd) if each.name in options})
    return TaskStatus(TaskId(task_id), state, end=end, uuid=uuid, **{"agent_id": AgentId("agent-1-id"), **options})


def with_fields(state: SchedulerState, **fields: Any) -> SchedulerState:
    """Return the state with these fields, each in its part, or in the offer round."""
    of_round = {key: fields.pop(key) for key in tuple(fields) if hasattr(state.session.round, key)}
    state = state.with_round(replace(state.session.round, **of_round)) if of_round else state
    for name in ("stored", "derived", "session", "process"):
        part = getattr(state, name)
        own = {key: fields.pop(key) for key in tuple(fields) if hasattr(part, key)}
        state = replace(state, **{name: replace(part, **own)})
    return replace(state, **fields)


def a_record(spec: ServiceSpec, name: str, launch: str = "1", **options: Any) -> TaskRecord:
    """A launch of a task of the spec on agent `a`, with current options."""
    index = index_of(spec)
    task = index.tasks[TaskName(name)]
    record = TaskRecord(
        task.name,
        TaskId(f"{name}__{launch}"),
        task.job.kind,
        task.index,
        AgentId("a"),
        "a",
        f"a:{task.index}",
        1,
        (),
        5.0,
    )
    return replace(record, **{"config": index.configs[task.name], "group": task.job.group, **options})


def a_running_state(spec: ServiceSpec, state: TaskState = TaskState.RUNNING) -> SchedulerState:
    """Every task is launched and has this state; Mesos is connected."""
    records = [a_record(spec, task.name) for task in spec.tasks()]
    statuses = (StatusStored(a_status(record.id, state)) for record in records)
    return apply(with_fields(SchedulerState(spec), connected=True), *map(TaskLaunched, records), *statuses)
