"""What there are only so many of, connections and streams: one client cannot take them all."""

from __future__ import annotations

from collections import Counter

from .respond import TOO_MANY
from .views.base import Problem


class Seats:
    """For one thread. A client gets another seat while it holds fewer than are left: one alone has half of them.

    The next has half of the rest, and so on: some are always left for one who has none.
    """

    def __init__(self, most: int, what: str) -> None:
        self._free, self._what = most, what
        self._held: Counter[str] = Counter()

    def take(self, who: str) -> Problem | None:
        """None: it is theirs, until `leave`. Else why not."""
        if self._free <= 0:
            return Problem(503, f"too many {self._what} are open: ask again later")
        if self._held[who] >= self._free:
            why = f"{who} has {self._held[who]} {self._what} open, others need the rest: close some, or ask again later"
            return Problem(TOO_MANY, why)
        self._held[who] += 1
        self._free -= 1
        return None

    def leave(self, who: str) -> None:
        """Give one back."""
        self._free += 1
        self._held[who] -= 1
        if not self._held[who]:
            del self._held[who]
