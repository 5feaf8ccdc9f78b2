"""Offers -> agents: everything of one agent together, with the resources that this service may use."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from tf_scheduler.model.ids import AgentId, OfferId
from tf_scheduler.model.offer import Offer, Unavailability
from tf_scheduler.model.placement import Place
from tf_scheduler.model.resources import Resource

#: Labels of our dynamic reservations, named as the DC/OS SDK names them.
NAMESPACE, RESOURCE_ID, FRAMEWORK_ID = "namespace", "resource_id", "framework_id"


@dataclass(frozen=True, slots=True)
class Agent:
    """All offers of one agent to one role, merged: Mesos accepts no others together."""

    id: AgentId
    address: str
    place: Place
    offer_ids: tuple[OfferId, ...]
    #: What a task may use: reserved entries first, they are nobody else's.
    resources: tuple[Resource, ...]
    #: What this service has reserved, by the reservation's id; not among `resources`.
    reserved: Mapping[str, tuple[Resource, ...]] = field(default_factory=dict)
    unavailability: Unavailability | None = None

    @property
    def hostname(self) -> str:
        return self.place.hostname


def merge(offers: Iterable[Offer], service: str = "") -> tuple[Agent, ...]:
    """The offers by agent, in the order of host names. `service`: whose reservations are our own."""
    together: dict[tuple[AgentId, str], list[Offer]] = {}
    for offer in offers:
        together.setdefault((offer.agent_id, offer.role), []).append(offer)
    return tuple(sorted((_agent(group, service) for group in together.values()), key=_order))


def _order(agent: Agent) -> tuple[str, str]:
    return (agent.place.hostname, agent.id)


def _agent(offers: list[Offer], service: str) -> Agent:
    first = offers[0]
    free: list[Resource] = []
    held: list[Resource] = []
    ours: dict[str, tuple[Resource, ...]] = {}
    for offer in offers:
        for entry in offer.resources:
            nature = nature_of(entry.shape)
            if nature.namespace and nature.namespace == service:
                ours[nature.resource_id] = (*ours.get(nature.resource_id, ()), entry)
            elif nature.usable:
                (held if nature.reserved else free).append(entry)
    windows = [offer.unavailability for offer in offers if offer.unavailability is not None]
    return Agent(
        id=first.agent_id,
        address=first.address,
        place=first.place,
        offer_ids=tuple(offer.id for offer in offers),
        resources=(*held, *free),
        reserved=ours,
        unavailability=min(windows, key=lambda window: window.start, default=None),
    )


@dataclass(frozen=True, slots=True)
class Nature:
    """What the shape of an offered entry says of its use."""

    #: Whether any task may take a part of it.
    usable: bool
    reserved: bool = False
    #: Labels of the dynamic reservation, empty without.
    namespace: str = ""
    resource_id: str = ""


@lru_cache(maxsize=16_384)
def nature_of(shape: str) -> Nature:
    """Revocable resources and volumes are never used: revocable ones do not mix with others in one task, and a volume

    is data. What carries another framework's labels is kept for that one (Mesos documentation, oversubscription,
    persistent-volume, reservation).
    """
    fields: Mapping[str, Any] = json.loads(shape)
    stack = fields.get("reservations", ())
    labels = {item["key"]: item.get("value", "") for item in _labels(stack)}
    owned = RESOURCE_ID in labels or FRAMEWORK_ID in labels
    return Nature(
        usable=not ("revocable" in fields or "disk" in fields or owned),
        reserved=bool(stack),
        namespace=labels.get(NAMESPACE, "") if RESOURCE_ID in labels else "",
        resource_id=labels.get(RESOURCE_ID, ""),
    )


def _labels(reservations: Iterable[Mapping[str, Any]]) -> list[Mapping[str, str]]:
    return [label for entry in reservations for label in entry.get("labels", {}).get("labels", ())]
