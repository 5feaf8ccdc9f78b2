"""Transitions of steps: shown in the documentation, and checked in every simulation."""

from __future__ import annotations

from collections.abc import Mapping

from tf_executor.contract.states import Status

PENDING, PREPARED, STARTING, STARTED = Status.PENDING, Status.PREPARED, Status.STARTING, Status.STARTED
COMPLETE, WAITING, DELAYED, ERROR = Status.COMPLETE, Status.WAITING, Status.DELAYED, Status.ERROR

#: From -> to -> why; no step moves in another way.
TRANSITIONS: Mapping[Status, Mapping[Status, str]] = {
    PENDING: {
        PREPARED: "the step is due: its task runs with outdated options, and is stopped",
        STARTING: "the step is due: it launches or stops its task",
        STARTED: "its task is up to date again (the previous ClusterSpec is back), but is not ready",
        COMPLETE: "forced; or its task is up to date again, and runs",
        WAITING: "interrupted",
        DELAYED: "its task is up to date again, but was lost and waits for its relaunch",
        ERROR: "the job has ended before the relaunch",
    },
    PREPARED: {
        PENDING: "another plan has launched its task",
        STARTING: "its task has ended, and is relaunched",
        COMPLETE: "forced",
        WAITING: "interrupted",
    },
    STARTING: {
        PENDING: "the step is restarted, or its task is outdated or was lost",
        PREPARED: "the task is outdated, or the step is restarted: the task is stopped",
        STARTED: "the task runs and is not ready yet, or it is paused",
        COMPLETE: "the task runs, has finished, or has stopped as requested; or forced",
        WAITING: "stopped by an operator",
        DELAYED: "the task was lost, and waits for its relaunch",
        ERROR: "the task has failed, and is not relaunched",
    },
    STARTED: {
        PENDING: "the step is restarted, or its task is outdated or was lost",
        PREPARED: "the task is outdated, or the step is restarted: the task is stopped",
        STARTING: "its agent answers again, and its program has not started yet",
        COMPLETE: "the task is ready or has finished; or forced",
        WAITING: "stopped by an operator",
        DELAYED: "the task was lost, and waits for its relaunch",
        ERROR: "the task has failed, and is not relaunched",
    },
    COMPLETE: {
        PENDING: "the step is restarted, or its task is outdated; while the plan was incomplete: its task was lost",
        PREPARED: "the step is restarted, or its task is outdated: the task is stopped",
        STARTING: "while the plan was incomplete: its task had finished, and another plan relaunches it",
        STARTED: "its task is paused; while the plan was incomplete: it is not ready, or its agent does not answer",
        WAITING: "stopped by an operator; or its task is outdated, and the step is a canary",
        DELAYED: "while the plan was incomplete: the task was lost, and waits for its relaunch",
        ERROR: "while the plan was incomplete: the task has failed, and is not relaunched",
    },
    WAITING: {
        PENDING: "continued",
        PREPARED: "continued, and its task is stopped",
        STARTING: "continued, and the step stops its task immediately",
        STARTED: "its task is up to date again, but is not ready",
        COMPLETE: "forced; or its task is up to date again",
        DELAYED: "its lost launch answers again, and must end before the relaunch",
        ERROR: "the job has ended before the relaunch",
    },
    DELAYED: {
        PENDING: "its back-off is over, or its task is outdated",
        PREPARED: "a plan has stopped its task, or will launch it with the current options",
        STARTING: "its back-off is over, and it is launched immediately",
        COMPLETE: "forced",
        WAITING: "stopped by an operator",
        ERROR: "the job has ended before the relaunch",
    },
    ERROR: {
        PENDING: "restarted",
        COMPLETE: "forced",
        WAITING: "stopped by an operator",
    },
}
