"""Tables for the statuses of steps, phases and plans, shown in the documentation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import Enum

from tf_executor.contract.states import Status
from tf_scheduler.model.plan import Verb

PENDING, PREPARED, STARTING, STARTED = Status.PENDING, Status.PREPARED, Status.STARTING, Status.STARTED
COMPLETE, WAITING, DELAYED, IN_PROGRESS = Status.COMPLETE, Status.WAITING, Status.DELAYED, Status.IN_PROGRESS
ERROR = Status.ERROR


# --- A step that launches a task


class LaunchSituation(str, Enum):
    """Situation of a launch step, by records and commands; the first that fits counts."""

    FORCED = "an operator forced it to complete"
    UNLAUNCHED = "its task was never launched"
    RETIRED = "its task is being stopped to launch it again, or to launch its placeholder if the task is paused"
    OUTDATED = (
        "its task was launched with other options, with an older ClusterSpec, by another plan, or before the plan was "
        "started or restarted"
    )
    DONE = "the plan was once complete; does not apply to a paused task of the active roll-out"
    DELAYED = "its task was lost, and waits until its back-off is over"
    LOST = "its task was lost, or restarts with a lost task"
    LAUNCHED = "the latest launch of its task is the launch that the plan wants"


#: `None`: the state of the launch decides; STARTING before Mesos reports a state.
SITUATIONS: Mapping[LaunchSituation, Status | None] = {
    LaunchSituation.FORCED: COMPLETE,
    LaunchSituation.UNLAUNCHED: PENDING,
    LaunchSituation.RETIRED: PREPARED,
    LaunchSituation.OUTDATED: PENDING,
    LaunchSituation.DONE: COMPLETE,
    LaunchSituation.DELAYED: DELAYED,
    LaunchSituation.LOST: PENDING,
    LaunchSituation.LAUNCHED: None,
}

# --- A step that stops or erases a task, or deregisters


class EndSituation(str, Enum):
    """Situation of a kill, erase or deregister step; the first that fits counts."""

    FORCED = "an operator forced it to complete; TEARDOWN is sent nevertheless"
    DONE = "the task has ended, its record is erased, or Mesos accepted TEARDOWN"
    ASKED = "the call was sent to Mesos"
    OPEN = "otherwise"


ENDINGS: Mapping[EndSituation, Status] = {
    EndSituation.FORCED: COMPLETE,
    EndSituation.DONE: COMPLETE,
    EndSituation.ASKED: STARTING,
    EndSituation.OPEN: PENDING,
}

# --- A phase or a plan


@dataclass(frozen=True, slots=True)
class ChildStatuses:
    """Statuses of the children of a phase or plan."""

    #: Statuses of all children.
    all: AbstractSet[Status]
    #: Statuses of the incomplete children that are due.
    turn: AbstractSet[Status]
    interrupted: bool


#: Status, condition, description; the first that applies (dcos-commons, PlanUtils.getAggregateStatus).
AGGREGATE: tuple[tuple[Status, Callable[[ChildStatuses], bool], str], ...] = (
    (ERROR, lambda parts: ERROR in parts.all, "a child has an error"),
    (COMPLETE, lambda parts: parts.all <= {COMPLETE}, "all children are complete"),
    (WAITING, lambda parts: parts.interrupted, "the phase or plan is interrupted"),
    (DELAYED, lambda parts: parts.all <= {DELAYED}, "all children are delayed"),
    (IN_PROGRESS, lambda parts: PREPARED in parts.all, "a child is prepared"),
    (WAITING, lambda parts: WAITING in parts.turn, "a due child waits"),
    (IN_PROGRESS, lambda parts: IN_PROGRESS in parts.turn, "a due child is in progress"),
    (
        IN_PROGRESS,
        lambda parts: COMPLETE in parts.all and bool({PENDING, STARTING, STARTED} & parts.turn),
        "some children are complete, and a due child is incomplete",
    ),
    (PENDING, lambda parts: PENDING in parts.turn, "a due child is pending"),
    (WAITING, lambda parts: WAITING in parts.all, "a child waits"),
    (STARTING, lambda parts: STARTING in parts.turn, "a due child is starting"),
    (STARTED, lambda parts: STARTED in parts.turn, "a due child is started"),
    (DELAYED, lambda parts: DELAYED in parts.all, "a child is delayed"),
    (PENDING, lambda _: True, "otherwise: no child is due"),
)


def aggregate(parts: ChildStatuses) -> Status:
    """Return the status of a phase from its steps, or of a plan from its phases."""
    return next(status for status, holds, _ in AGGREGATE if holds(parts))


# --- Commands


#: Verb -> statuses in which a command without effect is already done (dcos-commons, PlansResource: status 208).
ALREADY: Mapping[Verb, frozenset[Status]] = {
    Verb.INTERRUPT: frozenset({COMPLETE, WAITING}),
    Verb.CONTINUE: frozenset({PREPARED, STARTING, STARTED, IN_PROGRESS, COMPLETE}),
    Verb.FORCE_COMPLETE: frozenset({COMPLETE}),
    Verb.RESTART: frozenset({PENDING}),
    Verb.START: frozenset(),
    Verb.STOP: frozenset(),
}
