"""Everything the scheduler knows, as one immutable value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from .configuration import Configuration
from .evaluation import FULL_BUCKET, Bucket, Evaluation, Gathering
from .ids import AgentId, FrameworkId, OfferId, TaskId, TaskName
from .inquiry import Inquiry
from .offer import Glimpse, HeldOffer, InverseOffer, Offer
from .plan import PlanControl
from .progress import Progress
from .reasons import Reason
from .recovery import Recovery, Suspect
from .reservation import Reservation
from .spec import ServiceSpec
from .task import TaskRecord, TaskState, TaskStatus

#: So many names of tasks in one sentence.
_NAMED = 5


class Verdict(str, Enum):
    """How the service ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class Result:
    """Decided once, and stored; later only `collateral` grows."""

    verdict: Verdict
    #: A sentence for the user.
    reason: str
    #: Seconds since the epoch.
    decided_at: float
    #: Tasks that failed by themselves soon after, because of it.
    collateral: tuple[TaskName, ...] = ()

    @property
    def sentence(self) -> str:
        """The reason, and who ended because of it."""
        count = len(self.collateral)
        if not count:
            return self.reason
        names = ", ".join(self.collateral[:_NAMED]) + (" ..." if count > _NAMED else "")
        return f"{self.reason}; {count} other{'' if count == 1 else 's'} ended because of it: {names}"


