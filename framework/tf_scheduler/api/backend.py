"""What the API stands on: everything that it gets from the scheduler around it. It can do without all but the state."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from tf_scheduler.interfaces import FileError, Files, Piece
from tf_scheduler.model.effects import Decision
from tf_scheduler.model.events import Event
from tf_scheduler.model.ids import TaskName
from tf_scheduler.model.journal import Entry
from tf_scheduler.model.plan import Answer
from tf_scheduler.model.progress import Curve

from .asking import Desk, Put
from .curves import Curves
from .views.base import Snapshot

__all__ = ["Backend", "FileError", "Files", "Foretell", "Journal", "Kept", "Piece"]


class Journal(Protocol):
    """What happened, numbered. Safe for all threads."""

    @property
    def id(self) -> str:
        """Of which journal the numbers are."""

    @property
    def first(self) -> int:
        """Number of the oldest entry that is kept; one more than `last` when there is none."""

    @property
    def last(self) -> int:
        """Number of the newest; 0 before the first. One that was told is never given to another entry."""

    def after(self, number: int) -> Sequence[Entry]:
        """The entries with greater numbers, oldest first."""

    def listen(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call it whenever there are new ones, from any thread; it must not block. What is returned ends that."""


class Kept(Protocol):
    """Small files that are stored with the state. Safe for all threads."""

    def names(self) -> Sequence[str]:
        """Sorted."""

    def content(self, name: str) -> bytes | None:
        """None: there is no such file."""

    def keep(self, name: str, content: bytes) -> None:
        """Store it; may block. Raise FileError."""


#: New options, or the environment of an app that has them -> what an update to them would do.
Foretell = Callable[[Mapping[str, Any]], Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Backend:
    """`look`: the state as it is at the call. `put`: into the loop's inbox; None: there is no loop (any more)."""

    look: Callable[[], Snapshot]
    put: Put | None = None
    desk: Desk = field(default_factory=Desk)
    journal: Journal | None = None
    curves: Curves = field(default_factory=Curves)
    files: Files | None = None
    kept: Kept | None = None
    #: What an update would do; raises SchedulerError for options that are wrong.
    foretell: Foretell | None = None

    async def ask(self, event: Event) -> Answer | None:
        """What the loop answers; None: nothing, or there is no loop. Raise NoAnswer."""
        if self.put is None or self.look().state.over:
            return None
        return await self.desk.ask(self.put, event)

    def observe(self, event: Event, decision: Decision) -> None:
        """The API's part in the loop: an Observer."""
        self.desk(event, decision)
        self.curves(event, decision)

    def curve(self) -> Mapping[TaskName, Curve]:
        """Of each task; see `curves`."""
        return self.curves.shown()
