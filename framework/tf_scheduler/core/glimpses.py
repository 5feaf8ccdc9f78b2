"""The agents of the cluster, as far as their offers tell: for who looks at it. Nothing is decided by them.

Mesos tells of an agent only when it offers, and when it is gone. So an agent that offers nothing, for it is full or
because nothing is to be placed, is remembered as it was; and nothing is, once the connection is lost: one that goes
meanwhile is not told of.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import islice

from tf_scheduler.model.ids import AgentId
from tf_scheduler.model.offer import Glimpse, Offer
from tf_scheduler.model.state import SchedulerState

#: So many agents are remembered: those that offered last.
KEPT = 2000


def seen(state: SchedulerState, offers: Iterable[Offer], now: float) -> SchedulerState:
    """With what these offers show. An agent that offers to several of our roles at once offers the sum."""
    fresh: dict[AgentId, Glimpse] = {}
    for offer in offers:
        fresh[offer.agent_id] = _added(fresh.get(offer.agent_id), offer, now)
    if not fresh:
        return state
    known = dict(state.glimpses)
    for key in fresh:
        known.pop(key, None)  # they are to be the last
    known |= fresh
    excess = len(known) - KEPT
    return replace(state, glimpses=dict(islice(known.items(), excess, None)) if excess > 0 else known)


def _added(before: Glimpse | None, offer: Offer, now: float) -> Glimpse:
    amounts = {"cpus": 0, "mem": 0, "gpus": 0}
    for item in offer.resources:
        if item.name in amounts and isinstance(item.value, int):
            amounts[item.name] += item.value
    if before is not None:
        amounts = {name: amount + int(getattr(before, name)) for name, amount in amounts.items()}
    return Glimpse(offer.hostname, offer.region, offer.zone, **amounts, at=now)


def gone(state: SchedulerState, agent_id: AgentId) -> SchedulerState:
    """Without this agent."""
    return replace(state, glimpses={key: glimpse for key, glimpse in state.glimpses.items() if key != agent_id})
