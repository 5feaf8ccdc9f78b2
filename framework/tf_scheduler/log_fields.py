"""Fields of the log records about an event: its task, agent and offer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from .model.effects import Accept, Decision, Outcome
from .model.events import (
    AgentFailed,
    Event,
    ExecutorFailed,
    OfferRescinded,
    OffersReceived,
    ProgressReported,
    SecretsRequested,
    StatusUpdated,
    UsageReported,
)
from .model.ids import OfferId, TaskId, name_of
from .model.state import SchedulerState

LogFields = dict[str, str]


def log_fields(number: int, event: Event, decision: Decision) -> Iterator[tuple[Outcome, LogFields]]:
    """Yield outcomes with their log fields. `number` counts decisions since the start."""
    if not decision.outcomes:
        return
    accepts = (call for call in decision.calls if isinstance(call, Accept))
    used = {launch.record.id: call.offer_ids for call in accepts for launch in call.launches}
    cause = _event_fields(event)
    name = f"{event.kind}-{number}"
    for outcome in decision.outcomes:
        # An event of one task may have an outcome for another task.
        shared = cause if outcome.task in (None, cause.get("task")) else {}
        own = {} if outcome.task is None else _task_fields(decision.state, outcome, used)
        yield outcome, {**own, **shared, "decision": name, "outcome": outcome.kind}


def _task_fields(state: SchedulerState, outcome: Outcome, used: Mapping[TaskId, tuple[OfferId, ...]]) -> LogFields:
    assert outcome.task is not None, "called for outcomes of a task"
    record = state.stored.tasks.get(outcome.task)
    if record is None:
        return {"task": outcome.task}
    offers = {"offer_id": ",".join(used[record.id])} if record.id in used else {}
    return {"task": outcome.task, "task_id": record.id, "agent_id": record.agent_id, **offers}


def _event_fields(event: Event) -> LogFields:
    if isinstance(event, StatusUpdated):
        status = event.status
        agent = {} if status.agent_id is None else {"agent_id": status.agent_id}
        return {"task": name_of(status.id), "task_id": status.id, **agent}
    if isinstance(event, ProgressReported | UsageReported | SecretsRequested):
        return {"task": name_of(event.task_id), "task_id": event.task_id}
    if isinstance(event, OfferRescinded):
        return {"offer_id": event.offer_id}
    if isinstance(event, OffersReceived) and len(event.offers) == 1:
        return {"offer_id": event.offers[0].id, "agent_id": event.offers[0].agent_id}
    return {"agent_id": event.agent_id} if isinstance(event, AgentFailed | ExecutorFailed) else {}
