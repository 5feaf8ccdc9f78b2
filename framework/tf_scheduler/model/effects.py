"""Decisions and their effects: changes to store, calls to Mesos, outcomes to log."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from .ids import AgentId, ExecutorId, FrameworkId, OfferId, TaskId, TaskName, UnixTime
from .plan import Answer, PlanControl
from .resources import Resource, VirtualNetwork, Volume
from .secrets import SecretExposure, SecretSource
from .spec import ExecutorSpec, Uri
from .state import Configuration, Result, SchedulerState
from .task import AbandonedLaunch, AgentFailures, Members, Recovery, Resized, TaskRecord, TaskStatus


@dataclass(frozen=True, slots=True)
class ShutdownExecutor:
    """Shut down the executor of an ended task, in case it did not exit by itself."""

    executor_id: ExecutorId
    agent_id: AgentId


@dataclass(frozen=True, slots=True)
class MessageExecutor:
    """Send a message to an executor. Delivery is best effort."""

    executor_id: ExecutorId
    agent_id: AgentId
    #: RENEW_SECRETS or an encoded ExecRequest of `tf_executor.contract.payload`.
    data: bytes = field(repr=False)


# --- Changes: stored in one transaction before any call is sent


@dataclass(frozen=True, slots=True)
class FrameworkRegistered:
    framework_id: FrameworkId
    #: Mesos has removed the framework; its id cannot be used again.
    removed: bool = False


@dataclass(frozen=True, slots=True)
class FrameworkForgotten:
    """Framework, tasks and result are forgotten; operators' decisions are kept."""


@dataclass(frozen=True, slots=True)
class TaskLaunched:
    """A launch is stored before ACCEPT is sent; it replaces the task's last record."""

    record: TaskRecord


@dataclass(frozen=True, slots=True)
class StatusStored:
    status: TaskStatus


@dataclass(frozen=True, slots=True)
class ResultDecided:
    result: Result


@dataclass(frozen=True, slots=True)
class LaunchRetired:
    """A plan stopped a launch, because its task is relaunched or no longer needed."""

    task_id: TaskId
    plan: str


@dataclass(frozen=True, slots=True)
class RecoveryDecided:
    """A launch will be replaced, because it or a peer that it restarts with was lost."""

    recovery: Recovery


@dataclass(frozen=True, slots=True)
class TaskPaused:
    """An operator paused a task until it is resumed."""

    name: TaskName
    since: UnixTime


@dataclass(frozen=True, slots=True)
class SecretTokenRedeemed:
    """A client used the secret token of a launch; only that client may use it again."""

    task_id: TaskId
    #: Digest of the nonce that identifies the client.
    nonce: str


@dataclass(frozen=True, slots=True)
class TaskForgotten:
    """A decommissioned task has ended: its record and status are erased."""

    name: TaskName


@dataclass(frozen=True, slots=True)
class EntryForgotten:
    """An entry of a table is erased.

    An abandoned launch was reported as ended or was abandoned too long ago, failures of an agent no longer count, a
    task resumes, an operator knows of exposed secrets, or a configuration is old.
    """

    #: Field of StoredState.
    table: Literal["abandoned", "agent_failures", "paused", "exposures", "configurations"]
    key: str


@dataclass(frozen=True, slots=True)
class PlanControlled:
    """The controls of a plan changed, or the plan completed."""

    plan: str
    control: PlanControl


#: All changes. `core.state.reducer` and `store.records` handle each of them. Types of other modules are the change that
#: stores them: AbandonedLaunch for a launch that may still run, AgentFailures after another launch has failed on an
#: agent, Members before a list of workers is sent to the chief and after its answer, SecretExposure in place of the
#: agent's earlier one, Configuration as the new target.
Change = (
    FrameworkRegistered
    | FrameworkForgotten
    | TaskLaunched
    | StatusStored
    | ResultDecided
    | LaunchRetired
    | AbandonedLaunch
    | RecoveryDecided
    | AgentFailures
    | Resized
    | Members
    | TaskPaused
    | SecretTokenRedeemed
    | SecretExposure
    | TaskForgotten
    | EntryForgotten
    | PlanControlled
    | Configuration
)


# --- Calls to Mesos


@dataclass(frozen=True, slots=True)
class Launch:
    """A task launch before its conversion to TaskInfo."""

    record: TaskRecord
    task_resources: tuple[Resource, ...]
    executor_resources: tuple[Resource, ...]
    executor: ExecutorSpec
    uris: tuple[Uri, ...]
    #: Port of `record.address`, named in DiscoveryInfo.
    port: int
    kill_grace: float
    #: TaskInfo.data: an encoded `tf_executor.contract.payload.Payload`.
    payload: bytes
    #: Docker image; empty for the agent's own file system.
    image: str = ""
    volumes: tuple[Volume, ...] = ()
    #: `None` for the agent's network.
    network: VirtualNetwork | None = None
    #: Maximum run time in seconds; `None` for unlimited.
    max_completion_time: float | None = None
    #: Environment variable -> secret that the agent resolves; only the secret's name is sent.
    references: Mapping[str, SecretSource] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Accept:
    """Accept an agent's offers; unused resources are declined for `refuse_seconds`."""

    offer_ids: tuple[OfferId, ...]
    launches: tuple[Launch, ...]
    refuse_seconds: float


