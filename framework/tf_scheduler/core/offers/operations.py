"""Handle status updates of RESERVE and UNRESERVE; request missing ones of RESERVE.

Mesos reports operations with an id on agents with AGENT_OPERATION_FEEDBACK. Offers do not show this capability: if the
master rejects an operation for its id, later ones on this agent have none (Mesos documentation, scheduler-http-api and
reconciliation).

A refused or unknown reservation is forgotten. If it exists after all, it is offered with the service's label and
unreserved (core/offers/reservations.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from tf_scheduler.core.state.reducer import decide
from tf_scheduler.model import effects
from tf_scheduler.model.ids import AgentId, NewId, OperationId
from tf_scheduler.model.reasons import NotReserved
from tf_scheduler.model.resources import OperationState, OperationStatus, Reservation
from tf_scheduler.model.state import SchedulerState

from .rounds import decline_and_wait

#: Word in the master's message when it rejects an operation id (Mesos, src/master/master.cpp).
NO_FEEDBACK = "feedback"
#: Seconds without a status after which it is requested again.
FEEDBACK_TIMEOUT = 30.0
#: Maximum characters of a reported message.
_MAX_MESSAGE = 200


def on_status(state: SchedulerState, status: OperationStatus, now: float, new_id: NewId) -> effects.Decision:
    """Apply and acknowledge an operation status, which may be repeated or outdated."""
    decision = _apply(state, status, now, new_id)
    if not status.uuid or status.agent_id is None:
        return decision
    calls = (effects.AcknowledgeOperation(status.id, status.agent_id, status.uuid),)
    return decision.then(lambda after: decide(after, calls=calls))


def reconcile(state: SchedulerState, now: float) -> effects.Decision:
    """Request the status of each unconfirmed RESERVE: call or answer may be lost."""
    pending = _unanswered(state)
    if not pending:
        return decide(state)
    return decide(state.with_session(operations_at=now), calls=(effects.ReconcileOperations(pending),))


def poll(state: SchedulerState, now: float) -> effects.Decision:
    """Reconcile again after a timeout: after failover, Mesos omits missing agents."""
    is_due = state.session.connected and now >= state.session.operations_at + FEEDBACK_TIMEOUT
    return reconcile(state, now) if is_due else decide(state)


def deadlines(state: SchedulerState) -> Iterator[float]:
    """Return the times of `poll`."""
    if _unanswered(state):
        yield state.session.operations_at + FEEDBACK_TIMEOUT


def _unanswered(state: SchedulerState) -> Mapping[OperationId, AgentId]:
    return {
        item.operation: item.agent_id
        for item in state.stored.reservations.values()
        if item.operation and not item.is_confirmed
    }


def _apply(state: SchedulerState, status: OperationStatus, now: float, new_id: NewId) -> effects.Decision:
    reservation = next((item for item in state.stored.reservations.values() if _is_of(item, status.id)), None)
    if reservation is None:
        return decide(state)
    finished = status.state is OperationState.FINISHED
    if status.id != reservation.operation:
        return _on_unreserve(state, reservation, status) if finished or status.state.has_failed else decide(state)
    if finished and not reservation.is_confirmed:
        return decide(state, effects.ReservationMade(replace(reservation, is_confirmed=True)))
    return _on_refused(state, reservation, status, now, new_id) if status.state.has_failed else decide(state)


def _is_of(item: Reservation, operation: OperationId) -> bool:
    """Return whether the operation belongs to the reservation, by the id's prefix."""
    return operation.startswith(f"{item.id}.")


def _on_unreserve(state: SchedulerState, reservation: Reservation, status: OperationStatus) -> effects.Decision:
    """Handle the end of UNRESERVE; a failed UNRESERVE is repeated at the next offer."""
    if status.state is OperationState.FINISHED:
        return decide(state, effects.ReservationDropped(reservation.id))
    message = f"cannot unreserve resources on {reservation.location.hostname}: {_why(status)}"
    return decide(state, outcomes=(effects.Outcome("ReservationDropped", message, reservation.task, warning=True),))


def _on_refused(
    state: SchedulerState, reservation: Reservation, status: OperationStatus, now: float, new_id: NewId
) -> effects.Decision:
    """Drop a refused reservation, report it, and back off as after a failed round."""
    dropped = effects.ReservationDropped(reservation.id)
    if status.state is OperationState.ERROR and NO_FEEDBACK in status.message:
        message = f"agent {reservation.location.hostname} does not support operation feedback"
        outcome = effects.Outcome("NoOperationFeedback", message, reservation.task)
        agents = state.process.agents_without_feedback | {reservation.agent_id}
        return decide(state.with_process(agents_without_feedback=agents), dropped, outcomes=(outcome,))
    reason = NotReserved(reservation.location.hostname, _why(status))
    outcome = effects.Outcome("TaskPending", f"{reservation.task} is pending: {reason}", reservation.task, warning=True)
    after = state.with_session(pending={**state.session.pending, reservation.task: (reason,)})
    decision = decide(after, dropped, outcomes=(outcome,))
    if now < state.process.offer_round.back_off_until:
        return decision
    return decision.then(lambda freed: decline_and_wait(freed, now, new_id))


def _why(status: OperationStatus) -> str:
    """Return a bounded message: masters append the reservation as JSON."""
    words = status.message or f"Mesos reports {status.state.label}"
    return words if len(words) <= _MAX_MESSAGE else f"{words[:_MAX_MESSAGE]}..."
