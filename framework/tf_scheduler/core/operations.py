"""What becomes of RESERVE and UNRESERVE: heard, stored, acknowledged, asked for.

Mesos tells it of operations that have an id, on agents that can (AGENT_OPERATION_FEEDBACK; those of 1.11 do not start
without it). An offer does not say whether its agent can; the master refuses the operation where it cannot, and then we
do without ids there.
Source: Mesos documentation, scheduler-http-api and reconciliation.

A reservation that Mesos does not know, or refused, is forgotten: if it should exist after all, it is offered with our
label and given back (core/reserve.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from tf_scheduler.model.effects import (
    AcknowledgeOperation,
    Decision,
    Outcome,
    ReconcileOperations,
    ReservationDropped,
    ReservationMade,
)
from tf_scheduler.model.ids import AgentId, OperationId
from tf_scheduler.model.operation import OperationState, OperationStatus
from tf_scheduler.model.reasons import NotReserved
from tf_scheduler.model.reservation import Reservation
from tf_scheduler.model.state import SchedulerState

from .reconcile import LAUNCH_TIMEOUT
from .reduce import decide, then
from .rounds import keep_away

#: In the master's sentence when it refuses an operation for its id (Mesos, src/master/master.cpp).
NO_FEEDBACK = "feedback"
#: Characters of a message that are told.
_LONGEST = 200


def updated(state: SchedulerState, status: OperationStatus, now: float, new_id: Callable[[], str]) -> Decision:
    """Whatever it means is stored before it is acknowledged. It may come again, and of what is long forgotten."""
    heard = _heard(state, status, now, new_id)
    if not status.uuid or status.agent_id is None:
        return heard
    calls = (AcknowledgeOperation(status.id, status.agent_id, status.uuid),)
    return then(heard, lambda after: decide(after, calls=calls))


def ask(state: SchedulerState, now: float) -> Decision:
    """Ask for every RESERVE of which nothing was heard: the call, or its answer, may be lost."""
    unheard = _unheard(state)
    if not unheard:
        return decide(state)
    return decide(replace(state, operations_at=now), calls=(ReconcileOperations(unheard),))


def due(state: SchedulerState, now: float) -> Decision:
    """Ask again after a while: Mesos is silent about agents that have not come back after its failover."""
    return ask(state, now) if state.connected and now >= state.operations_at + LAUNCH_TIMEOUT else decide(state)


def deadlines(state: SchedulerState) -> Iterator[float]:
    """When that is."""
    if state.reservations and _unheard(state):
        yield state.operations_at + LAUNCH_TIMEOUT


def _unheard(state: SchedulerState) -> Mapping[OperationId, AgentId]:
    return {item.operation: item.agent_id for item in state.reservations.values() if item.operation and not item.made}


def _heard(state: SchedulerState, status: OperationStatus, now: float, new_id: Callable[[], str]) -> Decision:
    known = next((item for item in state.reservations.values() if _is_of(item, status.id)), None)
    if known is None:
        return decide(state)
    finished = status.state is OperationState.FINISHED
    if status.id != known.operation:
        return _given_back(state, known, status) if finished or status.state.undone else decide(state)
    if finished:
        return decide(state) if known.made else decide(state, ReservationMade(replace(known, made=True)))
    return _refused(state, known, status, now, new_id) if status.state.undone else decide(state)


def _is_of(item: Reservation, operation: OperationId) -> bool:
    """UNRESERVE has an id of its own each time, made from that of the reservation."""
    return operation.startswith(f"{item.id}.")


def _given_back(state: SchedulerState, known: Reservation, status: OperationStatus) -> Decision:
    """It is free for others; or it is offered to us again, and given back again."""
    if status.state is OperationState.FINISHED:
        return decide(state, ReservationDropped(known.id))
    message = f"what was reserved on {known.place.hostname} could not be given back: {_why(status)}"
    return decide(state, outcomes=(Outcome(message, known.task, warning=True),))


def _refused(
    state: SchedulerState, known: Reservation, status: OperationStatus, now: float, new_id: Callable[[], str]
) -> Decision:
    """Its place is gone, and a reason is there; all are left in peace for a while, as after any round in vain."""
    dropped = ReservationDropped(known.id)
    if status.state is OperationState.ERROR and NO_FEEDBACK in status.message:
        told = Outcome(f"agent {known.place.hostname} does not tell what becomes of reservations", known.task)
        return decide(replace(state, mute=state.mute | {known.agent_id}), dropped, outcomes=(told,))
    reason = NotReserved(known.place.hostname, _why(status))
    told = Outcome(f"{known.task} is pending: {reason}", known.task, warning=True)
    after = replace(state, pending={**state.pending, known.task: (reason,)})
    away = now < state.gathering.back_off_until
    freed = decide(after, dropped, outcomes=(told,))
    return freed if away else then(freed, lambda left: keep_away(left, now, new_id))


def _why(status: OperationStatus) -> str:
    """Masters add the whole reservation as JSON."""
    words = status.message or f"Mesos says {status.state.spoken}"
    return words if len(words) <= _LONGEST else f"{words[:_LONGEST]}..."
