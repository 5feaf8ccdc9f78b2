"""The connections of the API: those that say nothing make place for others before anybody is refused."""

from __future__ import annotations

from typing import Protocol

from .seats import Seats
from .views.base import Problem


class Holder(Protocol):
    """A connection."""

    def is_idle(self) -> bool:
        """It has asked nothing, or nothing more."""

    def cut_off(self) -> None:
        """At once."""


class Places:
    """For one thread. `most` places, and `crowd` more for those who are only told that they have too many."""

    def __init__(self, most: int, crowd: int) -> None:
        self._seats, self._crowd = Seats(most, "connections"), Seats(crowd, "connections")
        #: Client -> its connections, the oldest first, and where each sits.
        self._held: dict[str, dict[Holder, Seats]] = {}

    def take(self, client: str, holder: Holder) -> Problem | None:
        """None: it has a place. Else it is to be told why not; where too many are told already, it is cut off."""
        problem = self._seats.take(client)
        while problem is not None and (idle := self._idle(client)) is not None:
            idle.cut_off()
            self.leave(client, idle)
            problem = self._seats.take(client)
        if problem is not None and self._crowd.take(client) is not None:
            holder.cut_off()
        else:
            self._held.setdefault(client, {})[holder] = self._seats if problem is None else self._crowd
        return problem

    def leave(self, client: str, holder: Holder) -> None:
        """It has ended; more than once is as good as once."""
        seats = self._held.get(client, {}).pop(holder, None)
        if seats is not None:
            seats.leave(client)
        if not self._held.get(client, True):
            del self._held[client]

    def _idle(self, client: str) -> Holder | None:
        """The oldest that says nothing."""
        return next((holder for holder in self._held.get(client, ()) if holder.is_idle()), None)
