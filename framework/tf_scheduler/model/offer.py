"""An offer: resources of one agent, ours to accept or decline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .ids import AgentId, OfferId
from .placement import Place
from .resources import Resource


@dataclass(frozen=True, slots=True)
class Unavailability:
    """A maintenance window of an agent (Mesos documentation, maintenance). Seconds since the epoch."""

    start: float
    #: None: without end.
    end: float | None = None


@dataclass(frozen=True, slots=True)
class Offer:
    """What Mesos offers of one agent to one of our roles."""

    id: OfferId
    agent_id: AgentId
    hostname: str
    #: Address at which tasks on this agent are reached by the others.
    address: str
    resources: tuple[Resource, ...]
    #: Attribute name -> its value as text (scalars and ranges in Mesos' own notation).
    attributes: Mapping[str, str] = field(default_factory=dict)
    #: Names of the fault domain; empty when the agent has none.
    region: str = ""
    zone: str = ""
    #: The role that it is allocated to; offers of several roles are never accepted together.
    role: str = ""
    unavailability: Unavailability | None = None

    @property
    def place(self) -> Place:
        """What constraints look at."""
        return Place(self.hostname, self.region, self.zone, self.attributes)


@dataclass(frozen=True, slots=True)
class Glimpse:
    """An agent of the cluster, as it offered last."""

    hostname: str
    region: str
    zone: str
    #: What it offered then, to any of our roles, in thousandths; `mem` of MB.
    cpus: int
    mem: int
    gpus: int
    #: Seconds since the epoch.
    at: float


@dataclass(frozen=True, slots=True)
class InverseOffer:
    """Mesos asks to have an agent back: a maintenance window is planned."""

    id: OfferId
    agent_id: AgentId
    unavailability: Unavailability


@dataclass(frozen=True, slots=True)
class HeldOffer:
    """An offer that we keep while the gang is not complete."""

    offer: Offer
    #: When it came; seconds since the epoch.
    since: float