@dataclass(frozen=True, slots=True)
class SchedulerState:
    """Stored fields survive the scheduler; the volatile ones are void with the connection to Mesos."""

    spec: ServiceSpec
    # -- stored
    framework_id: FrameworkId | None = None
    #: Mesos has removed the framework: torn down, or away for longer than its failover_timeout.
    removed: bool = False
    tasks: Mapping[TaskName, TaskRecord] = field(default_factory=dict)
    statuses: Mapping[TaskId, TaskStatus] = field(default_factory=dict)
    result: Result | None = None
    #: By id; see core/reserve.py.
    reservations: Mapping[str, Reservation] = field(default_factory=dict)
    #: Launches that a plan has told to end, until they are replaced or forgotten -> that plan.
    retired: Mapping[TaskId, str] = field(default_factory=dict)
    #: Plan -> what operators did to it.
    controls: Mapping[str, PlanControl] = field(default_factory=dict)
    #: Task -> the launch of it that is to be replaced, or was; see core/recovery.
    recoveries: Mapping[TaskName, Recovery] = field(default_factory=dict)
    #: What the options want, while the cluster is smaller: then `spec` is what it is now.
    full: ServiceSpec | None = None
    #: When that was decided; seconds since the epoch.
    resized_at: float = 0.0
    #: What is held against agents, by their ids.
    suspects: Mapping[AgentId, Suspect] = field(default_factory=dict)
    #: Tasks that an operator has paused -> since when; seconds since the epoch.
    paused: Mapping[TaskName, float] = field(default_factory=dict)
    #: Launches that have got their secrets -> digest of the nonce that asked for them.
    given: Mapping[TaskId, str] = field(default_factory=dict)
    #: By id.
    configurations: Mapping[str, Configuration] = field(default_factory=dict)
    # -- kept beside them by the reducer
    #: How many launches are in each state, by what Mesos said last.
    tally: Mapping[TaskState, int] = field(default_factory=dict)
    #: How many of those that run have a health check that says no.
    unready: int = 0
    #: Launches that run and have not joined the others -> since when they run, by our clock.
    joining: Mapping[TaskId, float] = field(default_factory=dict)
    #: Launches of which Mesos has said nothing, or TASK_STAGING -> when they were made; seconds since the epoch.
    unstarted: Mapping[TaskId, float] = field(default_factory=dict)
    #: No launch without a status was made, or asked for, before; seconds since the epoch.
    silent_since: float = 0.0
    # -- volatile
    connected: bool = False
    #: Since when; seconds since the epoch.
    connected_at: float = 0.0
    suppressed: bool = False
    offers: Mapping[OfferId, HeldOffer] = field(default_factory=dict)
    gathering: Gathering = field(default_factory=Gathering)
    #: The last offers of agents that no pending task could use: declined for long, and part of the reasons.
    passed: Mapping[AgentId, Offer] = field(default_factory=dict)
    #: The agents that have offered, those that did last at the end; for people only. See core/glimpses.py.
    glimpses: Mapping[AgentId, Glimpse] = field(default_factory=dict)
    #: Why each pending task was not placed by the last decision; empty when it was not tried.
    pending: Mapping[TaskName, tuple[Reason, ...]] = field(default_factory=dict)
    #: The tasks that Mesos was asked to offer for: by SUBSCRIBE, or by REVIVE since.
    asked_for: frozenset[TaskName] = frozenset()
    #: Of REVIVE.
    bucket: Bucket = FULL_BUCKET
    #: Since when offers are wanted and none has come; None when some have. Seconds since the epoch.
    unoffered_since: float | None = None
    #: When the next token for a REVIVE that is due can be had; seconds since the epoch.
    revive_at: float | None = None
    #: Reservations that were found to be past their deadline.
    expired: frozenset[str] = frozenset()
    #: Ids of reservations for which UNRESERVE was sent on this connection.
    returned: frozenset[str] = frozenset()
    #: Reservations that were made, and whose agents offer without them -> since when; seconds since the epoch.
    missed: Mapping[str, float] = field(default_factory=dict)
    #: When UNRESERVE was last sent; seconds since the epoch.
    given_back_at: float = 0.0
    #: Agents that do not tell what becomes of operations.
    mute: frozenset[AgentId] = frozenset()
    #: When RESERVE was last sent, or Mesos asked what became of it; seconds since the epoch.
    operations_at: float = 0.0
    #: The last decisions on offers, newest last.
    evaluations: tuple[Evaluation, ...] = ()
    #: Region of the master.
    region: str = ""
    #: Maintenance windows of agents that Mesos wants to have back.
    windows: Mapping[AgentId, InverseOffer] = field(default_factory=dict)
    #: Launches to be replaced whose back-off is over.
    ripe: frozenset[TaskId] = frozenset()
    #: When it was told last that nobody's server answers: the time at which that was due; seconds since the epoch.
    told_mute: float = 0.0
    #: What the executor of each launch told last of its training.
    progress: Mapping[TaskId, Progress] = field(default_factory=dict)
    #: When each task was last asked to end; seconds since the epoch.
    kills: Mapping[TaskId, float] = field(default_factory=dict)
    #: Nobody is to be asked to end before; seconds since the epoch.
    kill_at: float = 0.0
    #: When each launch was first asked to end, on this connection; seconds since the epoch.
    asked: Mapping[TaskId, float] = field(default_factory=dict)
    #: What could not be ended or given back in time: a sentence each.
    left: tuple[str, ...] = ()
    #: Why the options that the scheduler was started with are refused: then those before hold, a sentence each.
    rejected: tuple[str, ...] = ()
    #: Nothing is stored of the service any more.
    forgotten: bool = False
    #: What Mesos was asked on this connection, and has not answered.
    inquiry: Inquiry = field(default_factory=Inquiry)
    #: When Mesos was last asked about a launch that it has said nothing of; seconds since the epoch.
    inquiries: Mapping[TaskId, float] = field(default_factory=dict)
    #: Somebody wants the end: nothing is kept after the job.
    leaving: bool = False
    #: When TEARDOWN was last sent on this connection; seconds since the epoch.
    teardown_at: float | None = None
    #: Nothing is left to do: torn down, or refused for good.
    over: bool = False
    #: Mesos refused us for good: the sentence for the operator.
    refused: str = ""

    def status(self, name: TaskName) -> TaskStatus | None:
        """What Mesos last said of the current launch of `name`."""
        record = self.tasks.get(name)
        return None if record is None else self.statuses.get(record.id)

    def is_live(self, record: TaskRecord) -> bool:
        """Whether the launch may still be running somewhere, as far as we know."""
        status = self.statuses.get(record.id)
        return status is None or not status.state.ended

    def live(self) -> tuple[TaskRecord, ...]:
        """Every launch that may still be running, in the order of launching."""
        return tuple(record for record in self.tasks.values() if self.is_live(record))

    def at_goal(self) -> int:
        """How many launches run, and well as far as we know, or have finished; without looking at each."""
        return self.tally.get(TaskState.RUNNING, 0) + self.tally.get(TaskState.FINISHED, 0) - self.unready

    def live_count(self) -> int:
        """How many launches may still be running; without looking at each."""
        return len(self.tasks) - sum(count for state, count in self.tally.items() if state.ended)

    def unplaced(self) -> tuple[TaskName, ...]:
        """Tasks that shall run and were never launched."""
        return tuple(task.name for task in self.spec.tasks() if task.name not in self.tasks)
