"""Agent maintenance: accept inverse offers, remember windows, move tasks in time.

Draining agents are handled by recovery: Mesos stops offering them, and ends their tasks with its own reason (Mesos
documentation, maintenance).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from tf_scheduler.core.placement.constraints import move_ahead
from tf_scheduler.core.state.reducer import decide
from tf_scheduler.model.effects import AcceptInverseOffers, Decision, Outcome, RecoveryDecided
from tf_scheduler.model.ids import OfferId
from tf_scheduler.model.offer import InverseOffer, Offer
from tf_scheduler.model.state import SchedulerState

from .replacement import replace_launch, restart_group

#: Seconds until Mesos asks again, unless the window was cancelled.
ASK_INTERVAL = 30.0


def on_inverse_offers(state: SchedulerState, offers: Iterable[InverseOffer]) -> Decision:
    """Accept the windows; tasks are moved before they start."""
    offers = tuple(offers)
    hosts = {record.agent_id: record.hostname for record in state.live()}
    new = [offer for offer in offers if _is_new(state, offer) and offer.agent_id in hosts]
    return decide(
        state.with_session(windows={**state.session.windows, **{offer.agent_id: offer for offer in offers}}),
        calls=(AcceptInverseOffers(tuple(offer.id for offer in offers), ASK_INTERVAL),) if offers else (),
        outcomes=tuple(
            Outcome("MaintenanceScheduled", f"maintenance of agent {hosts[offer.agent_id]} is scheduled", warning=True)
            for offer in new
        ),
    )


def _is_new(state: SchedulerState, offer: InverseOffer) -> bool:
    window = state.session.windows.get(offer.agent_id)
    return window is None or window.unavailability != offer.unavailability


def on_rescinded(state: SchedulerState, offer_id: OfferId) -> Decision:
    """Forget a cancelled or replaced window."""
    windows = {key: window for key, window in state.session.windows.items() if window.id != offer_id}
    return decide(state.with_session(windows=windows))


def observe_offers(state: SchedulerState, offers: Iterable[Offer]) -> SchedulerState:
    """Forget the windows of agents that are offered without one."""
    safe = {offer.agent_id for offer in offers if offer.unavailability is None}
    windows = {key: window for key, window in state.session.windows.items() if key not in safe}
    return state.with_session(windows=windows)


def drain(state: SchedulerState, now: float) -> Decision:
    """Move tasks off agents whose window is near, and restart their dependent tasks."""
    agents = {key for key, window in state.session.windows.items() if now >= _tasks_leave_at(state, window)}
    state = state.with_session(drained_at=now)
    if not agents or state.stored.result is not None:
        return decide(state)
    due = [record for record in state.live() if record.agent_id in agents and not state.is_replaced(record)]
    if not due:
        return decide(state)
    moves = [replace_launch(state, item, f"maintenance of agent {item.hostname} starts soon", now) for item in due]
    moves = [replace(item, previous_address_until=now) for item in moves]
    moves += restart_group(state, [record.name for record in due], now, moved=True)
    outcomes = (
        Outcome("TaskRecovers", f"{item.task} is launched again: {item.why}", item.task, warning=True) for item in moves
    )
    return decide(state, *map(RecoveryDecided, moves), outcomes=tuple(outcomes))


def deadlines(state: SchedulerState) -> Iterator[float]:
    """Yield the times at which tasks must move, after the last check of all tasks."""
    times = (_tasks_leave_at(state, window) for window in state.session.windows.values())
    yield from (at for at in times if at > state.session.drained_at)


def _tasks_leave_at(state: SchedulerState, window: InverseOffer) -> float:
    return window.unavailability.start - move_ahead(state.spec)
