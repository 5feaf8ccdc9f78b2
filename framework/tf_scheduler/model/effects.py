"""What a decision may do: changes (to store), calls (to Mesos), outcomes (to tell)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .calls import ShutdownExecutor, TellExecutor
from .changes import (
    AgentSuspected,
    Change,
    ConfigurationForgotten,
    ConfigurationStored,
    FrameworkForgotten,
    FrameworkRegistered,
    LaunchRetired,
    PlanControlled,
    RecoveryDecided,
    ReservationDropped,
    ReservationMade,
    Resized,
    ResultDecided,
    SecretsGiven,
    StatusStored,
    TaskForgotten,
    TaskLaunched,
    TaskPaused,
    TaskResumed,
)
from .ids import AgentId, OfferId, OperationId, TaskId, TaskName
from .network import VirtualNetwork
from .operation import Operation
from .plan import Answer
from .resources import Resource
from .secrets import Source
from .spec import ExecutorSpec, Uri
from .state import SchedulerState
from .task import TaskRecord
from .volume import Volume

__all__ = [
    "Accept",
    "AcceptInverseOffers",
    "Acknowledge",
    "AcknowledgeOperation",
    "AgentSuspected",
    "Call",
    "Change",
    "ConfigurationForgotten",
    "ConfigurationStored",
    "Decision",
    "Decline",
    "FrameworkForgotten",
    "FrameworkRegistered",
    "Kill",
    "Launch",
    "LaunchRetired",
    "Outcome",
    "PlanControlled",
    "Reconcile",
    "ReconcileOperations",
    "RecoveryDecided",
    "ReservationDropped",
    "ReservationMade",
    "Resized",
    "ResultDecided",
    "Revive",
    "SecretsGiven",
    "ShutdownExecutor",
    "StatusStored",
    "Suppress",
    "TaskForgotten",
    "TaskLaunched",
    "TaskPaused",
    "TaskResumed",
    "Teardown",
    "TellExecutor",
]

# --- calls


@dataclass(frozen=True, slots=True)
class Launch:
    """Everything that is needed for one TaskInfo, before its wire form."""

    record: TaskRecord
    task_resources: tuple[Resource, ...]
    executor_resources: tuple[Resource, ...]
    executor: ExecutorSpec
    uris: tuple[Uri, ...]
    #: The port of `record.address`, named in DiscoveryInfo.
    port: int
    kill_grace: float
    #: TaskInfo.data: `tf_executor.payload.Payload`, encoded.
    payload: bytes
    #: Docker image of the container; empty: the agent's own file system.
    image: str = ""
    volumes: tuple[Volume, ...] = ()
    #: None: that of the agent.
    network: VirtualNetwork | None = None
    #: Seconds that the task may run; None: for ever.
    max_completion_time: float | None = None
    #: Variable -> a secret that the agent puts there; only its name is sent.
    references: Mapping[str, Source] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Accept:
    """Offers of one agent, merged, and what to do with them. What is left over is refused for `refuse_seconds`.

    Mesos does it in this order: UNRESERVE, RESERVE, LAUNCH. A launch may use what is unreserved in the same call.
    """

    offer_ids: tuple[OfferId, ...]
    launches: tuple[Launch, ...]
    refuse_seconds: float
    unreserve: tuple[Operation, ...] = ()
    reserve: tuple[Operation, ...] = ()


@dataclass(frozen=True, slots=True)
class Decline:
    offer_ids: tuple[OfferId, ...]
    refuse_seconds: float


@dataclass(frozen=True, slots=True)
class AcceptInverseOffers:
    """We shall leave those agents in time. Mesos asks again after `refuse_seconds`."""

    offer_ids: tuple[OfferId, ...]
    refuse_seconds: float


@dataclass(frozen=True, slots=True)
class Suppress:
    """No offers, please."""


@dataclass(frozen=True, slots=True)
class Revive:
    """Offers again; clears every filter."""


@dataclass(frozen=True, slots=True)
class Kill:
    task_id: TaskId
    agent_id: AgentId


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """Leaves only after the status is stored: unacknowledged updates are sent again, stored ones are not lost."""

    task_id: TaskId
    agent_id: AgentId
    uuid: str


@dataclass(frozen=True, slots=True)
class AcknowledgeOperation:
    """Leaves only after what it means is stored."""

    id: OperationId
    agent_id: AgentId
    uuid: str


@dataclass(frozen=True, slots=True)
class Reconcile:
    """Ask for the state of these tasks; of all that Mesos knows when empty (Mesos documentation, reconciliation)."""

    tasks: Mapping[TaskId, AgentId]


@dataclass(frozen=True, slots=True)
class ReconcileOperations:
    """Ask what became of these operations."""

    operations: Mapping[OperationId, AgentId]


@dataclass(frozen=True, slots=True)
class Teardown:
    """The end: Mesos kills what is left and forgets the framework."""


Call = (
    Accept
    | Decline
    | AcceptInverseOffers
    | Suppress
    | Revive
    | Kill
    | ShutdownExecutor
    | TellExecutor
    | Acknowledge
    | AcknowledgeOperation
    | Reconcile
    | ReconcileOperations
    | Teardown
)

# --- outcomes


@dataclass(frozen=True, slots=True)
class Outcome:
    """One thing that the decision found worth telling: why something was done, or was not."""

    message: str
    task: TaskName | None = None
    #: Whether a person should look at it.
    warning: bool = False


@dataclass(frozen=True, slots=True)
class Decision:
    """The answer to one event. The runner stores the changes, swaps the state, makes the calls, tells the outcomes."""

    state: SchedulerState
    changes: tuple[Change, ...] = ()
    calls: tuple[Call, ...] = ()
    outcomes: tuple[Outcome, ...] = ()
    #: To the operator's command that the event was.
    answer: Answer | None = None
