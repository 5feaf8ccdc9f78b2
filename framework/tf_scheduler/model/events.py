"""Everything that can happen to the scheduler. A closed set: `core.handle` takes each of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .ids import AgentId, ExecutorId, FrameworkId, OfferId, TaskId, TaskName
from .offer import InverseOffer, Offer
from .operation import OperationStatus
from .plan import Verb
from .progress import Progress
from .recovery import PodVerb
from .task import TaskStatus


@dataclass(frozen=True, slots=True)
class Subscribed:
    """Mesos took us in, for the first time or again. All offers of the connection before are void."""

    framework_id: FrameworkId
    #: Region of the master's fault domain; empty when it has none.
    region: str = ""


@dataclass(frozen=True, slots=True)
class Disconnected:
    """The connection to the master is lost; the driver connects again by itself."""

    reason: str


@dataclass(frozen=True, slots=True)
class Refused:
    """Mesos sent ERROR: this subscription is over for good."""

    message: str

    @property
    def removed(self) -> bool:
        """Whether it is the framework that is over for good (Mesos, src/master/master.cpp)."""
        return self.message == "Framework has been removed"


@dataclass(frozen=True, slots=True)
class ResetRequested:
    """The operator wants a new framework in place of the one that Mesos has removed."""


@dataclass(frozen=True, slots=True)
class OffersReceived:
    offers: tuple[Offer, ...]


@dataclass(frozen=True, slots=True)
class OfferRescinded:
    offer_id: OfferId


@dataclass(frozen=True, slots=True)
class InverseOffersReceived:
    """Agents are to go into maintenance."""

    offers: tuple[InverseOffer, ...]


@dataclass(frozen=True, slots=True)
class InverseOfferRescinded:
    """The window was cancelled, or Mesos asks again with another one."""

    offer_id: OfferId


@dataclass(frozen=True, slots=True)
class StatusUpdated:
    status: TaskStatus
    #: Whether another one follows at once: what follows from both is decided then, as after a burst of a thousand.
    more: bool = False


@dataclass(frozen=True, slots=True)
class OperationUpdated:
    status: OperationStatus


@dataclass(frozen=True, slots=True)
class AgentFailed:
    """An agent was removed. A hint only: what counts is the status of its tasks (mesos.proto Event.Failure)."""

    agent_id: AgentId


@dataclass(frozen=True, slots=True)
class ExecutorFailed:
    """An executor ended, also when it ended well. A hint only."""

    agent_id: AgentId
    executor_id: ExecutorId
    #: As wait(2) gives it.
    wait_status: int


@dataclass(frozen=True, slots=True)
class ProgressReported:
    """An executor tells how far its program is. Best effort: it may be missing, or come late."""

    task_id: TaskId
    progress: Progress


@dataclass(frozen=True, slots=True)
class StopRequested:
    """Somebody wants the job to end gracefully."""

    reason: str


@dataclass(frozen=True, slots=True)
class PlanCommand:
    """An operator wants something of a plan, of a phase of it, or of a step of that phase."""

    verb: Verb
    plan: str
    phase: str = ""
    step: str = ""
    #: With `start` only: environment of the tasks that the plan launches.
    parameters: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PodCommand:
    """An operator wants something of one task, such as `worker-0`; the decision carries the answer."""

    verb: PodVerb
    task: TaskName


@dataclass(frozen=True, slots=True)
class SecretsAsked:
    """Somebody wants the secrets of a launch; the decision carries the answer."""

    task_id: TaskId
    token: str = field(repr=False)
    #: Made by who asks, to be known again.
    nonce: str = field(repr=False)
    #: Where the question came from.
    address: str


@dataclass(frozen=True, slots=True)
class RenewSecrets:
    """An operator wants that tasks read their secrets again now."""


@dataclass(frozen=True, slots=True)
class TornDown:
    """Mesos took our TEARDOWN."""


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed; the runner sends it when a deadline of the state is due."""


Event = (
    Subscribed
    | Disconnected
    | Refused
    | ResetRequested
    | OffersReceived
    | OfferRescinded
    | InverseOffersReceived
    | InverseOfferRescinded
    | StatusUpdated
    | OperationUpdated
    | AgentFailed
    | ExecutorFailed
    | ProgressReported
    | StopRequested
    | PlanCommand
    | PodCommand
    | SecretsAsked
    | RenewSecrets
    | TornDown
    | Tick
)
