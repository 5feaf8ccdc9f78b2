"""The bodies of the answers, as types: mypy checks the views against them, and the OpenAPI document is made of them.

Ours are told in docs/api.md; those of the SDK are in shapes_sdk.
"""

from __future__ import annotations

from typing import Any, TypedDict

from tf_scheduler.model.plan import Override, Status
from tf_scheduler.model.state import Verdict


class ErrorDetail(TypedDict):
    status: int
    code: str
    message: str


class ErrorBody(TypedDict):
    error: ErrorDetail


class ResourcesBody(TypedDict):
    cpus: float
    mem: float
    disk: float
    gpus: float


class TaskBody(TypedDict):
    name: str
    job: str
    index: int
    state: str | None
    status: str
    healthy: bool | None
    reason: str
    message: str
    exit_code: int | None
    signal: int | None
    id: str | None
    agent_id: str | None
    hostname: str | None
    zone: str
    region: str
    address: str | None
    generation: int | None
    launched_at: float | None
    plan: str | None
    resources: ResourcesBody
    pending: list[str]


class TasksBody(TypedDict):
    tasks: list[TaskBody]


class LogBody(TypedDict):
    task: str
    id: str
    file: str
    offset: int
    data: str
    size: int
    next: int


class LogEventBody(TypedDict):
    """Event `log`: what has come."""

    offset: int
    data: str
    size: int
    next: int


class LaunchedBody(TypedDict):
    """Event `launch`: what follows is of this launch."""

    id: str


class EndBody(TypedDict):
    """Event `end`: nothing follows."""

    state: str | None


class ClusterTaskBody(TypedDict):
    name: str
    job: str
    index: int
    address: str
    hostname: str
    generation: int
    tf_config: dict[str, Any]


class ClusterBody(TypedDict):
    generation: int
    strategy: str
    cluster: dict[str, list[str]]
    tasks: list[ClusterTaskBody]


class PointBody(TypedDict):
    time: float
    step: int | None
    loss: float | None
    steps_per_second: float | None


class ProgressBody(TypedDict):
    name: str
    job: str
    index: int
    status: str
    time: float | None
    step: int | None
    total: int | None
    loss: float | None
    examples: int | None
    steps_per_second: float | None
    examples_per_second: float | None
    seconds_left: float | None
    points: list[PointBody]


class JobProgressBody(TypedDict):
    tasks: int
    reporting: int
    step: int | None
    total: int | None
    steps_per_second: float | None
    examples_per_second: float | None


class TrainingBody(TypedDict):
    leader: str | None
    tasks: list[ProgressBody]
    jobs: dict[str, JobProgressBody]


class BoardBody(TypedDict):
    running: bool
    reason: str
    task: str | None
    address: str | None
    path: str | None


class ResultBody(TypedDict):
    over: bool
    verdict: Verdict | None
    reason: str | None
    decided_at: float | None


class PendingTaskBody(TypedDict):
    name: str
    plan: str
    phase: str
    step: str
    status: Status | Override
    reasons: list[str]


class PendingBody(TypedDict):
    evaluated_at: float | None
    offers: int
    agents: int
    tasks: list[PendingTaskBody]


class EventBody(TypedDict):
    number: int
    time: float
    kind: str
    task: str | None
    message: str
    warning: bool


class EventsBody(TypedDict):
    events: list[EventBody]
    first: int
    last: int
    next: int
    journal: str
