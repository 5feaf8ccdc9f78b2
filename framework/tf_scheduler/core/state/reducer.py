"""Apply changes to a state, in decisions and when the scheduler starts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Generic, TypeVar

from tf_executor.contract.states import SILENT_STATES, TaskState, assert_never
from tf_scheduler.core.state.spec_index import held_spec, wanted_spec, with_workers
from tf_scheduler.model import effects
from tf_scheduler.model.ids import AgentId, FrameworkId, TaskId, TaskName, UnixTime, name_of
from tf_scheduler.model.plan import PlanControl
from tf_scheduler.model.secrets import SecretExposure
from tf_scheduler.model.spec import ServiceSpec, kind_of
from tf_scheduler.model.state import Configuration, DerivedState, Result, SchedulerState, StoredState
from tf_scheduler.model.task import (
    AbandonedLaunch,
    AgentFailures,
    Cause,
    Members,
    Recovery,
    Resized,
    TaskRecord,
    TaskStatus,
)

#: Seconds within which survivors of a lost peer exit with an error (measured with collective training).
COLLATERAL_SECONDS = 20.0
#: Maximum number of remembered losses in this time.
MAX_RECENT_LOSSES = 50
#: Seconds after a launch, or a status request, until the status of a silent launch is requested.
LAUNCH_TIMEOUT = 30.0
#: Minimum seconds for a launch to start, in which images and executors are fetched.
MIN_LAUNCH_SECONDS = 60.0

Key = TypeVar("Key")
Value = TypeVar("Value")


class _Table(Generic[Key, Value]):
    """A mutable mapping, copied at its first change."""

    __slots__ = ("_copy", "_original")

    def __init__(self, original: Mapping[Key, Value]) -> None:
        self._original = original
        self._copy: dict[Key, Value] | None = None

    @property
    def value(self) -> Mapping[Key, Value]:
        return self._original if self._copy is None else self._copy

    def put(self, key: Key, value: Value) -> None:
        self._own()[key] = value

    def pop(self, key: Key) -> Value | None:
        """Remove the key; None if it is missing."""
        return self._own().pop(key) if key in self.value else None

    def _own(self) -> dict[Key, Value]:
        if self._copy is None:
            self._copy = dict(self._original)
        return self._copy


def lost_at(
    spec: ServiceSpec,
    tasks: Mapping[TaskName, TaskRecord],
    recoveries: Mapping[TaskName, Recovery],
    status: TaskStatus,
) -> float:
    """Return the Unix time at which a silent task counts as lost.

    It counts as lost after a timeout, or as soon as an operator has ordered a relaunch on another agent.
    """
    record, recovery = tasks.get(name_of(status.id)), recoveries.get(name_of(status.id))
    if recovery is not None and recovery.launch == status.id and recovery.must_move and recovery.cause is Cause.ORDERED:
        return max(status.timestamp, recovery.since)
    default = spec.recovery.unreachable_timeout
    timeout = default if record is None else spec.unreachable_timeout(record.job, record.index)
    return status.timestamp + timeout


def awaits_server(status: TaskStatus) -> bool:
    """Return whether the task runs, and its server has not answered yet."""
    return status.state is TaskState.RUNNING and status.healthy is None


def due_at(
    spec: ServiceSpec, record: TaskRecord, status: TaskStatus | None, recoveries: Mapping[TaskName, Recovery]
) -> float:
    """Return when the launch must have left this state; infinite if it may stay.

    The first timeout counts. The connection, or what peers do, may prolong it.
    """
    timeout = math.inf if spec.recovery.start_timeout is None else spec.recovery.start_timeout
    if status is None:
        return record.launched_at + LAUNCH_TIMEOUT
    if status.state is TaskState.STAGING:
        return record.launched_at + max(timeout, MIN_LAUNCH_SECONDS)
    if awaits_server(status):
        return status.timestamp + timeout
    return lost_at(spec, {record.name: record}, recoveries, status) if status.state.is_silent else math.inf


_STORED, _DERIVED = (frozenset(item.name for item in fields(part)) for part in (StoredState, DerivedState))
_NAMES = _STORED | _DERIVED
#: Fields that are void without the framework.
_OF_FRAMEWORK = _STORED - frozenset(
    ("controls", "full_spec", "resized", "agent_failures", "paused", "exposures", "configurations")
)
_MAPPINGS = frozenset(
    item.name for item in (*fields(StoredState), *fields(DerivedState)) if item.default_factory is dict
)


class _Draft:
    """A mutable copy of the stored and the derived state, with mappings as tables."""

    framework_id: FrameworkId | None
    removed: bool
    tasks: _Table[TaskName, TaskRecord]
    statuses: _Table[TaskId, TaskStatus]
    result: Result | None
    retired: _Table[TaskId, str]
    controls: _Table[str, PlanControl]
    recoveries: _Table[TaskName, Recovery]
    full_spec: ServiceSpec | None
    resized: Resized
    agent_failures: _Table[AgentId, AgentFailures]
    paused: _Table[TaskName, UnixTime]
    redeemed_tokens: _Table[TaskId, str]
    exposures: _Table[AgentId, SecretExposure]
    configurations: _Table[str, Configuration]
    abandoned: _Table[TaskId, AbandonedLaunch]
    members: Members | None
    state_counts: _Table[TaskState, int]
    unhealthy_count: int
    starting_count: int
    joined_count: int
    next_check_at: UnixTime
    launches_to_replace: _Table[TaskName, TaskId]
    delayed_tasks: _Table[TaskName, UnixTime]
    next_ready_at: float
    recent_losses: _Table[TaskName, UnixTime]
    first_launch_at: UnixTime | None
    idle_tasks: _Table[TaskName, TaskId]

    def __init__(self, state: SchedulerState) -> None:
        self.spec = state.spec
        self.next_kill_at = state.session.next_kill_at
        self.progress = _Table(state.process.progress)
        self._take(state.stored, _STORED)
        self._take(state.derived, _DERIVED)

    def _take(self, part: StoredState | DerivedState, names: frozenset[str]) -> None:
        for name in names:
            value = getattr(part, name)
            setattr(self, name, _Table(value) if name in _MAPPINGS else value)

    def state(self, before: SchedulerState) -> SchedulerState:
        """Return `before` with all changes of the draft."""
        if not self._waits():
            self.next_check_at = math.inf
        values = {name: getattr(self, name) for name in _NAMES}
        values |= {name: values[name].value for name in _MAPPINGS}
        same_kill = self.next_kill_at == before.session.next_kill_at
        same_progress = self.progress.value is before.process.progress
        return SchedulerState(
            self.spec,
            StoredState(**{name: values[name] for name in _STORED}),
            DerivedState(**{name: values[name] for name in _DERIVED}),
            before.session if same_kill else replace(before.session, next_kill_at=self.next_kill_at),
            before.process if same_progress else replace(before.process, progress=self.progress.value),
        )

    def _waits(self) -> bool:
        """Return whether a launch may take too long for anything, see `due_at`."""
        counts = self.state_counts.value
        is_starting = self.starting_count > 0 and self.spec.recovery.start_timeout is not None
        has_silent = len(self.statuses.value) < len(self.tasks.value) or not SILENT_STATES.isdisjoint(counts)
        return is_starting or has_silent or TaskState.STAGING in counts

    def count_status(self, status: TaskStatus | None, difference: int) -> None:
        """Add a status to the counts, or remove it (`difference` -1)."""
        if status is None:
            return
        count = self.state_counts.value.get(status.state, 0) + difference
        if count:
            self.state_counts.put(status.state, count)
        else:
            self.state_counts.pop(status.state)
        if status.is_frozen:
            self.unhealthy_count += difference
        if status.state is TaskState.RUNNING and status.healthy and kind_of(name_of(status.id)).in_cluster:
            self.joined_count += difference
        self.starting_count += difference * awaits_server(status)

    def forget_launch(self, record: TaskRecord) -> None:
        """Erase all data of one launch."""
        launch = record.id
        self.idle_tasks.pop(record.name)
        self.count_status(self.statuses.pop(launch), -1)
        self.launches_to_replace.pop(record.name)
        self.delayed_tasks.pop(record.name)
        self.progress.pop(launch)
        self.redeemed_tokens.pop(launch)
        self.retired.pop(launch)

    def forget_framework(self) -> None:
        """Erase the result, and all data that is void without the framework."""
        self._take(StoredState(), _OF_FRAMEWORK)
        self._take(DerivedState(), _DERIVED)
        self.progress = _Table({})

    def launch(self, record: TaskRecord) -> None:
        before = self.tasks.value.get(record.name)
        if before is not None:
            self.forget_launch(before)
        if record.is_placeholder:
            self.idle_tasks.put(record.name, record.id)
        self.tasks.put(record.name, record)
        self._check(record, None)
        began = record.job_started_at or record.launched_at
        self.first_launch_at = began if self.first_launch_at is None else min(self.first_launch_at, began)

    def store_status(self, status: TaskStatus) -> None:
        joined_count = self.joined_count
        self.count_status(self.statuses.value.get(status.id), -1)
        self.count_status(status, 1)
        self.statuses.put(status.id, status)
        if joined_count <= 0 < self.joined_count and self.starting_count:
            self.next_check_at = 0.0  # from now on every starting task must join
        self._check(self.tasks.value.get(name_of(status.id)), status)

    def _check(self, record: TaskRecord | None, status: TaskStatus | None) -> None:
        """Let the next check be in time for the launch."""
        if record is not None:
            self.next_check_at = min(self.next_check_at, due_at(self.spec, record, status, self.recoveries.value))

    def decide_recovery(self, recovery: Recovery) -> None:
        name, before = recovery.task, self.recoveries.value.get(recovery.task)
        self.recoveries.put(name, recovery)
        status = self.statuses.value.get(recovery.launch)
        record = self.tasks.value.get(name)
        if status is not None and status.state.is_silent:
            self._check(record, status)
        if before is None or (before.since, before.cause) != (recovery.since, recovery.cause):
            self._record_loss(recovery)
        if record is None or record.id != recovery.launch:
            self.launches_to_replace.pop(name)
            self.delayed_tasks.pop(name)
        elif before is None or (before.launch, before.ready_at) != (recovery.launch, recovery.ready_at):
            self.launches_to_replace.put(name, recovery.launch)
            self.delayed_tasks.put(name, recovery.ready_at)
            self.next_ready_at = min(self.next_ready_at, recovery.ready_at)

    def _record_loss(self, recovery: Recovery) -> None:
        """Remember a loss that may cause others; of many, keep the oldest and the newest."""
        losses = self.recent_losses
        losses.pop(recovery.task)
        if recovery.cause is Cause.COLLATERAL:
            return
        losses.put(recovery.task, recovery.since)
        past = recovery.since - COLLATERAL_SECONDS
        for name in [name for name, since in losses.value.items() if since <= past]:
            losses.pop(name)
        if len(losses.value) > MAX_RECENT_LOSSES:
            losses.pop(sorted(losses.value, key=losses.value.__getitem__)[MAX_RECENT_LOSSES // 2])

    def resize(self, change: Resized) -> None:
        options = self.full_spec or self.spec
        wanted = wanted_spec(options, change)
        if change.count is None:
            self.spec = wanted
        elif change.until is None:
            self.spec = with_workers(wanted, change.count)
        else:
            self.spec = held_spec(wanted, change.count)
        self.full_spec = None if self.spec is options else options
        self.resized = change

    def forget_task(self, name: TaskName) -> None:
        record = self.tasks.pop(name)
        self.paused.pop(name)
        self.recoveries.pop(name)
        self.recent_losses.pop(name)
        if record is not None:
            self.forget_launch(record)
        if not self.tasks.value:
            self.first_launch_at = None


def apply(state: SchedulerState, *changes: effects.Change) -> SchedulerState:
    """Return the state after the changes, in order."""
    if not changes:
        return state
    draft = _Draft(state)
    for change in changes:
        _apply(draft, change)
    return draft.state(state)


def _apply(draft: _Draft, change: effects.Change) -> None:  # noqa: C901 - a case per change
    match change:
        case effects.FrameworkRegistered():
            draft.framework_id, draft.removed = change.framework_id, change.removed
        case effects.FrameworkForgotten():
            draft.forget_framework()
        case effects.TaskLaunched():
            draft.launch(change.record)
        case effects.StatusStored():
            draft.store_status(change.status)
        case effects.ResultDecided():
            draft.next_kill_at = 0.0 if draft.result is None else draft.next_kill_at
            draft.result = change.result
        case effects.RecoveryDecided():
            draft.decide_recovery(change.recovery)
        case AgentFailures():
            draft.agent_failures.put(change.agent_id, change)
        case Resized():
            draft.resize(change)
        case effects.TaskForgotten():
            draft.forget_task(change.name)
        case effects.SecretTokenRedeemed():
            draft.redeemed_tokens.put(change.task_id, change.nonce)
        case SecretExposure():
            draft.exposures.put(change.agent_id, change)
        case Configuration():
            draft.configurations.put(change.id, change)
        case AbandonedLaunch():
            draft.abandoned.put(change.id, change)
        case effects.LaunchRetired():
            draft.retired.put(change.task_id, change.plan)
            draft.next_kill_at = 0.0
        case effects.PlanControlled():
            draft.controls.put(change.plan, change.control)
            draft.next_kill_at = 0.0
        case effects.TaskPaused():
            draft.paused.put(change.name, change.since)
        case effects.EntryForgotten():
            getattr(draft, change.table).pop(change.key)
        case Members():
            draft.members = change
        case _:
            assert_never(change)


def decide(
    state: SchedulerState,
    *changes: effects.Change,
    calls: tuple[effects.Call, ...] = (),
    outcomes: tuple[effects.Outcome, ...] = (),
) -> effects.Decision:
    """Return a decision with these changes applied to `state`."""
    return effects.Decision(apply(state, *changes), changes, calls, outcomes)
