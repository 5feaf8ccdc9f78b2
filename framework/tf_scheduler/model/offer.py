"""Offers of agents, and the results of offer rounds."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from .ids import AgentId, OfferId, TaskName, UnixTime
from .placement import AgentLocation
from .reasons import Reason
from .resources import Resource


@dataclass(frozen=True, slots=True)
class Unavailability:
    """Maintenance window of an agent (Mesos documentation, maintenance)."""

    start: UnixTime
    #: `None` if it is unlimited.
    end: UnixTime | None = None


@dataclass(frozen=True, slots=True)
class ExecutorLogin:
    """Whether an agent requires a login from executors, which protects secrets."""

    #: `None` if unknown.
    is_required: bool | None = None
    #: Why it is unknown, for people.
    problem: str = ""


#: Flag of an agent that requires a login from executors. Without it, any process that can connect to the agent may
#: subscribe as an executor, and gets the tasks with their secret tokens (Mesos documentation, endpoint /flags).
_EXECUTOR_AUTHENTICATION = "authenticate_http_executors"


def authenticates_executors(flags: Mapping[str, str]) -> bool:
    """Return whether the agent with these flags requires a login from executors."""
    return flags.get(_EXECUTOR_AUTHENTICATION) == "true"


NOT_ASKED = ExecutorLogin(problem="the agent was not asked for its flags")


@dataclass(frozen=True, slots=True)
class Offer:
    """Resources that Mesos offers on one agent to one of the service's roles."""

    id: OfferId
    agent_id: AgentId
    hostname: str
    #: Address at which other tasks reach tasks on this agent.
    address: str
    resources: tuple[Resource, ...]
    #: Attribute name -> value as text; scalars and ranges in Mesos' notation.
    attributes: Mapping[str, str] = field(default_factory=dict)
    #: Fault domain; empty if the agent has none.
    region: str = ""
    zone: str = ""
    #: Role of the offer; offers of different roles cannot be accepted together.
    role: str = ""
    unavailability: Unavailability | None = None
    #: Asked only for services with secrets.
    login: ExecutorLogin = NOT_ASKED

    @property
    def location(self) -> AgentLocation:
        """Location of the agent, as placement constraints see it."""
        return AgentLocation(self.hostname, self.region, self.zone, self.attributes)


@dataclass(frozen=True, slots=True)
class AgentSnapshot:
    """The last offered resources of an agent; not used for placement."""

    hostname: str
    region: str
    zone: str
    #: Offered to any of the service's roles, in thousandths (`mem`: thousandths of MB).
    cpus: int
    mem: int
    gpus: int
    at: UnixTime
    #: Address of the machine.
    address: str = ""


@dataclass(frozen=True, slots=True)
class InverseOffer:
    """Mesos requests to vacate an agent for a planned maintenance window."""

    id: OfferId
    agent_id: AgentId
    unavailability: Unavailability


#: Maximum number of stored evaluations.
MAX_EVALUATIONS = 50


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One attempt to place the pending tasks on the current offers."""

    at: UnixTime
    offers: int
    agents: int
    #: Task -> location and explanation; empty unless all tasks were launched.
    placed: Mapping[TaskName, str] = field(default_factory=dict)
    #: Task -> reasons, if the tasks were not launched.
    refused: Mapping[TaskName, tuple[Reason, ...]] = field(default_factory=dict)


#: Offers and tasks per second of the pause after a failed match, and its maximum.
PARTS_PER_SECOND, MATCH_INTERVAL = 2000, 1.0


@dataclass(frozen=True, slots=True)
class OfferRound:
    """Offers that are held until a whole gang fits, and the last match with them.

    A round starts with its first offer and ends with the last one. After a failed round, offers are declined for a
    while, so that other frameworks can use them.
    """

    offers: Mapping[OfferId, Offer] = field(default_factory=dict)
    #: Time of the first offer.
    since: UnixTime = 0.0
    #: Agent -> its last offer that no pending task could use: declined for long, and part of the reasons.
    unusable: Mapping[AgentId, Offer] = field(default_factory=dict)
    #: Gangs that the last match left without placement.
    gangs: tuple[object, ...] = ()
    #: Reasons of their tasks; empty if placement was not tried.
    reasons: Mapping[TaskName, tuple[Reason, ...]] = field(default_factory=dict)
    #: When to match again: offers or gangs have changed since, or the wait for a previous address ends.
    match_at: UnixTime = math.inf
    #: To match a large gang again with every single offer would be expensive.
    pause_until: UnixTime = 0.0
    #: Consecutive rounds without a launch.
    failures: int = 0
    back_off_until: UnixTime = 0.0

    def hold(self, offers: Iterable[Offer], now: UnixTime) -> OfferRound:
        """Return the round with more offers, which are to be matched."""
        held = {**self.offers, **{offer.id: offer for offer in offers}}
        return replace(self, offers=held, since=self.since if self.offers else now, match_at=now)

    def without(self, offers: Collection[OfferId]) -> OfferRound:
        """Return the round after these offers were used, declined or rescinded."""
        return replace(self, offers={key: offer for key, offer in self.offers.items() if key not in offers})

    def failed(
        self, gangs: tuple[object, ...], reasons: Mapping[TaskName, tuple[Reason, ...]], now: UnixTime, again: UnixTime
    ) -> OfferRound:
        """Return the round after a match without placement of these gangs."""
        pause = min(MATCH_INTERVAL, (len(self.offers) + len(reasons)) / PARTS_PER_SECOND)
        return replace(self, gangs=gangs, reasons=reasons, match_at=again, pause_until=now + pause)

    def launched(self, now: UnixTime) -> OfferRound:
        """Return the round after a launch of all gangs, with the offers it left."""
        return OfferRound(self.offers, self.since, match_at=now) if self.offers else OfferRound()

    def end(self, now: UnixTime, wait: float) -> OfferRound:
        """Return what follows a failed round: its offers are declined for `wait` s."""
        return replace(self, offers={}, match_at=math.inf, failures=self.failures + 1, back_off_until=now + wait)

    def due_at(self, hold_seconds: float) -> UnixTime:
        """Return when to match the offers: at the latest at the end of the round."""
        return max(self.match_at, min(self.pause_until, self.since + hold_seconds)) if self.offers else math.inf
