"""A clock of the tests' own: a wait lasts as long as it takes to write it down."""

from __future__ import annotations

import threading

from mesos_client.backoff import Clock


class FastClock(Clock):
    """Waits pass at once, and let this clock go on by so much; only a wait without end is a real one.

    It stops the driver that uses it when `end` is reached: `on_end` is called then, once.
    """

    def __init__(self, end: float = float("inf")) -> None:
        self._now, self._end = 0.0, end
        self.ended = threading.Event()

    def now(self) -> float:
        return self._now

    def wait(self, event: threading.Event, seconds: float) -> bool:
        if seconds == threading.TIMEOUT_MAX or self._now + seconds > self._end:
            self.ended.set()
            return event.wait()
        if not event.is_set():
            self._now += seconds
        return event.is_set()
