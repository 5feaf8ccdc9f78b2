"""Simulated clock: waits return immediately."""

from __future__ import annotations

import threading

from mesos_client.backoff import Clock


class FastClock(Clock):
    """Advance by the time of each wait; only an unlimited wait is real.

    At `end` the clock calls `on_end` once, which stops the driver.
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
