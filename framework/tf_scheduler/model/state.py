"""The scheduler's complete state as one immutable value."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tf_executor.contract.reports import Progress, Usage
from tf_executor.contract.states import SILENT_STATES, TaskState, Verdict

from .ids import AgentId, FrameworkId, TaskId, TaskName, UnixTime, name_of, task_name
from .offer import AgentSnapshot, Evaluation, InverseOffer, OfferRound
from .plan import PlanControl
from .secrets import SecretExposure
from .spec import JobKind, ServiceSpec
from .task import AbandonedLaunch, AgentFailures, Members, Recovery, Resized, TaskRecord, TaskStatus

_MAX_ANSWERED = 100
#: The only chief.
CHIEF = task_name(JobKind.CHIEF.value, 0)


#: Seconds until the first repetition of an unanswered request.
FIRST_WAIT = 5.0


@dataclass(frozen=True, slots=True)
class PendingReconciliation:
    """Requests for statuses on this connection, and the launches without an answer."""

    #: Launches without an answer, and those of `answered`.
    unanswered: frozenset[TaskId] = frozenset()
    #: When the status of these launches was last requested.
    asked_at: UnixTime = 0.0
    #: Seconds until the next request; doubled with each.
    retry_after: float = FIRST_WAIT
    #: When the status of all launches was last requested.
    started_at: UnixTime = 0.0
    #: Silent launches whose status was requested when their time was over, with the start of their silence.
    asked_again: Mapping[TaskId, UnixTime] = field(default_factory=dict)
    #: When the status of abandoned launches was last requested.
    abandoned_asked_at: UnixTime = 0.0
    #: The latest answers: to remove each from a set of all tasks would cost the square of their number.
    answered: frozenset[TaskId] = frozenset()

    def awaits(self, launch: TaskId) -> bool:
        """Return whether Mesos has not answered the request for the launch's status."""
        return launch in self.unanswered and launch not in self.answered

    def with_answer(self, launch: TaskId) -> PendingReconciliation:
        answered = self.answered | {launch}
        if len(answered) < min(_MAX_ANSWERED, len(self.unanswered)):
            return replace(self, answered=answered)
        return replace(self, unanswered=self.unanswered - answered, answered=frozenset())


@dataclass(frozen=True, slots=True)
class Configuration:
    """Options that are, or were, the target of the service."""

    #: UUID derived from the content.
    id: str
    #: Increases with each configuration; the highest stored number is the target's.
    number: int
    at: UnixTime
    #: Digest of the launch options of all tasks (core.plans).
    target: str
    #: Options that differ from the defaults, as for `dcos package install --options`; secrets are masked.
    options: Mapping[str, Any]
    #: Changes from the previous target (`option`, `old`, `new`), with defaults filled in; `None` if unknown.
    changed: Sequence[Mapping[str, Any]] | None = None


def newest_first(configurations: Mapping[str, Configuration]) -> list[Configuration]:
    """Return the configurations from the newest, which is the target, to the oldest."""
    return sorted(configurations.values(), key=lambda item: -item.number)


#: Maximum number of task names in one message, and in the stored result.
_NAMED = 5


@dataclass(frozen=True, slots=True)
class Result:
    """Result of the job; only its collateral failures change later."""

    verdict: Verdict
    reason: str
    decided_at: UnixTime
    #: First tasks that failed as a consequence, and the number of all.
    collateral: tuple[TaskName, ...] = ()
    collateral_count: int = 0

    def with_collateral(self, name: TaskName) -> Result:
        """Return the result after another task has failed as a consequence."""
        names = (*self.collateral, name)
        return replace(self, collateral=names[:_NAMED], collateral_count=self.collateral_count + 1)

    @property
    def sentence(self) -> str:
        """The reason and the tasks that failed as a consequence."""
        count = self.collateral_count
        if not count:
            return self.reason
        names = ", ".join(self.collateral[:_NAMED]) + (" ..." if count > _NAMED else "")
        return f"{self.reason}; {count} other{'' if count == 1 else 's'} failed as a consequence: {names}"


