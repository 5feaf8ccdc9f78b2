"""One service at a glance: what somebody who follows it to its end has to know. `GET /v1/tf/overview`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import nsmallest

from tf_scheduler.core import keeping, plans
from tf_scheduler.core.progress import spoken
from tf_scheduler.core.recovery.pausing import shown
from tf_scheduler.model.ids import executor_of
from tf_scheduler.model.offer import Glimpse
from tf_scheduler.model.plan import Plan, Status
from tf_scheduler.model.resources import UNIT
from tf_scheduler.model.spec import JobKind
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.model.task import TaskRecord

from .glance import AgentRow, Overview, StepRow, TaskRow, to_json

__all__ = ["overview", "to_json"]

#: So many of the agents without our tasks are shown.
_SHOWN = 50


def overview(state: SchedulerState) -> Overview:
    """Of one moment."""
    plan, others = _working(state), _others(state)
    return Overview(
        service=state.spec.name,
        checkpoint_dir=state.spec.checkpoint_dir,
        framework_id=state.framework_id,
        plan=plan.name,
        status=plan.status.value,
        steps=tuple(_steps(plan)),
        tasks=tuple(_task(state, record) for record in state.tasks.values()),
        agents=tuple(map(_agent, nsmallest(_SHOWN, others, key=lambda glimpse: glimpse.hostname))),
        more_agents=max(0, len(others) - _SHOWN),
        pending={name: tuple(map(str, why)) for name, why in state.pending.items() if name not in state.tasks},
        unplaced=bool(state.unplaced()),
        leader=_leader(state),
        verdict=state.result.verdict.value if state.result else "",
        reason=state.result.sentence if state.result else "",
        kept=state.result is not None and (keeping.stays(state) or bool(keeping.kept(state))),
        refused=state.refused,
        over=state.over,
    )


def _working(state: SchedulerState) -> Plan:
    found = {plan.name: plan for plan in plans.plans(state)}
    update = found.get(plans.UPDATE)
    return update if update is not None and update.status is not Status.COMPLETE else found[plans.DEPLOY]


def _steps(plan: Plan) -> Iterator[StepRow]:
    for phase in plan.phases:
        for step in phase.steps:
            yield StepRow(phase.name, step.name, step.shown.value, step.message, step.task)


def _task(state: SchedulerState, record: TaskRecord) -> TaskRow:
    status, progress = state.status(record.name), state.progress.get(record.id)
    override = shown(state, record.name)
    return TaskRow(
        name=record.name,
        id=record.id,
        executor_id=executor_of(record.id),
        agent_id=record.agent_id,
        hostname=record.hostname,
        address=record.address,
        generation=record.generation,
        state=override.value.lower() if override else status.state.spoken if status else "not heard of",
        message=status.message if status else "",
        live=state.is_live(record),
        progress=spoken(progress) if progress else "",
    )


def _others(state: SchedulerState) -> Sequence[Glimpse]:
    """The agents on whose hosts no task of ours is; none that may have gone without being told of."""
    ours = {record.hostname for record in state.tasks.values()}
    return [glimpse for glimpse in state.glimpses.values() if state.connected and glimpse.hostname not in ours]


def _agent(seen: Glimpse) -> AgentRow:
    amounts = seen.cpus / UNIT, seen.mem / UNIT, seen.gpus / UNIT
    return AgentRow(seen.hostname, seen.region, seen.zone, *amounts, offered_at=seen.at)


def _leader(state: SchedulerState) -> str | None:
    """The chief, else worker 0."""
    names = (f"{JobKind.CHIEF.value}-0", f"{JobKind.WORKER.value}-0")
    return next((name for name in names if name in state.tasks), None)
