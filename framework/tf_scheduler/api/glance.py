"""What `GET /v1/tf/overview` tells, as an object: for who asks, without what it takes to answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class StepRow:
    """One step of the plan that works."""

    phase: str
    name: str
    status: str
    message: str
    #: The task that it is about, if it is about one.
    task: str | None


@dataclass(frozen=True, slots=True)
class TaskRow:
    """One launch, the last of its task."""

    name: str
    id: str
    executor_id: str
    agent_id: str
    hostname: str
    address: str
    generation: int
    #: As in sentences: "running"; "not heard of" before the first status.
    state: str
    message: str
    #: It may still be running.
    live: bool
    #: How far its program says it is; empty when it does not say.
    progress: str


@dataclass(frozen=True, slots=True)
class AgentRow:
    """An agent on which no task of the service is, as it offered last."""

    hostname: str
    region: str
    zone: str
    cpus: float
    #: MB
    mem: float
    gpus: float
    #: Seconds since the epoch.
    offered_at: float


@dataclass(frozen=True, slots=True)
class Overview:
    """Everything is a text, a number, or a list of such."""

    service: str
    checkpoint_dir: str
    framework_id: str | None
    #: The plan that works, and its status: deploy, or update when that has something to do.
    plan: str
    status: str
    steps: tuple[StepRow, ...]
    tasks: tuple[TaskRow, ...]
    #: The other agents, by their names: as many as can be shown, and how many more are known.
    agents: tuple[AgentRow, ...]
    more_agents: int
    #: Task that was never placed -> why, as far as it was tried.
    pending: Mapping[str, tuple[str, ...]]
    #: Whether tasks that shall run were never launched.
    unplaced: bool
    #: The task whose log tells how training goes; None before it is launched.
    leader: str | None
    #: succeeded, failed or stopped, with the reason; empty while it goes on.
    verdict: str
    reason: str
    #: The job has ended, and tasks are left to run for a while, or the service stays without tasks (`finish`).
    kept: bool
    #: Mesos' reason for not taking the service; empty when it has none.
    refused: str
    #: Nothing is left to do, and nothing of the service is left in Mesos.
    over: bool

    def task(self, name: str | None) -> TaskRow | None:
        """None when it was never launched."""
        return next((task for task in self.tasks if task.name == name), None)


def to_json(shown: Overview) -> dict[str, Any]:
    """As the API answers it."""
    return asdict(shown)


def from_json(document: Mapping[str, Any]) -> Overview:
    """Of the API's answer; fields that a newer scheduler adds are no reason to fail."""
    fields = {name: document[name] for name in Overview.__dataclass_fields__}
    fields["steps"] = tuple(StepRow(**_known(StepRow, row)) for row in fields["steps"])
    fields["tasks"] = tuple(TaskRow(**_known(TaskRow, row)) for row in fields["tasks"])
    fields["agents"] = tuple(AgentRow(**_known(AgentRow, row)) for row in fields["agents"])
    fields["pending"] = {name: tuple(why) for name, why in fields["pending"].items()}
    return Overview(**fields)


def _known(kind: type[StepRow] | type[TaskRow] | type[AgentRow], row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in kind.__dataclass_fields__}
