"""One service at a glance: what somebody who follows it to its end has to know. `GET /v1/tf/overview`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tf_scheduler.core import keeping, plans
from tf_scheduler.core.progress import spoken
from tf_scheduler.model.ids import executor_of
from tf_scheduler.model.plan import Plan, Status
from tf_scheduler.model.spec import JobKind
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.model.task import TaskRecord


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


def overview(state: SchedulerState) -> Overview:
    """Of one moment."""
    plan = _working(state)
    return Overview(
        service=state.spec.name,
        checkpoint_dir=state.spec.checkpoint_dir,
        framework_id=state.framework_id,
        plan=plan.name,
        status=plan.status.value,
        steps=tuple(_steps(plan)),
        tasks=tuple(_task(state, record) for record in state.tasks.values()),
        pending={name: tuple(map(str, why)) for name, why in state.pending.items() if name not in state.tasks},
        unplaced=bool(state.unplaced()),
        leader=_leader(state),
        verdict=state.result.verdict.value if state.result else "",
        reason=state.result.reason if state.result else "",
        kept=state.result is not None and (keeping.stays(state) or bool(keeping.kept(state))),
        refused=state.refused,
        over=state.over,
    )


def to_json(shown: Overview) -> dict[str, Any]:
    """As the API answers it."""
    return asdict(shown)


def from_json(document: Mapping[str, Any]) -> Overview:
    """Of the API's answer; fields that a newer scheduler adds are no reason to fail."""
    fields = {name: document[name] for name in Overview.__dataclass_fields__}
    fields["steps"] = tuple(StepRow(**_known(StepRow, row)) for row in fields["steps"])
    fields["tasks"] = tuple(TaskRow(**_known(TaskRow, row)) for row in fields["tasks"])
    fields["pending"] = {name: tuple(why) for name, why in fields["pending"].items()}
    return Overview(**fields)


def _known(kind: type[StepRow] | type[TaskRow], row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in kind.__dataclass_fields__}


def _working(state: SchedulerState) -> Plan:
    found = {plan.name: plan for plan in plans.plans(state)}
    update = found.get(plans.UPDATE)
    return update if update is not None and update.status is not Status.COMPLETE else found[plans.DEPLOY]


def _steps(plan: Plan) -> Iterator[StepRow]:
    for phase in plan.phases:
        for step in phase.steps:
            yield StepRow(phase.name, step.name, step.status.value, step.message, step.task)


def _task(state: SchedulerState, record: TaskRecord) -> TaskRow:
    status, progress = state.status(record.name), state.progress.get(record.id)
    return TaskRow(
        name=record.name,
        id=record.id,
        executor_id=executor_of(record.id),
        agent_id=record.agent_id,
        hostname=record.hostname,
        address=record.address,
        generation=record.generation,
        state=status.state.spoken if status else "not heard of",
        message=status.message if status else "",
        live=state.is_live(record),
        progress=spoken(progress) if progress else "",
    )


def _leader(state: SchedulerState) -> str | None:
    """The chief, else worker 0."""
    names = (f"{JobKind.CHIEF.value}-0", f"{JobKind.WORKER.value}-0")
    return next((name for name in names if name in state.tasks), None)
