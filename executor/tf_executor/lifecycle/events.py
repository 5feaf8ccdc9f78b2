"""Events, actions and state of `lifecycle`, and the texts of status updates. Pure."""

from __future__ import annotations

import signal
from dataclasses import dataclass, replace
from enum import Enum

from tf_executor.contract.reports import NO_END, TaskEnd


class Stage(Enum):
    """Stages of a task in order; each value is for messages. PROGRAM is always there."""

    #: Checks inside the executor that no newer launch uses CHECKPOINT_DIR.
    FENCE = "check of CHECKPOINT_DIR"
    #: Fetches secrets from the scheduler, inside the executor.
    SECRETS = "secrets"
    #: Chooses GPUs.
    DEVICES = "choice of GPUs"
    #: Restores checkpoints from object storage.
    STORAGE = "storage"
    FETCH = "fetch"
    PRE = "pre"
    GPU_CHECK = "GPU check"
    PROGRAM = "program"
    #: Copies new files to CHECKPOINT_DIR.
    KEEP = "copy of files"
    #: Waits until the program's last checkpoint is stored.
    SAVE = "upload of checkpoints"
    POST = "post"


# Events.


class Event:
    """Input of `lifecycle.steps.step`."""


@dataclass(frozen=True)
class LaunchRequested(Event):
    """The task can be started."""

    #: In running order, including PROGRAM.
    stages: tuple[Stage, ...] = (Stage.PROGRAM,)
    #: Maximum seconds of all stages together; None: unlimited.
    time_limit: float | None = None
    #: Maximum seconds of each stage except the program.
    hook_timeout: float | None = None
    #: Seconds between SIGTERM and SIGKILL when the executor itself stops the task.
    grace: float = 0.0


@dataclass(frozen=True)
class LaunchRefused(Event):
    """The task cannot be started: its payload is invalid."""

    reason: str


@dataclass(frozen=True)
class Spawned(Event):
    """The stage is running."""


@dataclass(frozen=True)
class SpawnFailed(Event):
    """The system could not start the stage."""

    reason: str
    #: The program's error with a shell's exit code 127, if no launch on this agent could start; or a port in use.
    ending: TaskEnd = NO_END


@dataclass(frozen=True)
class Exited(Event):
    """The stage's main process has exited; its children may still run."""

    ending: TaskEnd
    #: Message about OOM kills and stopped processes; empty without any.
    evidence: str = ""


@dataclass(frozen=True)
class Prepared(Event):
    """A stage that runs inside the executor has ended; `reason` is set if it failed."""

    reason: str = ""


@dataclass(frozen=True)
class TreeGone(Event):
    """All processes of the task have exited."""


@dataclass(frozen=True)
class Ready(Event):
    """The program's server accepts connections."""

    message: str


@dataclass(frozen=True)
class TaskStopRequested(Event):
    """A KILL or SHUTDOWN event, or a signal to the executor."""

    #: For the message of the last update.
    reason: str
    #: Seconds between SIGTERM and SIGKILL.
    grace: float


@dataclass(frozen=True)
class Unhealthy(Event):
    """The program runs but fails its liveness check."""

    reason: str
    #: Whether its processes were stopped or blocked for too long.
    is_frozen: bool = False


@dataclass(frozen=True)
class FreezeChanged(Event):
    """The program's processes were stopped or blocked, or have continued."""

    message: str
    is_frozen: bool


@dataclass(frozen=True)
class MemoryExceeded(Event):
    """The program's processes use more memory than the task has."""

    reason: str


@dataclass(frozen=True)
class Superseded(Event):
    """A newer launch of the task uses the checkpoint folder."""

    reason: str
    #: Whether another framework has the folder, so that no relaunch gets it back.
    is_final: bool


@dataclass(frozen=True)
class Overdue(Event):
    """`LifecycleState.deadline` has passed."""

    #: File that the program is writing; empty if unknown.
    writes: str = ""


