"""A task: what we stored about its launch (record) and what Mesos said of it (status)."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from .ids import AgentId, TaskId, TaskName
from .placement import Place
from .resources import Resource
from .spec import JobKind


class TaskState(str, Enum):
    """Mesos' task states (mesos.proto TaskState), as a framework with PARTITION_AWARE sees them."""

    STAGING = "TASK_STAGING"
    STARTING = "TASK_STARTING"
    RUNNING = "TASK_RUNNING"
    KILLING = "TASK_KILLING"
    FINISHED = "TASK_FINISHED"
    FAILED = "TASK_FAILED"
    KILLED = "TASK_KILLED"
    ERROR = "TASK_ERROR"
    LOST = "TASK_LOST"
    DROPPED = "TASK_DROPPED"
    UNREACHABLE = "TASK_UNREACHABLE"
    GONE = "TASK_GONE"
    GONE_BY_OPERATOR = "TASK_GONE_BY_OPERATOR"
    UNKNOWN = "TASK_UNKNOWN"

    @property
    def ended(self) -> bool:
        """Whether the task of this state does not run any more. UNREACHABLE may come back."""
        return self in _ENDED

    @property
    def spoken(self) -> str:
        """`failed` for TASK_FAILED: for sentences."""
        return self.value.removeprefix("TASK_").lower().replace("_", " ")


_ENDED = frozenset(
    {
        TaskState.FINISHED,
        TaskState.FAILED,
        TaskState.KILLED,
        TaskState.ERROR,
        TaskState.LOST,
        TaskState.DROPPED,
        TaskState.GONE,
        TaskState.GONE_BY_OPERATOR,
        TaskState.UNKNOWN,
    }
)


@dataclass(frozen=True, slots=True)
class TaskRecord:
    """The fact that we launched a task. Stored before the launch is sent.

    A record without a status: launched, not heard of yet. A status without a record: no task of ours, kill it.
    """

    name: TaskName
    id: TaskId
    job: JobKind
    index: int
    agent_id: AgentId
    hostname: str
    #: host:port in the ClusterSpec.
    address: str
    #: Number of the ClusterSpec that it was launched with.
    generation: int
    #: Of the task and its executor together.
    resources: tuple[Resource, ...]
    #: Seconds since the epoch.
    launched_at: float
    #: Section of the options that it belongs to; constraints count tasks within it.
    group: str = ""
    #: What constraints saw of the agent.
    place: Place = field(default_factory=lambda: Place(""))
    #: Number of the launch in the service: those that were decided together share it, later ones have greater ones.
    serial: int = 1
    #: Digest of everything that the task was launched with: another one means that it is outdated.
    config: str = ""
    #: The plan whose parameters it was launched with.
    plan: str = "deploy"
    #: Digest of the token that gets its secrets; empty: it has none.
    token: str = ""
    #: When the first task of the job was launched; seconds since the epoch. 0: as `launched_at`.
    begun: float = 0.0
    #: What runs there only sleeps: it keeps the place of a task that is paused.
    idle: bool = False
    #: The agent's own address, where `address` has another host, as on a virtual network.
    agent_address: str = ""


@dataclass(frozen=True, slots=True)
class TaskStatus:
    """What Mesos reported of one launch, last."""

    id: TaskId
    state: TaskState
    agent_id: AgentId | None = None
    #: Mesos' word for why, such as REASON_COMMAND_EXECUTOR_FAILED; empty when there is none.
    reason: str = ""
    message: str = ""
    #: What the program returned, or the signal that ended it, if it ran and its executor could tell.
    exit_code: int | None = None
    signal: int | None = None
    #: base64; empty: Mesos wants no acknowledgement (answers to reconciliation).
    uuid: str = ""
    healthy: bool | None = None
    #: Seconds since the epoch, by the clock of whoever made the update.
    timestamp: float = 0.0
    #: IP addresses of its container, as the agent tells them; those of the agent where it has none of its own.
    addresses: tuple[str, ...] = ()
