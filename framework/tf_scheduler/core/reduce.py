"""Changes -> the next state. The same reducer serves a decision and the start from the store."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from tf_scheduler.model.effects import (
    AgentSuspected,
    Call,
    Change,
    ConfigurationForgotten,
    ConfigurationStored,
    Decision,
    FrameworkForgotten,
    FrameworkRegistered,
    LaunchRetired,
    Outcome,
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
from tf_scheduler.model.ids import TaskId
from tf_scheduler.model.spec import ServiceSpec
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.model.task import TaskState, TaskStatus

from .sizes import smaller


class _Draft:
    """A state under change. Each mapping is copied once, however many changes there are."""

    def __init__(self, state: SchedulerState) -> None:
        self._state = state
        self.fields: dict[str, Any] = {}

    def own(self, name: str) -> dict[Any, Any]:
        """The field `name`, as a dict that may be changed."""
        if name not in self.fields:
            self.fields[name] = dict(getattr(self._state, name))
        mine: dict[Any, Any] = self.fields[name]
        return mine

    def get(self, name: str) -> Any:
        """The field `name`, as it is now."""
        return self.fields.get(name, getattr(self._state, name))

    def tell(self, status: TaskStatus | None, difference: int) -> None:
        """Count a status in or out."""
        if status is None:
            return
        tally = self.own("tally")
        tally[status.state] = tally.get(status.state, 0) + difference
        if not tally[status.state]:
            del tally[status.state]
        if status.state is TaskState.RUNNING and status.healthy is False:
            self.fields["unready"] = self.get("unready") + difference
        if status.state is TaskState.RUNNING and status.healthy is None:
            self.own("joining").pop(status.id, None)
            if difference > 0:
                self.own("joining")[status.id] = status.timestamp

    def starts(self, launch: TaskId) -> None:
        """It has begun, or is no more."""
        if launch in self.get("unstarted"):
            del self.own("unstarted")[launch]

    def forget(self, launch: TaskId) -> None:
        """Everything that was known of one launch."""
        self.tell(self.own("statuses").pop(launch, None), -1)
        self.starts(launch)
        if launch in self._state.progress or "progress" in self.fields:
            self.own("progress").pop(launch, None)
        if launch in self._state.given or "given" in self.fields:
            self.own("given").pop(launch, None)
        if launch in self._state.retired or "retired" in self.fields:
            self.own("retired").pop(launch, None)


def apply(state: SchedulerState, *changes: Change) -> SchedulerState:
    """The state after stored changes, in their order."""
    draft = _Draft(state)
    for change in changes:
        reducer = _REDUCERS.get(type(change))
        if reducer is None:
            raise TypeError(change)
        reducer(draft, change)
    return replace(state, **draft.fields) if draft.fields else state


def _registered(draft: _Draft, change: FrameworkRegistered) -> None:
    draft.fields.update(framework_id=change.framework_id, removed=change.removed)


def _without_framework(draft: _Draft, _: FrameworkForgotten) -> None:
    draft.fields.update(framework_id=None, removed=False, result=None, unready=0, silent_since=0.0)
    gone = ("tasks", "statuses", "retired", "recoveries", "given", "reservations", "tally", "joining", "progress")
    draft.fields.update({name: {} for name in (*gone, "unstarted")})


def _launched(draft: _Draft, change: TaskLaunched) -> None:
    tasks = draft.own("tasks")
    before = tasks.get(change.record.name)
    if before is not None:
        draft.forget(before.id)
    tasks[change.record.name] = change.record
    draft.own("unstarted")[change.record.id] = change.record.launched_at
    draft.fields["silent_since"] = min(draft.get("silent_since") or math.inf, change.record.launched_at)


def _status(draft: _Draft, change: StatusStored) -> None:
    statuses = draft.own("statuses")
    draft.tell(statuses.get(change.status.id), -1)
    draft.tell(change.status, 1)
    if change.status.state is not TaskState.STAGING:
        draft.starts(change.status.id)
    statuses[change.status.id] = change.status


def _result(draft: _Draft, change: ResultDecided) -> None:
    if draft.get("result") is None:
        draft.fields["kill_at"] = 0.0
    draft.fields["result"] = change.result


def _retired(draft: _Draft, change: LaunchRetired) -> None:
    draft.own("retired")[change.task_id] = change.plan
    draft.fields["kill_at"] = 0.0


def _recovered(draft: _Draft, change: RecoveryDecided) -> None:
    draft.own("recoveries")[change.recovery.task] = change.recovery


def _resized(draft: _Draft, change: Resized) -> None:
    full: ServiceSpec = draft.get("full") or draft.get("spec")
    spec = full if change.count is None else smaller(full, change.count)
    draft.fields.update(spec=spec, full=None if spec is full else full, resized_at=change.at)


def _suspected(draft: _Draft, change: AgentSuspected) -> None:
    draft.own("suspects")[change.suspect.agent_id] = change.suspect


def _paused(draft: _Draft, change: TaskPaused) -> None:
    draft.own("paused")[change.name] = change.since


def _resumed(draft: _Draft, change: TaskResumed) -> None:
    draft.own("paused").pop(change.name, None)


def _given(draft: _Draft, change: SecretsGiven) -> None:
    draft.own("given")[change.task_id] = change.nonce


def _forgotten(draft: _Draft, change: TaskForgotten) -> None:
    record = draft.own("tasks").pop(change.name, None)
    if change.name in draft.get("paused"):
        draft.own("paused").pop(change.name)
    if record is not None:
        draft.forget(record.id)


def _controlled(draft: _Draft, change: PlanControlled) -> None:
    draft.own("controls")[change.plan] = change.control
    draft.fields["kill_at"] = 0.0


def _reserved(draft: _Draft, change: ReservationMade) -> None:
    draft.own("reservations")[change.reservation.id] = change.reservation


def _unreserved(draft: _Draft, change: ReservationDropped) -> None:
    draft.own("reservations").pop(change.id, None)


def _configured(draft: _Draft, change: ConfigurationStored) -> None:
    draft.own("configurations")[change.configuration.id] = change.configuration


def _configuration_gone(draft: _Draft, change: ConfigurationForgotten) -> None:
    draft.own("configurations").pop(change.id, None)


_REDUCERS: Mapping[type, Callable[[_Draft, Any], None]] = {
    FrameworkRegistered: _registered,
    FrameworkForgotten: _without_framework,
    TaskLaunched: _launched,
    StatusStored: _status,
    ResultDecided: _result,
    LaunchRetired: _retired,
    RecoveryDecided: _recovered,
    AgentSuspected: _suspected,
    Resized: _resized,
    TaskPaused: _paused,
    TaskResumed: _resumed,
    SecretsGiven: _given,
    TaskForgotten: _forgotten,
    PlanControlled: _controlled,
    ReservationMade: _reserved,
    ReservationDropped: _unreserved,
    ConfigurationStored: _configured,
    ConfigurationForgotten: _configuration_gone,
}


def decide(
    state: SchedulerState,
    *changes: Change,
    calls: tuple[Call, ...] = (),
    outcomes: tuple[Outcome, ...] = (),
) -> Decision:
    """A decision whose state is `state` after `changes`, in order: each sees the one before."""
    return Decision(apply(state, *changes), changes, calls, outcomes)


def then(first: Decision, verb: Callable[[SchedulerState], Decision]) -> Decision:
    """Both decisions as one: `verb` sees the state that the first one left."""
    second = verb(first.state)
    return Decision(
        second.state,
        first.changes + second.changes,
        first.calls + second.calls,
        first.outcomes + second.outcomes,
        first.answer or second.answer,
    )