@dataclass(frozen=True, slots=True)
class StoredState:
    """Persistent state; only stored changes (`effects.Change`) modify it."""

    framework_id: FrameworkId | None = None
    #: Whether Mesos has removed the framework: torn down, or disconnected beyond failover_timeout.
    removed: bool = False
    tasks: Mapping[TaskName, TaskRecord] = field(default_factory=dict)
    statuses: Mapping[TaskId, TaskStatus] = field(default_factory=dict)
    result: Result | None = None
    #: Launch that a plan is stopping -> name of the plan; kept until the launch is replaced or erased.
    retired: Mapping[TaskId, str] = field(default_factory=dict)
    #: Plan -> effects of operators' commands.
    controls: Mapping[str, PlanControl] = field(default_factory=dict)
    #: Task -> latest recovery; see core/recovery.
    recoveries: Mapping[TaskName, Recovery] = field(default_factory=dict)
    #: Spec of the options while `spec` has another number of workers.
    full_spec: ServiceSpec | None = None
    resized: Resized = field(default_factory=lambda: Resized(None, 0.0))
    agent_failures: Mapping[AgentId, AgentFailures] = field(default_factory=dict)
    #: Paused task -> time of the pause.
    paused: Mapping[TaskName, UnixTime] = field(default_factory=dict)
    #: Launch that has fetched its secrets -> digest of the nonce of the request.
    redeemed_tokens: Mapping[TaskId, str] = field(default_factory=dict)
    #: Secrets that another process may have, by agent, until an operator acknowledges it.
    exposures: Mapping[AgentId, SecretExposure] = field(default_factory=dict)
    configurations: Mapping[str, Configuration] = field(default_factory=dict)
    #: Launches that may still run on agents that did not answer; their end was not reported.
    abandoned: Mapping[TaskId, AbandonedLaunch] = field(default_factory=dict)
    #: Workers of the running chief, if they may join and leave; see core/elastic/live_workers.py.
    members: Members | None = None


@dataclass(frozen=True, slots=True)
class DerivedState:
    """State derived from the stored state; the reducer updates it with each change."""

    #: Number of launches by last reported state.
    state_counts: Mapping[TaskState, int] = field(default_factory=dict)
    #: Number of running launches whose health check fails.
    unhealthy_count: int = 0
    #: Number of running launches whose server has not answered yet.
    starting_count: int = 0
    #: Number of running launches in the ClusterSpec whose server answers.
    joined_count: int = 0
    #: When to check all launches for timeouts; may be too early.
    next_check_at: UnixTime = math.inf
    #: Task whose launch a recovery will replace -> this launch.
    launches_to_replace: Mapping[TaskName, TaskId] = field(default_factory=dict)
    #: Task of `launches_to_replace` -> end of its back-off, until `recover.mark_ready` removes the task.
    delayed_tasks: Mapping[TaskName, UnixTime] = field(default_factory=dict)
    #: The first end of a back-off; may be too early.
    next_ready_at: UnixTime = math.inf
    #: Task -> time of its recent loss, without collateral losses; incomplete if there are many.
    recent_losses: Mapping[TaskName, UnixTime] = field(default_factory=dict)
    #: Time of the first launch; `None` before.
    first_launch_at: UnixTime | None = None
    #: Paused task -> placeholder launch that keeps its resources.
    idle_tasks: Mapping[TaskName, TaskId] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SessionState:
    """State of one connection to Mesos; void when the connection ends."""

    connected: bool = False
    connected_at: UnixTime = 0.0
    #: Region of the master.
    region: str = ""
    suppressed: bool = False
    round: OfferRound = field(default_factory=OfferRound)
    #: Agents with offers, the most recent last; for display only.
    agent_snapshots: Mapping[AgentId, AgentSnapshot] = field(default_factory=dict)
    #: Tasks for which offers were requested, by SUBSCRIBE or REVIVE.
    requested_tasks: frozenset[TaskName] = frozenset()
    #: Time since which offers are wanted and none was received; `None` if some were.
    no_offers_since: UnixTime | None = None
    #: When a pending REVIVE may be sent.
    revive_at: UnixTime | None = None
    #: Maintenance windows of agents that Mesos wants to vacate.
    windows: Mapping[AgentId, InverseOffer] = field(default_factory=dict)
    #: When tasks were last checked for windows that are near.
    drained_at: UnixTime = 0.0
    #: Launch -> time of the last KILL.
    kills: Mapping[TaskId, UnixTime] = field(default_factory=dict)
    #: Launch -> time of the first KILL.
    kill_requested_at: Mapping[TaskId, UnixTime] = field(default_factory=dict)
    next_kill_at: UnixTime = 0.0
    reconciliation: PendingReconciliation = field(default_factory=PendingReconciliation)
    teardown_at: UnixTime | None = None
    #: When the list of workers was last sent to the chief, and last compared.
    members_sent_at: UnixTime = 0.0
    members_checked_at: UnixTime = 0.0


@dataclass(frozen=True, slots=True)
class RefusedCalls:
    """Calls that Mesos has refused since it last accepted a call."""

    #: HTTP status and text of the last answer.
    cause: str
    #: Time of the first answer.
    since: UnixTime
    count: int = 1
    #: Whether a warning was given for these calls.
    is_reported: bool = False


