"""API of a state, and a loop that handles commands immediately."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from starlette.types import ASGIApp

from builders import a_spec, a_status, with_fields
from tf_executor.contract.states import TaskState
from tf_scheduler.api.app import create_app
from tf_scheduler.api.http.auth import Policy
from tf_scheduler.api.http.backend import Backend
from tf_scheduler.api.views.base import Snapshot
from tf_scheduler.core.scheduler import handle
from tf_scheduler.core.state.spec_index import config_digest
from tf_scheduler.model.events import Event
from tf_scheduler.model.ids import AgentId, TaskId
from tf_scheduler.model.spec import ServiceSpec
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.model.task import TaskRecord


def a_record(spec: ServiceSpec, name: str, **options: Any) -> TaskRecord:
    """Return the first launch of a task of the spec, on agent-1."""
    task = next(task for task in spec.tasks() if task.name == name)
    place = AgentId("agent-1-id"), "agent-1", f"10.0.0.1:{31000 + task.index}"
    record = TaskRecord(task.name, TaskId(f"{name}__1"), task.job.kind, task.index, *place, 1, (), 5.0)
    return replace(record, config=config_digest(spec, task.name), group=task.job.group, **options)


def registered(spec: ServiceSpec | None = None, **fields: Any) -> SchedulerState:
    """Return the state of a service that is registered with Mesos."""
    return with_fields(SchedulerState(spec or a_spec()), **{"framework_id": "framework-1", **fields})


def launched(*states: TaskState | None, **fields: Any) -> SchedulerState:
    """Return a service of one ps and a chief, the first ones launched with `states`."""
    spec = a_spec(workers=0)
    records = [a_record(spec, task.name) for task, _ in zip(spec.tasks(), states, strict=False)]
    statuses = {record.id: a_status(record.id, state) for record, state in zip(records, states, strict=True) if state}
    return registered(spec, **{"tasks": {record.name: record for record in records}, "statuses": statuses, **fields})


def an_app(state: SchedulerState | None = None, **policy: Any) -> ASGIApp:
    """Return the API of a state, by default without tasks; `policy`: Policy fields."""
    current = state or registered()
    return create_app(lambda: Snapshot(current), Policy(**policy))


class ServiceLoop:
    """Service state whose backend handles events immediately; `parts` go to Backend."""

    def __init__(self, state: SchedulerState, **parts: Any) -> None:
        self.state = state
        self.events: list[Event | None] = []
        self.backend = Backend(lambda: Snapshot(self.state), self.put, **parts)
        self.app = create_app(self.backend)

    def put(self, decode: Callable[[], Event | None]) -> None:
        event = decode()
        self.events.append(event)
        if event is not None:
            decision = handle(self.state, event, 9.0, lambda: "id")
            self.state = decision.state
            self.backend.observe(event, decision)
