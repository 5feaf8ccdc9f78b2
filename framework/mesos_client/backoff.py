"""How long to wait before the next attempt. Pure: chance comes in as a function."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Callable

#: Draws uniformly from the interval between its two arguments, as random.uniform does.
Uniform = Callable[[float, float], float]


@dataclass(frozen=True)
class Backoff:
    """Exponential with jitter: attempt n waits between half and all of min(maximum, first * factor**n) seconds."""

    first: float = 0.25
    factor: float = 2.0
    maximum: float = 1.0

    def delay(self, attempt: int, uniform: Uniform) -> float:
        """Seconds before the attempt that follows `attempt` failures in a row (0 is the first failure)."""
        # The exponent is bounded, or a day of failures would overflow a float.
        ceiling = min(self.maximum, self.first * self.factor ** min(attempt, 32))
        return uniform(ceiling / 2, ceiling)


#: The master is away or not ready (refused, 503, stream cut): a few attempts per second, so that we are back within
#: 1 s of its return.
ABSENT = Backoff(first=0.25, maximum=1.0)
#: The master answers and says no (401, 403, ...): asking often will not change its mind. The cap is that of
#: docs/scheduler-http-api.md.
REFUSED = Backoff(first=1.0, maximum=15.0)
#: A subscription that held this many seconds ends a row of failures. One that is cut at once does not.
STEADY_AFTER = 5.0


#: No more subscriptions than this are tried in any one second, whatever else asks for one at once: redirects, a list
#: of masters, a detector, a driver's owner.
MOST_PER_SECOND = 4


class Pace:
    """Holds attempts back that would be too many for one second. Times are in seconds, of any one clock."""

    def __init__(self, most: int = MOST_PER_SECOND) -> None:
        self._recent: deque[float] = deque(maxlen=most)

    def wait(self, now: float) -> float:
        """Seconds until the next attempt may start; 0 when it may now."""
        if len(self._recent) < (self._recent.maxlen or 0):
            return 0.0
        return max(0.0, self._recent[0] + 1.0 - now)

    def started(self, now: float) -> None:
        """An attempt starts."""
        self._recent.append(now)


@dataclass(frozen=True)
class Recovery:
    """An executor's wait while its agent is away: uniform between 0 and half of MESOS_SUBSCRIPTION_BACKOFF_MAX.

    A recovered agent gives executors `--executor_reregistration_timeout`, by default as long as that maximum (2 s).
    A wait of the full maximum that starts just before could miss the window; half of it cannot.
    """

    maximum: float = 2.0

    def delay(self, uniform: Uniform) -> float:
        return uniform(0.0, self.maximum / 2)
