"""What Mesos was asked about our launches, and has not answered yet."""

from __future__ import annotations

from dataclasses import dataclass

from .ids import TaskId


@dataclass(frozen=True, slots=True)
class Inquiry:
    """Of one connection: with the next one it begins anew. Times are seconds since the epoch."""

    #: Launches that nothing was heard of since.
    unanswered: frozenset[TaskId] = frozenset()
    #: When Mesos was last asked for those.
    asked_at: float = 0.0
    #: Seconds after which it is asked for them again.
    wait: float = 0.0
    #: When it was last asked for everything.
    began_at: float = 0.0