@dataclass(frozen=True, slots=True)
class ProcessState:
    """State that survives reconnects, and is lost when the process ends."""

    #: Time until which the REVIVE calls that were sent use up their rate.
    revives_used_until: UnixTime = -math.inf
    #: Names of other frameworks that want offers (worker.elastic.grow); None: not known yet.
    waiting_frameworks: tuple[str, ...] | None = None
    #: Time at which `waiting_frameworks` changed last.
    demand_changed_at: UnixTime = 0.0
    #: Agent whose missing executor login was reported -> host name.
    unprotected_agents: Mapping[AgentId, str] = field(default_factory=dict)
    #: Latest offer evaluations, newest last.
    evaluations: tuple[Evaluation, ...] = ()
    #: Due time of the last warning about servers that do not answer.
    no_server_warned_at: UnixTime = 0.0
    progress: Mapping[TaskId, Progress] = field(default_factory=dict)
    #: Last launch that reported the resources that it uses.
    usage: Mapping[TaskName, tuple[TaskId, Usage]] = field(default_factory=dict)
    #: Task of the last progress report of this process, and time of its arrival.
    last_progress: tuple[TaskName, UnixTime] | None = None
    #: Last launch whose checkpoints are not stored, and why.
    storage_errors: Mapping[TaskName, tuple[TaskId, str]] = field(default_factory=dict)
    #: Whether TEARDOWN has begun to wait for the agents of abandoned launches.
    waits_for_agents: bool = False
    #: Messages about tasks that could not be removed in time.
    left_behind: tuple[str, ...] = ()
    #: Messages why the options of this process were rejected; the previous options stay active.
    rejected: tuple[str, ...] = ()
    is_erased: bool = False
    #: Launch without a status -> time of the last status request.
    launch_queries: Mapping[TaskId, UnixTime] = field(default_factory=dict)
    #: When the connection to Mesos was lost; `None` while connected, and before the first connection.
    disconnected_at: UnixTime | None = None
    #: `None` while Mesos accepts calls.
    refused_calls: RefusedCalls | None = None
    #: HTTP status of refused calls that was reported -> time of the last such refusal.
    reported_refusals: Mapping[int, UnixTime] = field(default_factory=dict)
    #: Seconds by which the master's clock is ahead; 0 if tolerable.
    clock_drift: float = 0.0
    #: Whether an operator requested the end: no task is retained after the job.
    stop_requested: bool = False
    #: Whether the service is done: torn down, or permanently refused.
    finished: bool = False
    #: Why Mesos or the scheduler refused the framework permanently: a whole sentence.
    refused: str = ""
    #: Whether it was refused because another scheduler has subscribed as this framework.
    has_rival: bool = False


