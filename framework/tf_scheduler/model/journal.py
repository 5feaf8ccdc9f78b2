"""What happened and why, for people who ask later."""

from __future__ import annotations

from dataclasses import dataclass

from .ids import TaskName


@dataclass(frozen=True, slots=True)
class Entry:
    """One outcome of a decision, kept."""

    #: Grows by one with each entry of the service, also over the end of its scheduler.
    number: int
    #: Seconds since the epoch.
    at: float
    #: The event that was decided on, such as `StatusUpdated`.
    kind: str
    message: str
    task: TaskName | None = None
    #: Whether a person should look at it.
    warning: bool = False
