"""The end of a task -> its cause. An ordered table: the first row that fits, wins. docs/recovery.md shows it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tf_scheduler.model.failure import Cause, Ended

#: TensorFlow's PreemptionCheckpointHandler exits so after it has saved a checkpoint (143 on Google's machines).
RESTART_EXIT_CODES = frozenset({42, 143})
#: 128 + n is how a shell reports that a signal ended its child.
_SHELL_SIGNALS = range(129, 160)

_INVALID = frozenset({"REASON_TASK_INVALID", "REASON_TASK_UNAUTHORIZED", "REASON_TASK_GROUP_INVALID"})
_LIMITS = frozenset(
    {
        "REASON_CONTAINER_LIMITATION",
        "REASON_CONTAINER_LIMITATION_DISK",
        "REASON_CONTAINER_LIMITATION_MEMORY",
        "REASON_MAX_COMPLETION_TIME_REACHED",
    }
)
_NO_CONTAINER = frozenset({"REASON_CONTAINER_LAUNCH_FAILED", "REASON_EXECUTOR_REGISTRATION_TIMEOUT"})
DRAINED = frozenset({"REASON_AGENT_DRAINING", "REASON_SLAVE_DRAINING", "REASON_CONTAINER_PREEMPTED"})


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the table."""

    when: str
    cause: Cause
    fits: Callable[[Ended, frozenset[int]], bool]


#: Order matters: a drained task was KILLED, a task over its memory was ended by a signal.
ROWS: tuple[Row, ...] = (
    Row("TASK_FINISHED", Cause.FINISHED, lambda end, _: end.state == "TASK_FINISHED"),
    Row("the service asked for it", Cause.STOPPED, lambda end, _: end.asked),
    Row(
        "TASK_ERROR, or the reason says invalid or unauthorized",
        Cause.NEVER,
        lambda end, _: end.state == "TASK_ERROR" or end.reason in _INVALID,
    ),
    Row("TASK_DROPPED: the launch reached no agent", Cause.NOT_STARTED, lambda end, _: end.state == "TASK_DROPPED"),
    Row("the agent is drained, or it was preempted", Cause.INFRASTRUCTURE, lambda end, _: end.reason in DRAINED),
    Row("over its memory, disk or time", Cause.USER_ERROR, lambda end, _: end.reason in _LIMITS),
    Row(
        "its files could not be fetched, or its executor could not be started",
        Cause.USER_ERROR,
        lambda end, _: end.reason in _NO_CONTAINER or (end.reason == "REASON_EXECUTOR_TERMINATED" and not end.ran),
    ),
    Row("it hung: no sign of life, no progress, no output", Cause.USER_ERROR, lambda end, _: end.hung),
    Row(
        "an exit code that asks for a restart (42, 143, or as configured)",
        Cause.RESTART_ASKED,
        lambda end, asking: end.exit_code in asking,
    ),
    Row(
        "ended by a signal, or exit code 128 + signal",
        Cause.INFRASTRUCTURE,
        lambda end, _: end.signal is not None or end.exit_code in _SHELL_SIGNALS,
    ),
    Row("any other exit code", Cause.USER_ERROR, lambda end, _: end.exit_code is not None),
    Row("anything else: lost, gone, unknown, its executor or container failed", Cause.INFRASTRUCTURE, lambda *_: True),
)


def cause_of(end: Ended, restart_exit_codes: frozenset[int] = RESTART_EXIT_CODES) -> Cause:
    """The cause of an end. Total: the last row fits everything."""
    return next(row.cause for row in ROWS if row.fits(end, restart_exit_codes))