@dataclass(frozen=True, slots=True)
class SchedulerState:
    """The spec and the state, grouped by lifetime."""

    spec: ServiceSpec
    stored: StoredState = field(default_factory=StoredState)
    derived: DerivedState = field(default_factory=DerivedState)
    session: SessionState = field(default_factory=SessionState)
    process: ProcessState = field(default_factory=ProcessState)

    def with_session(self, **changes: Any) -> SchedulerState:
        """Return the state with these fields of `session` replaced."""
        return replace(self, session=replace(self.session, **changes))

    def with_round(self, offer_round: OfferRound) -> SchedulerState:
        """Return the state with this offer round."""
        return self if offer_round is self.session.round else self.with_session(round=offer_round)

    def with_process(self, **changes: Any) -> SchedulerState:
        """Return the state with these fields of `process` replaced."""
        return replace(self, process=replace(self.process, **changes))

    def with_derived(self, **changes: Any) -> SchedulerState:
        """Return the state with these fields of `derived` replaced."""
        return replace(self, derived=replace(self.derived, **changes))

    def status(self, name: TaskName) -> TaskStatus | None:
        """Return the last status of the task's current launch."""
        record = self.stored.tasks.get(name)
        return None if record is None else self.stored.statuses.get(record.id)

    def is_live(self, record: TaskRecord) -> bool:
        """Return whether the launch may still be running."""
        status = self.stored.statuses.get(record.id)
        return status is None or not status.state.has_ended

    def has_run(self, record: TaskRecord) -> bool:
        """Return whether the launch has begun its program, or ended."""
        status = self.stored.statuses.get(record.id)
        return status is not None and status.state.has_program

    def is_silent(self, record: TaskRecord) -> bool:
        """Return whether Mesos cannot reach the launch, which may still be running."""
        status = self.stored.statuses.get(record.id)
        return status is not None and status.state.is_silent

    def has_silent_tasks(self) -> bool:
        """Return whether any launch is silent, in constant time."""
        return not SILENT_STATES.isdisjoint(self.derived.state_counts)

    def is_finished(self, record: TaskRecord) -> bool:
        """Return whether the launch has finished; its task is not relaunched."""
        status = self.stored.statuses.get(record.id)
        return status is not None and status.state is TaskState.FINISHED

    def is_replaced(self, record: TaskRecord) -> bool:
        """Return whether a recovery will replace this launch."""
        recovery = self.stored.recoveries.get(record.name)
        return recovery is not None and recovery.launch == record.id

    def living_chief(self) -> TaskRecord | None:
        """Return the chief if its workers may join and leave, unless it is being replaced.

        It may be silent or frozen: its program then still uses its workers.
        """
        chief = self.stored.tasks.get(CHIEF) if self.spec.live else None
        if chief is None or chief.id in self.stored.retired or self.is_replaced(chief) or not self.is_live(chief):
            return None
        return chief

    def chief_in_service(self) -> TaskRecord | None:
        """Return the living chief if it answers."""
        chief = self.living_chief()
        status = None if chief is None else self.stored.statuses.get(chief.id)
        return chief if status is not None and status.state is TaskState.RUNNING and status.healthy else None

    def members_of_chief(self) -> Members | None:
        """Return the last list of workers for the living chief; `None` if it has no list."""
        chief, members = self.living_chief(), self.stored.members
        return members if chief is not None and members is not None and members.chief == chief.id else None

    def is_probably_used(self, worker: TaskRecord) -> bool:
        """Return whether the chief may use the worker.

        The chief must then confirm a list without the worker before the worker is stopped.
        """
        chief, members = self.living_chief(), self.members_of_chief()
        if chief is None or worker.job is not JobKind.WORKER or not self.is_live(worker):
            return False
        if members is None:
            return worker.serial <= chief.serial  # it is in the chief's ClusterSpec
        status = self.stored.statuses.get(worker.id)
        may_have_joined = status is not None and (status.healthy is True or status.state.is_silent)
        return worker.name in members.workers or (may_have_joined and not members.confirmed)

    def count_workers(self) -> int:
        """Return the number of running workers; with a list of workers, only those in it."""
        members = self.members_of_chief()
        running = (
            name
            for name, record in self.stored.tasks.items()
            if record.job is JobKind.WORKER and (status := self.status(name)) and status.state is TaskState.RUNNING
        )
        return sum(members is None or name in members.workers for name in running)

    def is_ready(self, name: TaskName) -> bool:
        """Return whether the task may be launched now: its back-off, if any, is over."""
        return name not in self.derived.delayed_tasks

    def storage_error(self, name: TaskName) -> str:
        """Return why the task's checkpoints are not stored; empty if they are."""
        launch, error = self.process.storage_errors.get(name, ("", ""))
        record = self.stored.tasks.get(name)
        return error if record is not None and record.id == launch else ""

    def live(self) -> tuple[TaskRecord, ...]:
        """Return every launch that may still be running, in launch order."""
        return tuple(record for record in self.stored.tasks.values() if self.is_live(record))

    def at_goal_count(self) -> int:
        """Return the number of finished and healthy running launches, in constant time."""
        return (
            self.derived.state_counts.get(TaskState.RUNNING, 0)
            + self.derived.state_counts.get(TaskState.FINISHED, 0)
            - self.derived.unhealthy_count
        )

    def of_current_launches(self, times: Mapping[TaskId, UnixTime]) -> dict[TaskId, UnixTime]:
        """Return the entries whose launch is still the current launch of its task."""
        records = ((launch, self.stored.tasks.get(name_of(launch))) for launch in times)
        return {launch: times[launch] for launch, record in records if record is not None and record.id == launch}

    def unstarted_count(self) -> int:
        """Return the number of launches that have not started, in constant time."""
        staging = self.derived.state_counts.get(TaskState.STAGING, 0)
        return len(self.stored.tasks) - len(self.stored.statuses) + staging

    def is_any_starting(self) -> bool:
        """Return whether a launch has not begun its program, in constant time."""
        return bool(self.unstarted_count() or self.derived.state_counts.get(TaskState.STARTING))

    def live_count(self) -> int:
        """Return the number of launches that may still be running, in constant time."""
        return len(self.stored.tasks) - sum(
            count for state, count in self.derived.state_counts.items() if state.has_ended
        )

    def unplaced(self) -> tuple[TaskName, ...]:
        """Return the names of tasks that were never launched."""
        return tuple(task.name for task in self.spec.tasks() if task.name not in self.stored.tasks)


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """A journal entry: one outcome of a decision."""

    #: Consecutive number of the service's entries, across restarts of the scheduler.
    number: int
    at: UnixTime
    #: Kind of the event, such as `StatusUpdated`.
    kind: str
    message: str
    task: TaskName | None = None
    #: Whether an operator should check it.
    warning: bool = False
