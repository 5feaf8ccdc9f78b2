"""What a decision changes: stored in one transaction before any call leaves."""

from __future__ import annotations

from dataclasses import dataclass

from .configuration import Configuration
from .ids import FrameworkId, TaskId, TaskName
from .plan import PlanControl
from .recovery import Recovery, Suspect
from .reservation import Reservation
from .state import Result
from .task import TaskRecord, TaskStatus


@dataclass(frozen=True, slots=True)
class FrameworkRegistered:
    framework_id: FrameworkId
    #: Mesos has removed it since: it can never be used again.
    removed: bool = False


@dataclass(frozen=True, slots=True)
class FrameworkForgotten:
    """With everything that existed in Mesos through it, and how the job ended. What operators decided stays."""


@dataclass(frozen=True, slots=True)
class TaskLaunched:
    """Intent: stored before ACCEPT is sent. Replaces the record of an earlier launch of the same name."""

    record: TaskRecord


@dataclass(frozen=True, slots=True)
class StatusStored:
    status: TaskStatus


@dataclass(frozen=True, slots=True)
class ResultDecided:
    result: Result


@dataclass(frozen=True, slots=True)
class ReservationMade:
    """Intent: stored before RESERVE is sent."""

    reservation: Reservation


@dataclass(frozen=True, slots=True)
class ReservationDropped:
    """Used for a launch, given back, or lost."""

    id: str


@dataclass(frozen=True, slots=True)
class LaunchRetired:
    """A plan has told a launch to end: to launch its task again, or because it is not wanted any more."""

    task_id: TaskId
    plan: str


@dataclass(frozen=True, slots=True)
class RecoveryDecided:
    """A launch is to be replaced: it is lost, or starts again with a lost one."""

    recovery: Recovery


@dataclass(frozen=True, slots=True)
class AgentSuspected:
    """One more launch has failed there."""

    suspect: Suspect


@dataclass(frozen=True, slots=True)
class Resized:
    """The cluster starts again with fewer workers than the options want, or with all of them."""

    #: None: as the options say.
    count: int | None
    #: Seconds since the epoch.
    at: float


@dataclass(frozen=True, slots=True)
class TaskPaused:
    """An operator has paused a task: it is not launched before it is resumed."""

    name: TaskName
    #: Seconds since the epoch.
    since: float


@dataclass(frozen=True, slots=True)
class TaskResumed:
    name: TaskName


@dataclass(frozen=True, slots=True)
class SecretsGiven:
    """The token of a launch is used: who has the same nonce may ask again, nobody else."""

    task_id: TaskId
    #: Digest of it.
    nonce: str


@dataclass(frozen=True, slots=True)
class TaskForgotten:
    """A decommissioned task has ended: its record and status are erased."""

    name: TaskName


@dataclass(frozen=True, slots=True)
class ConfigurationStored:
    """It is the target from now on."""

    configuration: Configuration


@dataclass(frozen=True, slots=True)
class ConfigurationForgotten:
    """One of the oldest."""

    id: str


@dataclass(frozen=True, slots=True)
class PlanControlled:
    """An operator did something to a plan, or it is complete."""

    plan: str
    control: PlanControl


#: A closed set: `core.reduce` and `store.records` know each of them.
Change = (
    FrameworkRegistered
    | FrameworkForgotten
    | TaskLaunched
    | StatusStored
    | ResultDecided
    | ReservationMade
    | ReservationDropped
    | LaunchRetired
    | RecoveryDecided
    | AgentSuspected
    | Resized
    | TaskPaused
    | TaskResumed
    | SecretsGiven
    | TaskForgotten
    | PlanControlled
    | ConfigurationStored
    | ConfigurationForgotten
)