@dataclass(frozen=True)
class Acknowledged(Event):
    """The agent has stored the last update."""


@dataclass(frozen=True)
class AgentConnected(Event):
    """The agent has accepted the subscription, initially or after a reconnect."""

    #: Whether the framework understands TASK_KILLING.
    killing_known: bool = False


@dataclass(frozen=True)
class AgentDisconnected(Event):
    """The connection to the agent is lost and may be restored."""


@dataclass(frozen=True)
class AgentLost(Event):
    """The connection to the agent is lost permanently."""

    reason: str
    #: Seconds for the program to write a checkpoint.
    grace: float


# Actions.


class Action:
    """Output of `lifecycle.steps.step`."""


@dataclass(frozen=True)
class SendReport(Action):
    """Send a status update."""

    state: str
    message: str = ""
    #: Set on the updates after the end of a program that ran.
    ending: TaskEnd | None = None
    #: TaskStatus.Reason; empty: none.
    reason: str = ""
    #: Result of readiness and liveness checks; None: not known yet.
    healthy: bool | None = None

    @property
    def is_final(self) -> bool:
        """Whether this is the last update: Mesos drops further updates of the task."""
        return self.state in ("TASK_FINISHED", "TASK_FAILED", "TASK_KILLED")


@dataclass(frozen=True)
class Spawn(Action):
    """Start the stage; the runner answers with Spawned or SpawnFailed."""

    stage: Stage = Stage.PROGRAM


@dataclass(frozen=True)
class Terminate(Action):
    """Send SIGTERM to every process of the task."""


@dataclass(frozen=True)
class KillTree(Action):
    """Send SIGKILL to every process of the task until all have exited."""


@dataclass(frozen=True)
class Leave(Action):
    """Exit the executor."""

    exit_code: int = 0


# Messages: why a task ended, for people.

UNKILLED = "; some processes could not be killed and may still run"
#: A shell returns this plus the signal number when its last command was killed.
_SHELL_SIGNAL_BASE = 128
_SHELL_HINTS = {126: "command not executable", 127: "command not found"}
#: Stage -> noun in messages.
NOUNS = {
    Stage.FENCE: "the check of CHECKPOINT_DIR",
    Stage.SECRETS: "the fetch of secrets",
    Stage.DEVICES: "the choice of GPUs",
    Stage.STORAGE: "the restore of checkpoints",
    Stage.FETCH: "the fetch of files",
    Stage.PRE: "the pre command",
    Stage.GPU_CHECK: "the GPU check",
    Stage.PROGRAM: "the program",
    Stage.KEEP: "the copy of files",
    Stage.SAVE: "the upload of checkpoints",
    Stage.POST: "the post command",
}


@dataclass(frozen=True)
class StopReason:
    """Why a task was stopped."""

    #: For the message of the last update.
    message: str
    #: True: the task failed. False: it was stopped on request.
    failed: bool = False
    #: Mesos' word for why; empty: none.
    reason: str = ""
    healthy: bool | None = None
    #: Whether the program was frozen: its exit code then says nothing.
    was_frozen: bool = False
    #: Whether the program was killed because of its memory.
    out_of_memory: bool = False
    #: When the stop was requested; 0: unknown.
    at: float = 0.0
    #: How processes that were still there after the grace period were killed; empty: none were.
    kill: str = ""


def final_report(
    ending: TaskEnd, stopped: StopReason | None = None, failure: str = "", evidence: str = "", started: bool = True
) -> SendReport:
    """Return the task's last update.

    `ending`: how the program ended. `failure`: message about another stage that failed. `evidence`: see Exited.
    """
    if stopped is not None:
        if stopped.out_of_memory:
            # A shell whose child was killed first may have another exit code, and the output another error.
            ending = TaskEnd(signal=signal.SIGKILL, out_of_memory=True)
        state = "TASK_FAILED" if stopped.failed else "TASK_KILLED"
        how = "the program had not started"
        if started:
            how = describe_end(ending) if stopped.failed else stopped.kill or _describe_stop(ending)
        ending = replace(ending, was_frozen=True) if stopped.was_frozen else ending
        return SendReport(state, _joined(stopped.message, how), ending, stopped.reason, stopped.healthy)
    if not started:
        return SendReport("TASK_FAILED", _joined(failure, evidence), ending)
    if ending.exit_code == 0 and not failure:
        return SendReport("TASK_FINISHED", describe_end(ending), ending)
    if ending.exit_code == 0:
        return SendReport("TASK_FAILED", _joined(f"the program succeeded, but {failure}", evidence), ending)
    return SendReport("TASK_FAILED", _joined(describe_end(ending), evidence, failure), ending)


