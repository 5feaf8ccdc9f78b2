"""The time, and waiting for it to pass: one object, so that tests can let hours pass at once."""

from __future__ import annotations

import threading
import time


class Clock:
    """The machine's own."""

    def now(self) -> float:
        """Seconds since some moment; never goes back."""
        return time.monotonic()

    def wait(self, event: threading.Event, seconds: float) -> bool:
        """Wait until `event` is set, at most so long; return whether it is set."""
        return event.wait(seconds)
