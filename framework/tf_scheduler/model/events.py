"""Input events of the scheduler's core, with names for metrics, journal and logs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import ClassVar

from tf_executor.contract.reports import Progress, Usage

from .digests import WRONG_DIGEST
from .effects import Call
from .ids import AgentId, ExecutorId, FrameworkId, Kinded, OfferId, TaskId, TaskName
from .offer import InverseOffer, Offer
from .plan import Verb
from .task import PodVerb, TaskRecord, TaskStatus


class ConnectionProblem(Kinded):
    """Base class of events that report a problem with Mesos or a clock, or its end."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Subscribed(Kinded):
    """Mesos accepted the subscription. All offers of the previous connection are void."""

    framework_id: FrameworkId
    #: Region of the master's fault domain; empty if it has none.
    region: str = ""


@dataclass(frozen=True, slots=True)
class Disconnected(Kinded):
    """The connection to the master is lost; the driver reconnects by itself."""

    reason: str


@dataclass(frozen=True, slots=True)
class SubscriptionRefused(Kinded):
    """Mesos (with ERROR) or the scheduler itself refused the subscription permanently."""

    kind: ClassVar[str] = "Refused"
    message: str
    #: Whether Mesos refused; otherwise the scheduler refuses to register next to a live framework of the service.
    by_master: bool = True


@dataclass(frozen=True, slots=True)
class FrameworksHidden(ConnectionProblem):
    """The master does not show whether a framework of the service is live."""

    reason: str


@dataclass(frozen=True, slots=True)
class FrameworksWait(Kinded):
    """Names of the other frameworks that want offers now; empty if none does."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FoundTask:
    """A task of an adopted framework as the master lists it."""

    status: TaskStatus
    #: From the labels of the task; the digest of its options is empty if the labels are missing or damaged.
    record: TaskRecord


@dataclass(frozen=True, slots=True)
class FrameworkAdopted(Kinded):
    """The service continues a live framework that its state store does not know."""

    framework_id: FrameworkId
    #: Tasks of the service, including ended ones.
    tasks: tuple[FoundTask, ...] = ()
    #: Whether to stop the tasks and start the job again.
    reset: bool = False
    #: Further live frameworks of the service.
    others: tuple[FrameworkId, ...] = ()


@dataclass(frozen=True, slots=True)
class ResetRequested(Kinded):
    """An operator requests a new framework to replace the one that Mesos has removed."""


@dataclass(frozen=True, slots=True)
class OffersReceived(Kinded):
    offers: tuple[Offer, ...]
    #: Offers that could not be decoded; they are declined.
    malformed: tuple[OfferId, ...] = ()


@dataclass(frozen=True, slots=True)
class EventSkipped(ConnectionProblem):
    """An event of Mesos that could not be decoded; it is not acknowledged."""

    #: Type of the event, such as UPDATE.
    type: str
    #: What is wrong, for people.
    problem: str


@dataclass(frozen=True, slots=True)
class CallFailed(ConnectionProblem):
    """A call that Mesos refused or did not answer, or that was certainly not sent."""

    call: Call
    #: What is wrong, for people; of a refused call, Mesos' text.
    problem: str
    #: HTTP status of a refused call; 0 if there was no answer.
    status: int = 0
    #: Whether Mesos may have acted on the call: it was sent, and not answered.
    may_be_done: bool = False


@dataclass(frozen=True, slots=True)
class CallsAccepted(ConnectionProblem):
    """Mesos has accepted a call again, after it had refused one."""


@dataclass(frozen=True, slots=True)
class ClockDrifted(ConnectionProblem):
    """The master's clock differs too much from this machine's, or no longer does."""

    #: Seconds by which the master's clock is ahead; 0 if the difference is tolerable.
    seconds: float


@dataclass(frozen=True, slots=True)
class OfferRescinded(Kinded):
    offer_id: OfferId


@dataclass(frozen=True, slots=True)
class InverseOffersReceived(Kinded):
    """Mesos plans maintenance of agents."""

    offers: tuple[InverseOffer, ...]


@dataclass(frozen=True, slots=True)
class InverseOfferRescinded(Kinded):
    """A maintenance window was cancelled, or replaced by another one."""

    offer_id: OfferId


@dataclass(frozen=True, slots=True)
class StatusUpdated(Kinded):
    status: TaskStatus
    #: Whether another status follows immediately, so that only the last one triggers a decision.
    more: bool = False


@dataclass(frozen=True, slots=True)
class AgentFailed(Kinded):
    """An agent was removed; only statuses end its tasks (mesos.proto, Event.Failure)."""

    agent_id: AgentId


@dataclass(frozen=True, slots=True)
class ExecutorFailed(Kinded):
    """An executor exited, possibly normally; task statuses are authoritative."""

    agent_id: AgentId
    executor_id: ExecutorId
    #: Status as returned by wait(2).
    wait_status: int

    @property
    def has_wrong_digest(self) -> bool:
        """Whether the executor's bundle has a wrong digest (`digests.digest_check`)."""
        return self.wait_status == WRONG_DIGEST << 8

    @property
    def has_no_interpreter(self) -> bool:
        """Whether the shell could not start the interpreter (exit codes 126 and 127)."""
        return self.wait_status in (126 << 8, 127 << 8)


