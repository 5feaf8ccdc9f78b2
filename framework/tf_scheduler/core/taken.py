"""Reservations of ours that another has given back: a framework in our role may, and so may an operator.

Mesos tells us nothing of it. But an agent offers all that is free on it: one that offers without our reservation has
none, or somebody else is holding what it offers of it. If it is not offered for a while it is forgotten, with a reason,
and its task is placed like any other. Should it be there after all, it is offered with our label and given back
(core/reserve.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from tf_scheduler.model.effects import Decision, Outcome, ReservationDropped
from tf_scheduler.model.offer import Offer
from tf_scheduler.model.reservation import Reservation
from tf_scheduler.model.state import SchedulerState

from .placement.agents import nature_of
from .reduce import decide
from .reserve import live

#: Seconds for which it is waited for, beyond those for which a service like ours holds an offer.
LONGER = 5.0


def looked_for(state: SchedulerState, offers: Sequence[Offer], now: float) -> SchedulerState:
    """What these offers say of the reservations that Mesos has made for us and that still serve."""
    made = {item.id: item for item in live(state, now).values() if item.made}
    if not made:
        return replace(state, missed={}) if state.missed else state
    held = (entry.offer for entry in state.offers.values())
    shown = {nature_of(entry.shape).resource_id for offer in (*offers, *held) for entry in offer.resources}
    agents = {offer.agent_id for offer in offers}
    absent = {key for key, item in made.items() if item.agent_id in agents} - shown
    since = {key: at for key, at in state.missed.items() if key in made.keys() - shown}
    return replace(state, missed={**dict.fromkeys(absent, now), **since})


def due(state: SchedulerState, now: float) -> Decision:
    """Forget what was missed for too long. Its task is a new wish: agents may have been declined for long."""
    late = [key for key, at in state.missed.items() if now >= _until(state, at)]
    if not late:
        return decide(state)
    gone = [item for item in live(state, now).values() if item.id in late]
    told = (Outcome(_sentence(state, item), item.task, warning=True) for item in gone)
    left = {key: at for key, at in state.missed.items() if key not in late}
    after = replace(state, missed=left, asked_for=state.asked_for - {item.task for item in gone})
    return decide(after, *(ReservationDropped(item.id) for item in gone), outcomes=tuple(told))


def deadlines(state: SchedulerState) -> Iterator[float]:
    """When that is."""
    return (_until(state, at) for at in state.missed.values())


def _until(state: SchedulerState, since: float) -> float:
    return since + state.spec.gang.hold_seconds + LONGER


def _sentence(state: SchedulerState, item: Reservation) -> str:
    return (
        f"what was reserved for {item.task} on {item.place.hostname} is not offered any more: another framework in the "
        f"role {state.spec.role}, or an operator, has taken it; a place for {item.task} is sought again"
    )
