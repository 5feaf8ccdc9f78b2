"""Overview of the service, `GET /v1/tf/overview`: types and view."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import nsmallest
from typing import Any

from tf_scheduler.core.plans import view
from tf_scheduler.core.scheduler import describe_progress
from tf_scheduler.core.state import after_job
from tf_scheduler.core.state.pause import override_of
from tf_scheduler.model.ids import executor_of
from tf_scheduler.model.offer import AgentSnapshot
from tf_scheduler.model.plan import DEPLOY, UPDATE, Plan, Status
from tf_scheduler.model.resources import UNIT
from tf_scheduler.model.spec import JobKind
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.model.task import TaskRecord

from .base import Snapshot


@dataclass(frozen=True, slots=True)
class StepRow:
    """Step of the active plan."""

    phase: str
    name: str
    status: str
    message: str
    #: Task of the step, if any.
    task: str | None


@dataclass(frozen=True, slots=True)
class TaskRow:
    """Last launch of a task."""

    name: str
    id: str
    executor_id: str
    agent_id: str
    hostname: str
    address: str
    generation: int
    #: Task state in words, such as "running"; "not heard of" before the first status.
    state: str
    message: str
    #: Whether the task may be running.
    live: bool
    #: Progress reported by the program, in words; empty if none.
    progress: str


@dataclass(frozen=True, slots=True)
class AgentRow:
    """Last offered resources of an agent without tasks of the service."""

    hostname: str
    region: str
    zone: str
    cpus: float
    #: Megabytes.
    mem: float
    gpus: float
    #: Unix time.
    offered_at: float


@dataclass(frozen=True, slots=True)
class Overview:
    """Overview of a service; all values have JSON types."""

    service: str
    checkpoint_dir: str
    framework_id: str | None
    #: Active plan and its status: `update` while that plan is incomplete, else `deploy`.
    plan: str
    status: str
    steps: tuple[StepRow, ...]
    tasks: tuple[TaskRow, ...]
    #: Agents without tasks of the service, sorted by name, and the number of further such agents.
    agents: tuple[AgentRow, ...]
    more_agents: int
    #: Reasons of tasks that were never placed.
    pending: Mapping[str, tuple[str, ...]]
    #: Whether tasks of the spec have never been launched.
    unplaced: bool
    #: Task whose log shows the training; None before its launch.
    leader: str | None
    #: `succeeded`, `failed` or `stopped`, with the reason; empty while the job runs.
    verdict: str
    reason: str
    #: The job has ended, and tasks or the service are kept (option `finish`).
    kept: bool
    #: Reason why Mesos refused the framework; empty for an accepted framework.
    refused: str
    #: The job has ended and the framework is removed from Mesos.
    over: bool
    #: Exposed secrets, frozen tasks, and silence after progress, in words.
    notices: tuple[str, ...] = ()

    def task(self, name: str | None) -> TaskRow | None:
        """Return a task, or None if it was never launched."""
        return next((task for task in self.tasks if task.name == name), None)


def from_json(document: Mapping[str, Any]) -> Overview:
    """Parse an answer of the API; unknown fields of newer schedulers are ignored."""
    fields = {name: document[name] for name in Overview.__dataclass_fields__}
    kinds: dict[str, Any] = {"steps": StepRow, "tasks": TaskRow, "agents": AgentRow}
    for name, kind in kinds.items():
        fields[name] = tuple(kind(**{key: row[key] for key in kind.__dataclass_fields__}) for row in fields[name])
    fields["notices"] = tuple(fields["notices"])
    fields["pending"] = {name: tuple(why) for name, why in fields["pending"].items()}
    return Overview(**fields)


#: Maximum number of agents without tasks in the answer.
_MAX_AGENTS = 50
#: The chief, else worker 0.
_LEADERS = (f"{JobKind.CHIEF.value}-0", f"{JobKind.WORKER.value}-0")


def overview(snapshot: Snapshot) -> Overview:
    """Return the overview of a snapshot."""
    state = snapshot.state
    plan, others, result, tasks = _active_plan(state), _unused_agents(state), state.stored.result, state.stored.tasks
    return Overview(
        service=state.spec.name,
        checkpoint_dir=state.spec.checkpoint_dir,
        framework_id=state.stored.framework_id,
        plan=plan.name,
        status=plan.status.value,
        steps=tuple(
            StepRow(phase.name, step.name, step.display_status.value, step.message, step.task)
            for phase in plan.phases
            for step in phase.steps
        ),
        tasks=tuple(_task(state, record) for record in tasks.values()),
        agents=tuple(map(_agent, nsmallest(_MAX_AGENTS, others, key=lambda agent: agent.hostname))),
        more_agents=max(0, len(others) - _MAX_AGENTS),
        pending={name: tuple(map(str, why)) for name, why in state.session.pending.items() if name not in tasks},
        unplaced=bool(state.unplaced()),
        leader=next((name for name in _LEADERS if name in tasks), None),
        verdict=result.verdict.value if result else "",
        reason=result.sentence if result else "",
        kept=result is not None and (after_job.keeps_service(state) or bool(after_job.retained_tasks(state))),
        refused=state.process.refused,
        over=state.process.finished,
        notices=(*snapshot.exposures(), *snapshot.notices()),
    )


def _active_plan(state: SchedulerState) -> Plan:
    by_name = {plan.name: plan for plan in view.plans(state)}
    update = by_name.get(UPDATE)
    return update if update is not None and update.status is not Status.COMPLETE else by_name[DEPLOY]


def _task(state: SchedulerState, record: TaskRecord) -> TaskRow:
    status, progress = state.status(record.name), state.process.progress.get(record.id)
    override = override_of(state, record.name)
    return TaskRow(
        name=record.name,
        id=record.id,
        executor_id=executor_of(record.id),
        agent_id=record.agent_id,
        hostname=record.hostname,
        address=record.address,
        generation=record.generation,
        state=override.value.lower() if override else status.state.label if status else "not heard of",
        message=status.message if status else "",
        live=state.is_live(record),
        progress=describe_progress(progress) if progress else "",
    )


def _unused_agents(state: SchedulerState) -> Sequence[AgentSnapshot]:
    """Return agents without tasks of the service; none while disconnected from Mesos."""
    if not state.session.connected:
        return ()
    hosts = {record.hostname for record in state.stored.tasks.values()}
    return [agent for agent in state.session.agent_snapshots.values() if agent.hostname not in hosts]


def _agent(agent: AgentSnapshot) -> AgentRow:
    amounts = agent.cpus / UNIT, agent.mem / UNIT, agent.gpus / UNIT
    return AgentRow(agent.hostname, agent.region, agent.zone, *amounts, offered_at=agent.at)