@dataclass(frozen=True, slots=True)
class ProgressReported(Kinded):
    """Progress of a task's program. Best effort: a report may be lost or late."""

    task_id: TaskId
    progress: Progress
    #: Agent of the task; `None` if unknown.
    agent_id: AgentId | None = None


@dataclass(frozen=True, slots=True)
class UsageReported(Kinded):
    """Resources that a launch uses. Best effort: a report may be lost or late."""

    task_id: TaskId
    usage: Usage
    #: Agent of the task; `None` if unknown.
    agent_id: AgentId | None = None


@dataclass(frozen=True, slots=True)
class StopRequested(Kinded):
    """An operator requests a graceful stop of the job."""

    reason: str


_REQUEST_IDS = count(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request(Kinded):
    """An event whose client awaits an answer; `request_id` is unique in this process."""

    request_id: int = field(default_factory=lambda: next(_REQUEST_IDS), compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class PlanCommand(Request):
    """An operator's command for a plan, a phase or a step."""

    verb: Verb
    plan: str
    phase: str = ""
    step: str = ""
    #: For `start` only: environment variables of the tasks that the plan launches.
    parameters: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PodCommand(Request):
    """An operator's command for one task, such as `worker-0`."""

    verb: PodVerb
    task: TaskName


@dataclass(frozen=True, slots=True)
class ScaleRequested(Request):
    """An operator requests a number of workers, valid until `worker.count` changes."""

    workers: int


@dataclass(frozen=True, slots=True)
class ExecRequested(Request):
    """An operator runs a command in a task."""

    #: 32 hex digits, see ExecRequest of `tf_executor.contract.payload`.
    id: str
    task: TaskName
    command: tuple[str, ...] = field(repr=False)
    #: Seconds.
    timeout: float


@dataclass(frozen=True, slots=True)
class SecretsRequested(Request):
    """An executor requests the secrets of its launch."""

    kind: ClassVar[str] = "SecretsAsked"
    task_id: TaskId
    token: str = field(repr=False)
    #: Chosen by the client, to recognize its retries.
    nonce: str = field(repr=False)
    #: IP address of the client.
    address: str


@dataclass(frozen=True, slots=True)
class ReloadSecrets(Request):
    """An operator requests that running tasks reload their secrets."""

    kind: ClassVar[str] = "RenewSecrets"


@dataclass(frozen=True, slots=True)
class AcknowledgeExposures(Request):
    """An operator has seen which secrets may have been taken."""


@dataclass(frozen=True, slots=True)
class TornDown(Kinded):
    """Mesos accepted TEARDOWN."""


@dataclass(frozen=True, slots=True)
class ClockStepped(ConnectionProblem):
    """The wall clock was set forward or back; deadlines do not change."""

    #: Negative if the clock was set back.
    seconds: float


@dataclass(frozen=True, slots=True)
class SharedUserFound(Kinded):
    """Other frameworks run tasks as the service's user on agents with its secrets."""

    user: str
    #: Such as `marathon on agent-1`.
    places: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Tick(Kinded):
    """A deadline of the state is due."""


Event = (
    Subscribed
    | Disconnected
    | SubscriptionRefused
    | FrameworksHidden
    | FrameworkAdopted
    | ResetRequested
    | OffersReceived
    | EventSkipped
    | CallFailed
    | CallsAccepted
    | ClockDrifted
    | OfferRescinded
    | InverseOffersReceived
    | InverseOfferRescinded
    | StatusUpdated
    | AgentFailed
    | ExecutorFailed
    | ProgressReported
    | UsageReported
    | StopRequested
    | PlanCommand
    | PodCommand
    | ScaleRequested
    | ExecRequested
    | SecretsRequested
    | ReloadSecrets
    | AcknowledgeExposures
    | TornDown
    | ClockStepped
    | SharedUserFound
    | FrameworksWait
    | Tick
)
