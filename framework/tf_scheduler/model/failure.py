"""Why a task ended: what decides whether, where and how soon it runs again, and against what that counts."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Cause(str, Enum):
    """Of the end of one launch."""

    #: Exit code 0: the task has done its work and is never launched again.
    FINISHED = "finished"
    #: The program asked to be started again, its checkpoint is saved.
    RESTART_ASKED = "restart asked"
    #: We ended it.
    STOPPED = "stopped"
    #: Mesos refuses this task as it is: the same again would be refused again.
    NEVER = "never"
    #: The program went beyond its own limits, or returned an error: counted against it.
    USER_ERROR = "user error"
    #: Agent, container, network or operator: not counted against the program.
    INFRASTRUCTURE = "infrastructure"
    #: An error soon after a peer was lost: most likely because of that.
    COLLATERAL = "collateral"
    #: The launch never reached an agent: nothing has run.
    NOT_STARTED = "not started"
    #: Its server did not answer in time: the others would wait for it for ever.
    NOT_JOINED = "not joined"
    #: An operator wants it.
    ORDERED = "ordered"

    @property
    def retried(self) -> bool:
        """Whether another launch can help."""
        return self not in (Cause.FINISHED, Cause.STOPPED, Cause.NEVER)

    @property
    def counted(self) -> bool:
        """Whether it uses up one of `restart.max_failures`."""
        return self is Cause.USER_ERROR


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of one launch, as far as it matters for its cause."""

    #: Mesos' state, such as TASK_FAILED.
    state: str
    #: Mesos' reason; empty when there is none.
    reason: str = ""
    #: What the program returned, if it ran and returned.
    exit_code: int | None = None
    #: The signal that ended the program, if one did.
    signal: int | None = None
    #: Whether we had asked for the end.
    asked: bool = False
    #: Whether the program had run before.
    ran: bool = True
    #: Whether it was ended because it worked no more, as its executor saw it.
    hung: bool = False
