"""How long each plan has been in which status. Nobody tells when that changes: it is looked at again and again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping

from tf_scheduler.model.plan import Plan, Status
from tf_scheduler.model.state import SchedulerState

from .sdk import statuses

#: Seconds between two looks at least; one that is costly is made as many times as seldom.
_PAUSE, _AGAIN = 1.0, 50.0

Plans = Callable[[], Mapping[str, Plan]]


class PlanWatch:
    """`plans`: those of the state now. Safe for all threads."""

    def __init__(
        self,
        state: Callable[[], SchedulerState],
        plans: Plans,
        *,
        clock: Callable[[], float] = time.monotonic,
        cost: Callable[[], float] = time.thread_time,
    ) -> None:
        self._state, self._plans, self._clock, self._cost = state, plans, clock, cost
        self._lock = threading.Lock()
        self._seen: tuple[SchedulerState, dict[str, Status]] | None = None
        self._at = clock()
        self._next = 0.0
        self._seconds: dict[tuple[str, Status], float] = {}

    def look(self) -> Mapping[str, Status]:
        """The status of each plan, as of the last look: now, if that was long enough ago."""
        with self._lock:
            now = self._clock()
            known = self._seen
            if known is not None:
                for name, status in known[1].items():
                    key = (name, status)
                    self._seconds[key] = self._seconds.get(key, 0.0) + now - self._at
            self._at = now
            state = self._state()
            if known is None or (known[0] is not state and now >= self._next):
                known = self._seen = (state, self._looked(now))
                for item in known[1].items():
                    self._seconds.setdefault(item, 0.0)
            return dict(known[1])

    def seconds(self) -> Mapping[tuple[str, Status], float]:
        """Plan and status -> seconds in it since the start of the scheduler."""
        with self._lock:
            return dict(self._seconds)

    def _looked(self, now: float) -> dict[str, Status]:
        begun = self._cost()
        found = statuses(self._plans())
        self._next = now + max(_PAUSE, _AGAIN * (self._cost() - begun))
        return found
