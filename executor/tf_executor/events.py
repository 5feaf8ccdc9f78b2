"""What happens to the one task, and what the executor does about it: the alphabet of `lifecycle`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Union

from tf_executor.reports import Ending


class Stage(Enum):
    """What is run for a task, one after the other; only the program must be there. The values are for messages."""

    #: Gets the secrets from the scheduler, in no process of its own.
    SECRETS = "secrets"
    #: Chooses GPUs; may be done without a process.
    DEVICES = "choice of GPUs"
    FETCH = "fetch"
    PRE = "pre"
    GPU_CHECK = "GPU check"
    PROGRAM = "program"
    POST = "post"


# Events.


@dataclass(frozen=True)
class Launch:
    """The task has come and can be started."""

    #: In the order in which they run; PROGRAM is among them.
    stages: tuple[Stage, ...] = (Stage.PROGRAM,)
    #: Seconds that all stages together may take.
    time_limit: float | None = None
    #: Seconds that each stage but the program may take.
    hook_timeout: float | None = None
    #: Seconds between SIGTERM and SIGKILL when the executor itself ends the task.
    grace: float = 0.0


@dataclass(frozen=True)
class Refused:
    """The task has come and cannot be started: its payload is broken."""

    reason: str


@dataclass(frozen=True)
class Spawned:
    """The stage runs."""


@dataclass(frozen=True)
class SpawnFailed:
    """The system would not start the stage."""

    reason: str


@dataclass(frozen=True)
class Exited:
    """The stage's own process has ended; processes that it started may live on."""

    ending: Ending
    #: What the kernel did in the task's container for lack of memory; empty: nothing.
    memory: str = ""


@dataclass(frozen=True)
class Prepared:
    """A stage that is no process is over. With a reason: it failed, and the task with it."""

    reason: str = ""


@dataclass(frozen=True)
class TreeGone:
    """No process of the task is left."""


@dataclass(frozen=True)
class Ready:
    """The program's server answers."""

    message: str


@dataclass(frozen=True)
class Stop:
    """Somebody wants the task to end: a KILL or a SHUTDOWN event, a signal to the executor."""

    #: Who, for the message of the last update.
    reason: str
    #: Seconds between SIGTERM and SIGKILL.
    grace: float


@dataclass(frozen=True)
class Unhealthy:
    """The program runs but does not work any more."""

    reason: str


@dataclass(frozen=True)
class Overdue:
    """`State.deadline` has passed."""


@dataclass(frozen=True)
class Acknowledged:
    """The agent has stored the last update."""


@dataclass(frozen=True)
class Connected:
    """The agent has taken our subscription, the first or another one."""

    #: Whether the framework understands TASK_KILLING.
    killing_known: bool = False


@dataclass(frozen=True)
class Disconnected:
    """The agent is away; it may come back."""


@dataclass(frozen=True)
class Aborted:
    """The agent is gone for good: nobody hears us any more."""

    reason: str
    #: Seconds that the program still gets to write a checkpoint.
    grace: float


Event = Union[
    Launch,
    Refused,
    Spawned,
    SpawnFailed,
    Exited,
    Prepared,
    TreeGone,
    Ready,
    Stop,
    Unhealthy,
    Overdue,
    Acknowledged,
    Connected,
    Disconnected,
    Aborted,
]


# Actions.


@dataclass(frozen=True)
class Report:
    """Send a status update."""

    state: str
    message: str = ""
    #: Set on the last update of a program that ran.
    ending: Ending | None = None
    #: Mesos' word for why; empty: none.
    reason: str = ""
    #: What readiness and liveness say; None: nothing yet.
    healthy: bool | None = None

    @property
    def is_final(self) -> bool:
        """Whether nothing follows: Mesos drops further updates of the task."""
        return self.state in ("TASK_FINISHED", "TASK_FAILED", "TASK_KILLED")


@dataclass(frozen=True)
class Spawn:
    """Start the stage; answer with Spawned or SpawnFailed."""

    stage: Stage = Stage.PROGRAM


@dataclass(frozen=True)
class Terminate:
    """SIGTERM to every process of the task."""


@dataclass(frozen=True)
class Kill:
    """SIGKILL to every process of the task, until none is left."""


@dataclass(frozen=True)
class Leave:
    """End the executor."""

    exit_code: int = 0


Action = Union[Report, Spawn, Terminate, Kill, Leave]
