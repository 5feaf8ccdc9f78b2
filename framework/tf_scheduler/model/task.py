"""Types for tasks: launches, statuses, ends, recoveries, cluster size, progress."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from tf_executor.contract.reports import NO_END, Progress, TaskEnd
from tf_executor.contract.states import TaskState

from .ids import AgentId, TaskId, TaskName, UnixTime, name_of
from .placement import AgentLocation
from .resources import Resource
from .spec import JobKind


@dataclass(frozen=True, slots=True)
class EarlierLaunch:
    """An earlier launch of a task, which a later launch has replaced."""

    id: TaskId
    agent_id: AgentId
    hostname: str
    launched_at: UnixTime


@dataclass(frozen=True, slots=True)
class TaskRecord:
    """Record of a launch, stored before the launch is sent.

    If a launch has a record but no status, Mesos has not reported it yet. If a launch has a status but no record, the
    scheduler does not know it, and kills it.
    """

    name: TaskName
    id: TaskId
    job: JobKind
    index: int
    agent_id: AgentId
    hostname: str
    #: host:port in the ClusterSpec.
    address: str
    #: Generation of the ClusterSpec at launch.
    generation: int
    #: Resources of the task and its executor together.
    resources: tuple[Resource, ...]
    launched_at: UnixTime
    #: Section of the options; constraints count tasks per section.
    group: str = ""
    #: Location of the agent at launch.
    location: AgentLocation = field(default_factory=lambda: AgentLocation(""))
    #: Serial number of the decision that launched it; increases with each decision.
    serial: int = 1
    #: Digest of the launch options; the task is outdated if it differs from the current one.
    config: str = ""
    #: Plan whose parameters it was launched with.
    plan: str = "deploy"
    #: Digest of the secret token; empty for none.
    token: str = ""
    #: Key of the messages that run users' commands in it, or change the workers of a chief; empty: none are accepted.
    exec_key: str = field(default="", repr=False)
    #: Time of the job's first launch; 0 for `launched_at`.
    job_started_at: UnixTime = 0.0
    #: Whether a placeholder runs, which keeps the resources of a paused task.
    is_placeholder: bool = False
    #: Address of the agent, if `address` has another host (virtual network).
    agent_address: str = ""
    #: Number of restarts for its own cause, and last earlier launches, oldest first. Placeholders do not count.
    restarts: int = 0
    earlier: tuple[EarlierLaunch, ...] = ()
    #: Folder with the journal of a tf.data dispatcher; empty: its data sets are lost with it.
    journal: str = ""

    @property
    def more_ports(self) -> tuple[int, ...]:
        """The task's ports except the port of its address, ascending."""
        ranges = (entry.value for entry in self.resources if entry.name == "ports" and isinstance(entry.value, tuple))
        ports = (port for value in ranges for begin, end in value for port in range(begin, end + 1))
        return tuple(sorted(port for port in ports if str(port) != self.address.rpartition(":")[2]))


@dataclass(frozen=True, slots=True)
class TaskStatus:
    """Last status of one launch as reported by Mesos."""

    id: TaskId
    state: TaskState
    agent_id: AgentId | None = None
    #: Mesos reason, such as REASON_COMMAND_EXECUTOR_FAILED; empty for none.
    reason: str = ""
    message: str = ""
    #: How the program ended, if it has.
    end: TaskEnd = NO_END
    #: Base64; empty if no acknowledgement is needed (answers to reconciliation).
    uuid: str = ""
    healthy: bool | None = None
    #: By the sender's clock; in the state, since when it holds by the scheduler's clock.
    timestamp: UnixTime = 0.0
    #: IP addresses of the container, or of the agent if the container has none of its own.
    addresses: tuple[str, ...] = ()
    #: Sender (mesos.proto, TaskStatus.Source), such as SOURCE_AGENT; empty if unknown.
    source: str = ""

    @property
    def is_frozen(self) -> bool:
        """Whether the program runs, but its processes are stopped or blocked."""
        return self.state is TaskState.RUNNING and self.healthy is False

    @property
    def is_dropped_by_agent(self) -> bool:
        """Whether the agent, not the master, dropped the launch, which it could not start."""
        return self.state is TaskState.DROPPED and self.source == "SOURCE_AGENT"


@dataclass(frozen=True, slots=True)
class AbandonedLaunch:
    """Launch that was given up while its agent did not answer: it may still run."""

    id: TaskId
    agent_id: AgentId
    hostname: str
    #: Time when it was given up.
    since: UnixTime

    @classmethod
    def of(cls, record: TaskRecord, now: UnixTime) -> AbandonedLaunch:
        """Return a launch that is given up now."""
        return cls(record.id, record.agent_id, record.hostname, now)

    def __str__(self) -> str:
        return f"{name_of(self.id)} may still run on {self.hostname}"


@dataclass(frozen=True, slots=True)
class Members:
    """List of workers that a running chief is to use; stored before it is sent."""

    #: Launch of the chief.
    chief: TaskId
    #: Increases with each list for this launch.
    version: int
    #: Worker -> its address.
    workers: Mapping[TaskName, str]
    #: When the list was stored.
    since: UnixTime
    #: Whether the chief uses this list.
    confirmed: bool = False
    #: Why the chief cannot change its workers; empty if it can, or has not said.
    error: str = ""
    #: Launches that earlier lists had and this one has not.
    left: tuple[TaskId, ...] = ()


