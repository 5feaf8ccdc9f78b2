"""What a line of the log is about: the same keys in every line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tf_scheduler.model.effects import Accept, Decision, Outcome
from tf_scheduler.model.events import (
    AgentFailed,
    Event,
    ExecutorFailed,
    OfferRescinded,
    OffersReceived,
    ProgressReported,
    SecretsAsked,
    StatusUpdated,
)
from tf_scheduler.model.ids import OfferId, TaskId, name_of
from tf_scheduler.model.state import SchedulerState

Facts = dict[str, str]


def told(number: int, event: Event, decision: Decision) -> Iterator[tuple[Outcome, Facts]]:
    """Each outcome with what it is about. `number`: of the decision, since the start of the scheduler."""
    if not decision.outcomes:
        return
    used = _offers(decision)
    cause = _of_event(event)
    name = f"{type(event).__name__}-{number}"
    for outcome in decision.outcomes:
        # What happened to one task may be told of another.
        shared = cause if outcome.task in (None, cause.get("task")) else {}
        own = {} if outcome.task is None else _of_task(decision.state, outcome, used)
        yield outcome, {**own, **shared, "decision": name}


def _of_task(state: SchedulerState, outcome: Outcome, used: Mapping[TaskId, tuple[OfferId, ...]]) -> Facts:
    assert outcome.task is not None, "asked for tasks only"
    found: Facts = {"task": outcome.task}
    record = state.tasks.get(outcome.task)
    if record is not None:
        found |= {"task_id": record.id, "agent_id": record.agent_id}
        if record.id in used:
            found["offer_id"] = ",".join(used[record.id])
    return found


def _offers(decision: Decision) -> Mapping[TaskId, tuple[OfferId, ...]]:
    """Launch -> the offers that it uses."""
    accepts = (call for call in decision.calls if isinstance(call, Accept))
    return {launch.record.id: call.offer_ids for call in accepts for launch in call.launches}


def _of_event(event: Event) -> Facts:
    if isinstance(event, StatusUpdated):
        status = event.status
        agent = {} if status.agent_id is None else {"agent_id": status.agent_id}
        return {"task": name_of(status.id), "task_id": status.id, **agent}
    if isinstance(event, ProgressReported | SecretsAsked):
        return {"task": name_of(event.task_id), "task_id": event.task_id}
    if isinstance(event, OfferRescinded):
        return {"offer_id": event.offer_id}
    if isinstance(event, OffersReceived) and len(event.offers) == 1:
        return {"offer_id": event.offers[0].id, "agent_id": event.offers[0].agent_id}
    return {"agent_id": event.agent_id} if isinstance(event, AgentFailed | ExecutorFailed) else {}
