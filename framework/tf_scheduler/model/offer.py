"""Offers of agents, and the results of offer rounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .ids import AgentId, OfferId, TaskName, UnixTime
from .placement import AgentLocation
from .reasons import Reason
from .resources import Resource
from .spec import JobSpec


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


#: Offers and tasks per second of the pause after a match, and its maximum: the reasons of pending tasks are that old.
PARTS_PER_SECOND, MATCH_INTERVAL = 2000, 1.0


@dataclass(frozen=True, slots=True)
class FailedMatch:
    """The last attempt to match the held offers; it left gangs without placement."""

    at: UnixTime
    #: Gangs without placement.
    gangs: tuple[object, ...]
    #: Jobs of their tasks.
    jobs: tuple[JobSpec, ...]
    #: Whether offers came later, so that the reasons of pending tasks are old.
    is_outdated: bool = False

    def due_at(self, offers: int, tasks: int) -> UnixTime:
        """Return when to match again with these numbers of held offers and tasks."""
        return self.at + min(MATCH_INTERVAL, (offers + tasks) / PARTS_PER_SECOND)


@dataclass(frozen=True, slots=True)
class OfferRound:
    """Consecutive failed offer rounds, and the back-off after them."""

    #: Consecutive rounds without a launch.
    failures: int = 0
    #: Offers are declined until this time, so that other frameworks can use them.
    back_off_until: UnixTime = 0.0
