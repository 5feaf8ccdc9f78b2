"""Reactions to status updates, by the believed and the reported state of a launch.

Pure table, shown in docs/explanation/recovery.md: what a status means is decided here, before its cause is judged.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from tf_scheduler.model.task import SILENT_STATES, TaskState, TaskStatus


class Reaction(str, Enum):
    """What the scheduler does with a status."""

    #: Store it; nothing is launched.
    ADOPT = "adopt"
    #: Store it, and wait for the agent up to `recovery.unreachable_timeout`.
    WAIT = "wait"
    #: Store it: the task has succeeded, and a pending relaunch is cancelled.
    FINISH = "finish"
    #: Store it, and decide by its cause.
    END = "end"
    #: Stop a launch that is no longer wanted.
    KILL = "kill"
    #: Ignore it, but remember that the launch may still run.
    REMEMBER = "remember"
    IGNORE = "ignore"


class Belief(Enum):
    """Groups of last stored states of a launch."""

    RUNNING = "no status, STAGING, STARTING or RUNNING"
    STOPPING = "KILLING"
    SILENT = "UNREACHABLE or UNKNOWN"
    GIVEN_UP = "LOST, GONE, GONE_BY_OPERATOR or DROPPED"
    ENDED = "FAILED, KILLED or ERROR"
    FINISHED = "FINISHED"
    REPLACED = "any state of a replaced or foreign launch"


class Report(Enum):
    """Groups of reported states."""

    RUNS = "STAGING, STARTING, RUNNING or KILLING"
    UNREACHABLE = "UNREACHABLE"
    UNKNOWN = "UNKNOWN"
    FINISHED = "FINISHED"
    ENDED = "FAILED, KILLED, ERROR or DROPPED"
    LOST = "LOST, GONE or GONE_BY_OPERATOR"


#: States of a running program in the order in which Mesos reports them.
_STAGES = (TaskState.STAGING, TaskState.STARTING, TaskState.RUNNING, TaskState.KILLING)
_ENDED = (TaskState.FAILED, TaskState.KILLED, TaskState.ERROR)
_LOST = (TaskState.LOST, TaskState.GONE, TaskState.GONE_BY_OPERATOR)

BELIEFS: Mapping[TaskState, Belief] = {
    **dict.fromkeys(_STAGES, Belief.RUNNING),
    TaskState.KILLING: Belief.STOPPING,
    **dict.fromkeys(SILENT_STATES, Belief.SILENT),
    **dict.fromkeys((*_LOST, TaskState.DROPPED), Belief.GIVEN_UP),
    **dict.fromkeys(_ENDED, Belief.ENDED),
    TaskState.FINISHED: Belief.FINISHED,
}
REPORTS: Mapping[TaskState, Report] = {
    **dict.fromkeys(_STAGES, Report.RUNS),
    TaskState.UNREACHABLE: Report.UNREACHABLE,
    TaskState.UNKNOWN: Report.UNKNOWN,
    TaskState.FINISHED: Report.FINISHED,
    **dict.fromkeys((*_ENDED, TaskState.DROPPED), Report.ENDED),
    **dict.fromkeys(_LOST, Report.LOST),
}

_LIVE = {
    Report.RUNS: Reaction.ADOPT,
    Report.UNREACHABLE: Reaction.WAIT,
    Report.UNKNOWN: Reaction.WAIT,
    Report.FINISHED: Reaction.FINISH,
    Report.ENDED: Reaction.END,
    Report.LOST: Reaction.END,
}
_NEVER = dict.fromkeys(Report, Reaction.IGNORE)
_GONE = {**_NEVER, Report.RUNS: Reaction.KILL, Report.UNREACHABLE: Reaction.REMEMBER}
REACTIONS: Mapping[Belief, Mapping[Report, Reaction]] = {
    Belief.RUNNING: _LIVE,
    Belief.STOPPING: {**_LIVE, Report.RUNS: Reaction.IGNORE},
    Belief.SILENT: _LIVE,
    # Until it is replaced, a success counts; a program that still runs would run beside its replacement.
    Belief.GIVEN_UP: {**_GONE, Report.FINISHED: Reaction.FINISH},
    Belief.ENDED: _NEVER,
    Belief.FINISHED: _NEVER,
    Belief.REPLACED: _GONE,
}


def reaction_to(status: TaskStatus, stored: TaskStatus | None, *, is_current: bool) -> Reaction:
    """Return the reaction to a status; `stored` is the launch's last status, if any."""
    if not is_current:
        return REACTIONS[Belief.REPLACED][REPORTS[status.state]]
    if stored is None:
        return REACTIONS[Belief.RUNNING][REPORTS[status.state]]
    if stored.state in _STAGES and status.state in _STAGES[: _STAGES.index(stored.state)]:
        return Reaction.IGNORE  # delayed: a later stage is known
    return REACTIONS[BELIEFS[stored.state]][REPORTS[status.state]]