@dataclass(frozen=True, slots=True)
class Resized:
    """How the number of workers differs from the options."""

    #: Present number of workers; `None` for the wanted number.
    count: int | None
    at: UnixTime
    #: Wanted number instead of `worker.count`; `None` for `worker.count`.
    wanted: int | None = None
    #: Whether `wanted` is larger because agents were idle; it may then become smaller again.
    grown: bool = False
    #: `worker.count` when `wanted` was requested: another value of the option counts instead.
    configured: int = 0
    #: Time until which the wanted number waits for the next checkpoint; `None`: more workers did not fit.
    until: UnixTime | None = None
    #: Number of checkpoints when the wait began.
    saves: int | None = None
    #: Number that was wanted by request before it grew.
    requested: int | None = None


# --- Failures


class Cause(str, Enum):
    """Why a launch ended. This decides on a relaunch, and on counting a failure."""

    #: Exit code 0: the task is done and never relaunched.
    FINISHED = "finished"
    #: The program requested a restart after saving a checkpoint.
    RESTART_ASKED = "restart asked"
    #: The scheduler stopped it.
    STOPPED = "stopped"
    #: Mesos rejects the task; a relaunch would be rejected too.
    INVALID_TASK = "never"
    #: The program failed or exceeded its limits; counted as a failure.
    USER_ERROR = "user error"
    #: Agent, container, network or operator; not counted as a failure.
    INFRASTRUCTURE = "infrastructure"
    #: An error shortly after the loss of a peer, probably caused by it.
    COLLATERAL = "collateral"
    #: The launch did not reach an agent, or the agent could not start it.
    NOT_STARTED = "not started"
    #: Its server did not answer in time, which blocks its peers.
    NOT_JOINED = "not joined"
    #: An operator requested it.
    ORDERED = "ordered"

    @property
    def is_retryable(self) -> bool:
        """Whether a relaunch can help."""
        return self not in (Cause.FINISHED, Cause.STOPPED, Cause.INVALID_TASK)

    @property
    def is_counted(self) -> bool:
        """Whether an end with this cause counts against `restart.max_failures`."""
        return self is Cause.USER_ERROR


@dataclass(frozen=True, slots=True)
class LaunchEnd:
    """Facts about the end of a launch that decide its cause."""

    #: Mesos state, such as TASK_FAILED.
    state: str
    #: Mesos reason; empty for none.
    reason: str = ""
    #: How the program ended, if it ran.
    program: TaskEnd = NO_END
    #: Whether the scheduler had requested the end.
    was_requested: bool = False
    #: Whether the program had started.
    has_run: bool = True
    #: Whether the executor stopped it because its liveness check failed.
    was_unhealthy: bool = False
    #: Whether it could not connect while a task of its cluster was not up.
    awaited_peer: bool = False


#: Start of the reasons of launches that are replaced because of another task.
RESTARTS_WITH = "restarts with "


def is_own_cause(why: str) -> bool:
    """Return whether a launch is replaced for its own cause, not because of a peer."""
    return bool(why) and not why.startswith(RESTARTS_WITH)


@dataclass(frozen=True, slots=True)
class Recovery:
    """Planned relaunch of a task; after the relaunch, its history of failures."""

    task: TaskName
    #: Launch to be replaced: lost, or restarted with a lost peer.
    launch: TaskId
    cause: Cause
    why: str
    since: UnixTime
    #: Earliest relaunch after the back-off.
    ready_at: UnixTime
    #: The task may use only its previous address until then, to avoid restarting its peers.
    previous_address_until: UnixTime
    #: Times of the failures that count against `restart.max_failures`.
    failures: tuple[UnixTime, ...] = ()
    #: Times of the ends that count against `restart.max_uncounted`.
    uncounted: tuple[UnixTime, ...] = ()
    #: Consecutive ends of any cause shortly after their launch; the back-off grows with them.
    consecutive_failures: int = 0
    #: Recent launches whose server did not answer in time; the end of one that had joined resets it, but not if a
    #: task of the restart group is late.
    start_timeouts: int = 0
    #: Whether the task must move to another agent if possible.
    must_move: bool = False
    #: Error of the launch, or of the one it restarts with; or that Mesos rejected it.
    last_end: str = ""
    #: Addresses at which another process listened; other ports are preferred.
    bad_addresses: tuple[str, ...] = ()
    #: Whether a previous launch's server has answered.
    has_served: bool = False
    #: Whether a previous launch has reported progress, or run for some minutes.
    has_begun: bool = False
    #: Last step of `launch`, and step at its last checkpoint; None: not reported.
    step: int | None = None
    saved_step: int | None = None
    #: Time of the first of the consecutive launches, up to `launch`, whose programs did not start; 0: it has started.
    unstarted_since: UnixTime = 0.0


@dataclass(frozen=True, slots=True)
class AgentFailures:
    """Launch failures of an agent."""

    agent_id: AgentId
    hostname: str
    #: Times at which launches were lost or could not start; simultaneous failures count once.
    failures: tuple[UnixTime, ...] = ()
    #: The agent is avoided until then, if another one is suitable.
    avoided_until: UnixTime = 0.0
    #: Last task whose program was killed there, and when: the agent is at fault if those of two tasks are killed.
    killed_task: str = ""
    killed_at: UnixTime = 0.0


class PodVerb(str, Enum):
    """Commands for one task (dcos-commons, PodResource; here a pod is one task)."""

    #: Relaunch it, at its previous address if available.
    RESTART = "restart"
    #: Relaunch it on another agent.
    REPLACE = "replace"
    #: Stop its program and keep its resources until it is resumed.
    PAUSE = "pause"
    RESUME = "resume"


@dataclass(frozen=True, slots=True)
class TrainingCurve:
    """Progress reports of a task, oldest first, downsampled as they accumulate."""

    points: tuple[Progress, ...]
    #: Number of reports per point.
    stride: int = 1