def describe_end(ending: TaskEnd) -> str:
    """Return how a process ended.

    The text does not explain SIGKILL by memory, because any process can send SIGKILL. Only the kernel's counters show
    that memory ran out (`evidence`).
    """
    if ending.signal is not None:
        return "killed by " + _name(ending.signal)
    if ending.exit_code is None:
        return "the program did not exit"
    return f"exit code {ending.exit_code}{_hint(ending.exit_code)}"


def _describe_stop(ending: TaskEnd) -> str:
    """Return how a process ended after a request to stop; empty if it obeyed."""
    is_asked = ending.signal == signal.SIGTERM or ending.exit_code in (0, _SHELL_SIGNAL_BASE + signal.SIGTERM)
    return "" if is_asked else describe_end(ending)


def _joined(*parts: str) -> str:
    return "; ".join(part for part in parts if part)


def _hint(code: int) -> str:
    if code in _SHELL_HINTS:
        return f" ({_SHELL_HINTS[code]})"
    number = code - _SHELL_SIGNAL_BASE
    if number in [int(item) for item in signal.Signals]:
        return f" (killed by {_name(number)})"
    return ""


def _name(number: int) -> str:
    try:
        return f"signal {number} ({signal.Signals(number).name})"
    except ValueError:
        return f"signal {number}"


# State of `lifecycle`.


class TaskPhase(Enum):
    """Phase of the task's life, see `lifecycle.steps`."""

    IDLE = "idle"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    SWEEPING = "sweeping"
    KILLING = "killing"
    ENDED = "ended"
    CLOSED = "closed"


@dataclass(frozen=True)
class LifecycleState:
    """State of the task. Times are seconds of one monotonic clock."""

    phase: TaskPhase = TaskPhase.IDLE
    #: When to send `Overdue`; None: never.
    deadline: float | None = None
    launch: LaunchRequested = LaunchRequested()
    #: The running or last stage; None: none yet.
    stage: Stage | None = None
    #: The remaining stages.
    ahead: tuple[Stage, ...] = ()
    #: Deadline of all stages together; None: unlimited.
    time_limit: float | None = None
    #: How the program exited.
    ending: TaskEnd = NO_END
    #: See Exited.
    evidence: str = ""
    #: Message about another stage that failed; empty: none.
    failure: str = ""
    #: TaskStatus.Reason of that failure; empty: none.
    failure_reason: str = ""
    #: Why the task was stopped; None: it was not.
    stopped: StopReason | None = None
    healthy: bool | None = None
    killing_known: bool = False
    connected: bool = True
    aborted: bool = False

    @property
    def program_started(self) -> bool:
        return self.stage in (Stage.PROGRAM, Stage.KEEP, Stage.SAVE, Stage.POST)

    def entered(self, phase: TaskPhase, deadline: float | None = None) -> LifecycleState:
        """Return this state in another phase, with the deadline of that phase."""
        return replace(self, phase=phase, deadline=deadline)

    def with_failure(self, failure: str) -> LifecycleState:
        """Return the state after a failure of the current stage: no stage follows."""
        failed_stage = self.stage.value if self.stage and self.stage is not Stage.PROGRAM else self.ending.failed_stage
        return replace(self, failure=failure, ahead=(), ending=replace(self.ending, failed_stage=failed_stage))
