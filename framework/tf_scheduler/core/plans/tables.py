"""The state machines of plans, as tables. docs/state-machine.md is made from them, and nothing else decides."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import Enum

from tf_scheduler.model.plan import Status, Verb
from tf_scheduler.model.task import TaskState

PENDING, PREPARED, STARTING, STARTED = Status.PENDING, Status.PREPARED, Status.STARTING, Status.STARTED
COMPLETE, WAITING, DELAYED, IN_PROGRESS = Status.COMPLETE, Status.WAITING, Status.DELAYED, Status.IN_PROGRESS
ERROR = Status.ERROR


class IllegalStepTransitionError(RuntimeError):
    """A step went from one status to another in a way that the table does not have: a defect of ours."""


# --- a step that launches a task

#: What Mesos says of the launch that the step wants -> the status of the step. No word yet: STARTING.
LAUNCHED: Mapping[TaskState, Status] = {
    TaskState.STAGING: STARTING,
    TaskState.STARTING: STARTING,
    TaskState.RUNNING: COMPLETE,  # STARTED as long as its health check says no, or it is paused
    TaskState.FINISHED: COMPLETE,
    TaskState.UNREACHABLE: STARTED,  # it may come back
    TaskState.KILLING: STARTED,
    TaskState.KILLED: ERROR,
    TaskState.FAILED: ERROR,
    TaskState.ERROR: ERROR,
    TaskState.LOST: ERROR,
    TaskState.DROPPED: ERROR,
    TaskState.GONE: ERROR,
    TaskState.GONE_BY_OPERATOR: ERROR,
    TaskState.UNKNOWN: ERROR,
}


class LaunchSituation(str, Enum):
    """What the records and the operators' orders say of a launch step; the first that holds."""

    FORCED = "an operator said that it is complete"
    UNLAUNCHED = "its task was never launched"
    RETIRED = "its task has been told to end, and is to be launched again; if it is paused, with a program that sleeps"
    OUTDATED = (
        "its task was launched with other options, with an older ClusterSpec, for another plan, or before the plan was "
        "started or restarted"
    )
    DONE = "the plan was complete before; not of the roll-out in force, if its task is paused"
    DELAYED = "its task was lost; it is launched again when its back-off is over"
    LOST = "its task was lost, or starts again with one that was; it is launched again"
    LAUNCHED = "the launch that it wants is there"


#: None: look at LAUNCHED.
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

# --- a step that ends a task, erases it, or takes leave of Mesos


class EndSituation(str, Enum):
    """What is known of the work of such a step; the first that holds."""

    FORCED = "an operator said that it is complete; TEARDOWN is sent all the same"
    DONE = "the task has ended, its record is erased, or Mesos took the TEARDOWN"
    ASKED = "Mesos has been asked for it"
    OPEN = "nothing of that"


ENDINGS: Mapping[EndSituation, Status] = {
    EndSituation.FORCED: COMPLETE,
    EndSituation.DONE: COMPLETE,
    EndSituation.ASKED: STARTING,
    EndSituation.OPEN: PENDING,
}

# --- from status to status


#: From -> to -> why. A step that is not here does not move so: `check` raises.
TRANSITIONS: Mapping[Status, Mapping[Status, str]] = {
    PENDING: {
        PREPARED: "its turn: its task runs with what is outdated, and is told to end",
        STARTING: "its turn: launched, or told to end",
        STARTED: "not outdated after all: the ClusterSpec is the old one again, and its task is not ready",
        COMPLETE: "forced; or not outdated after all, and its task runs",
        WAITING: "interrupted",
        DELAYED: "not outdated after all, but its task was lost, and waits for its next launch",
        ERROR: "the job has ended before the task was launched again",
    },
    PREPARED: {
        PENDING: "another plan has launched its task meanwhile",
        STARTING: "its task has ended, and is launched again",
        COMPLETE: "forced",
        WAITING: "interrupted",
    },
    STARTING: {
        PENDING: "restarted, outdated, or its task was lost",
        PREPARED: "outdated or restarted, and told to end",
        STARTED: "the task runs and is not ready yet, or it is paused",
        COMPLETE: "the task runs, has finished, or has ended as it was told; or forced",
        WAITING: "stopped",
        DELAYED: "the task was lost, and waits for its next launch",
        ERROR: "the task has ended badly, and is not launched again",
    },
    STARTED: {
        PENDING: "restarted, outdated, or its task was lost",
        PREPARED: "outdated or restarted, and told to end",
        COMPLETE: "the task is ready or has finished; or forced",
        WAITING: "stopped",
        DELAYED: "the task was lost, and waits for its next launch",
        ERROR: "the task has ended badly, and is not launched again",
    },
    COMPLETE: {
        PENDING: "restarted or outdated; or, before the plan was complete, its task was lost",
        PREPARED: "restarted or outdated, and told to end",
        STARTING: "before the plan was complete: its task had finished, and another plan launches it again",
        STARTED: "its task is paused; before the plan was complete: it is not ready, or its agent does not answer",
        WAITING: "stopped; or outdated, and held as a canary",
        DELAYED: "before the plan was complete: the task was lost, and waits for its next launch",
        ERROR: "before the plan was complete: the task has ended badly, and is not launched again",
    },
    WAITING: {
        PENDING: "continued",
        PREPARED: "continued, and its task has been told to end",
        STARTING: "continued, and told to end at once",
        STARTED: "not outdated after all, and its task is not ready",
        COMPLETE: "forced; or not outdated after all",
        ERROR: "the job has ended before the task was launched again",
    },
    DELAYED: {
        PENDING: "its back-off is over; or outdated besides",
        COMPLETE: "forced",
        WAITING: "stopped",
        ERROR: "the job has ended before the task was launched again",
    },
    ERROR: {
        PENDING: "restarted",
        COMPLETE: "forced",
        WAITING: "stopped",
    },
}


