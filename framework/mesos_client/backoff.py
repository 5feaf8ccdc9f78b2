"""Back-off and rate limit of connection attempts; the clock for both."""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import Callable

#: Draws uniformly from the interval between its two arguments, as random.uniform does.
Uniform = Callable[[float, float], float]


@dataclass(frozen=True)
class Backoff:
    """Back-off with jitter: half to all of min(maximum, first * factor**n) seconds."""

    first: float = 0.25
    factor: float = 2.0
    maximum: float = 1.0

    def delay(self, attempt: int, uniform: Uniform) -> float:
        """Return the seconds to wait after `attempt + 1` failures in a row."""
        # The bound on the exponent prevents a float overflow after a day of failures.
        ceiling = min(self.maximum, self.first * self.factor ** min(attempt, 32))
        return uniform(ceiling / 2, ceiling)


#: The master is away or not ready (connection refused, 503, stream cut): reconnect within 1 s of its return.
UNAVAILABLE_BACKOFF = Backoff(first=0.25, maximum=1.0)
#: The master rejects the request (401, 403, ...): retry rarely. Maximum as in docs/scheduler-http-api.md.
REJECTED_BACKOFF = Backoff(first=1.0, maximum=15.0)
#: Seconds after which a subscription resets the count of failures.
STABLE_AFTER = 5.0


#: Maximum attempts to subscribe per second, also with redirects, several masters or a detector.
MAX_ATTEMPTS_PER_SECOND = 4


class AttemptRateLimit:
    """Limit the attempts per second. Times are in seconds of any one clock."""

    def __init__(self, limit: int = MAX_ATTEMPTS_PER_SECOND) -> None:
        self._recent: deque[float] = deque(maxlen=limit)

    def wait(self, now: float) -> float:
        """Return the seconds until the next attempt may start."""
        if len(self._recent) < (self._recent.maxlen or 0):
            return 0.0
        return max(0.0, self._recent[0] + 1.0 - now)

    def started(self, now: float) -> None:
        """Record the start of an attempt."""
        self._recent.append(now)


class Clock:
    """Monotonic clock; tests replace it."""

    def now(self) -> float:
        """Return monotonic seconds."""
        return time.monotonic()

    def wait(self, event: threading.Event, seconds: float) -> bool:
        """Wait up to `seconds` until `event` is set; return whether it is set."""
        return event.wait(seconds)