@dataclass(frozen=True, slots=True)
class Decline:
    offer_ids: tuple[OfferId, ...]
    refuse_seconds: float


@dataclass(frozen=True, slots=True)
class AcceptInverseOffers:
    """Promise to vacate the agents in time; Mesos asks again after `refuse_seconds`."""

    offer_ids: tuple[OfferId, ...]
    refuse_seconds: float


@dataclass(frozen=True, slots=True)
class Suppress:
    """Ask Mesos to send no more offers."""


@dataclass(frozen=True, slots=True)
class Revive:
    """Request offers again and clear all filters."""


@dataclass(frozen=True, slots=True)
class Kill:
    task_id: TaskId
    agent_id: AgentId


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """Acknowledge a stored status; until then, Mesos sends the status again."""

    task_id: TaskId
    agent_id: AgentId
    uuid: str


@dataclass(frozen=True, slots=True)
class Reconcile:
    """Request the statuses of tasks (Mesos documentation, reconciliation)."""

    #: Task -> its agent; empty for all tasks.
    tasks: Mapping[TaskId, AgentId]


@dataclass(frozen=True, slots=True)
class Teardown:
    """Remove the framework; Mesos kills its remaining tasks."""


Call = (
    Accept
    | Decline
    | AcceptInverseOffers
    | Suppress
    | Revive
    | Kill
    | ShutdownExecutor
    | MessageExecutor
    | Acknowledge
    | Reconcile
    | Teardown
)

# --- Decisions


#: What an outcome reports; stable, unlike its message, and the field `outcome` of log records.
OutcomeKind = Literal[
    "AgentAvoided",
    "AgentRemoved",
    "CallFailed",
    "CallRefused",
    "CallsAccepted",
    "ChiefRestarts",
    "ClockDrifted",
    "ClockStepped",
    "ConnectionLost",
    "DeadlinePassed",
    "ForeignTaskKilled",
    "EventSkipped",
    "FrameworkAdopted",
    "FrameworkRemoved",
    "FrameworkReset",
    "FrameworksHidden",
    "JobEnded",
    "JobFailed",
    "LateSuccess",
    "LaunchAbandoned",
    "LeftBehind",
    "MaintenanceScheduled",
    "MembersChanged",
    "Note",
    "NotRestored",
    "OptionsRejected",
    "PlanCommanded",
    "PlanComplete",
    "SecretsAcknowledged",
    "SecretsDelivered",
    "SecretsExposed",
    "SecretsRefused",
    "SecretsReloaded",
    "SecretsUnprotected",
    "SharedUserFound",
    "SizeGrown",
    "SizeKept",
    "SizeReduced",
    "SizeRestored",
    "StartIsSlow",
    "StorageFailed",
    "StorageRestored",
    "StopRequested",
    "Subscribed",
    "SubscriptionRefused",
    "TargetChanged",
    "TaskCommanded",
    "TaskDecommissioned",
    "TaskGivenUp",
    "TaskPending",
    "TaskPlaced",
    "TaskRecovers",
    "TaskResumed",
    "TaskRetained",
    "TaskStatus",
    "TaskStopped",
]


@dataclass(frozen=True, slots=True)
class Outcome:
    """An event in the journal and the log: what was done or not done, and why."""

    kind: OutcomeKind
    message: str
    task: TaskName | None = None
    #: Whether an operator should check it.
    warning: bool = False


class ComputedPlans(Protocol):
    """Plans of one state, computed once and passed on; only `core.plans` reads them."""

    def after(self, state: SchedulerState) -> ComputedPlans:
        """Return the plans of another state."""


@dataclass(frozen=True, slots=True)
class Decision:
    """Result of one event; the runner stores `changes` before it makes `calls`."""

    state: SchedulerState
    changes: tuple[Change, ...] = ()
    calls: tuple[Call, ...] = ()
    outcomes: tuple[Outcome, ...] = ()
    #: Answer to the operator's command, if the event was one.
    answer: Answer | None = None
    #: Id of the answered `events.Request`; 0 if the event was not a request.
    request_id: int = field(default=0, compare=False)
    #: Plans of `state`, for the next call of `core.handle`.
    view: ComputedPlans | None = field(default=None, compare=False, repr=False)

    def then(self, verb: Callable[[SchedulerState], Decision]) -> Decision:
        """Return this decision combined with `verb(self.state)`."""
        return self.followed_by(verb(self.state))

    def followed_by(self, after: Decision) -> Decision:
        """Return both decisions combined; `after` was made on `self.state`."""
        return Decision(
            after.state,
            self.changes + after.changes,
            self.calls + after.calls,
            self.outcomes + after.outcomes,
            self.answer or after.answer,
            view=after.view or self.view,
        )