def check_transition(before: Status, after: Status) -> None:
    """Raise IllegalStepTransitionError unless a step may go from one to the other."""
    if before is not after and after not in TRANSITIONS.get(before, {}):
        raise IllegalStepTransitionError(f"a step went from {before.value} to {after.value}")


# --- a phase or a plan


@dataclass(frozen=True, slots=True)
class ChildStatuses:
    """What the status of a whole follows from."""

    #: Statuses of all children.
    all: AbstractSet[Status]
    #: Statuses of those incomplete children that the strategy lets work now.
    turn: AbstractSet[Status]
    interrupted: bool = False


#: Status, when, in words. The first that fits (dcos-commons, PlanUtils.getAggregateStatus).
AGGREGATE: tuple[tuple[Status, Callable[[ChildStatuses], bool], str], ...] = (
    (ERROR, lambda parts: ERROR in parts.all, "a child is in error"),
    (COMPLETE, lambda parts: parts.all <= {COMPLETE}, "all children are complete"),
    (WAITING, lambda parts: parts.interrupted, "it is interrupted"),
    (DELAYED, lambda parts: parts.all <= {DELAYED}, "all children are delayed"),
    (IN_PROGRESS, lambda parts: PREPARED in parts.all, "a child is prepared"),
    (WAITING, lambda parts: WAITING in parts.turn, "a child whose turn it is waits"),
    (IN_PROGRESS, lambda parts: IN_PROGRESS in parts.turn, "a child whose turn it is is in progress"),
    (
        IN_PROGRESS,
        lambda parts: COMPLETE in parts.all and bool({PENDING, STARTING, STARTED} & parts.turn),
        "some children are complete, and one whose turn it is is not",
    ),
    (PENDING, lambda parts: PENDING in parts.turn, "a child whose turn it is is pending"),
    (WAITING, lambda parts: WAITING in parts.all, "a child waits"),
    (STARTING, lambda parts: STARTING in parts.turn, "a child whose turn it is is starting"),
    (STARTED, lambda parts: STARTED in parts.turn, "a child whose turn it is is started"),
    (DELAYED, lambda parts: DELAYED in parts.all, "a child is delayed"),
    (PENDING, lambda _: True, "nothing of that: no child has its turn"),
)


def aggregate(parts: ChildStatuses) -> Status:
    """The status of a phase from those of its steps, or of a plan from those of its phases."""
    return next(status for status, holds, _ in AGGREGATE if holds(parts))


# --- commands

#: Verb -> statuses in which it has been done already, unless it changes something all the same
#: (dcos-commons, PlansResource: the answer 208).
ALREADY: Mapping[Verb, frozenset[Status]] = {
    Verb.INTERRUPT: frozenset({COMPLETE, WAITING}),
    Verb.CONTINUE: frozenset({PREPARED, STARTING, STARTED, IN_PROGRESS, COMPLETE}),
    Verb.FORCE_COMPLETE: frozenset({COMPLETE}),
    Verb.RESTART: frozenset({PENDING}),
    Verb.START: frozenset(),
    Verb.STOP: frozenset(),
}
