"""Delays of offer rounds and relaunches (jitter is an argument); failure limits."""

from __future__ import annotations

import zlib
from collections.abc import Iterable

from tf_scheduler.model.spec import RestartPolicy

# --- Offer rounds


#: Minimum seconds: the master allocates once a second (Mesos flag --allocation_interval), and returned offers help
#: another service only while all others are free, too.
MIN_DELAY = 1.0
#: Maximum seconds of the window from which a delay is drawn.
MAX_WINDOW = 60.0


def jitter_from_id(unique: str) -> float:
    """Return a number in [0, 1) from a unique id, the core's only randomness."""
    return zlib.crc32(unique.encode()) / 2**32


def round_delay(failures: int, hold_seconds: float, jitter: float) -> float:
    """Return the seconds to decline offers after failed rounds; `jitter` in [0, 1).

    Two services may need the same agents, and each hold a part of them. With equal delays they would livelock. With
    random delays from a window that doubles, one service soon waits so long that the other gets all agents.
    """
    window = min(MAX_WINDOW, max(MIN_DELAY, hold_seconds) * 2.0 ** min(failures - 1, 16))
    return MIN_DELAY + jitter * window


# --- Relaunches


#: Number of failures that are retried without a delay.
_FREE_RETRIES = 1


def recent_failures(failures: Iterable[float], window: float, now: float) -> tuple[float, ...]:
    """Return the failure times within `window` seconds before `now`."""
    return tuple(time for time in failures if time > now - window)


def restart_delay(policy: RestartPolicy, failures: int, jitter: float) -> float:
    """Return the seconds before the relaunch after consecutive failures.

    The delay doubles from `backoff` to `max_backoff`. `jitter`, in [0, 1], varies its upper half.
    """
    doublings = failures - _FREE_RETRIES - 1
    if doublings < 0:
        return 0.0
    return min(policy.max_backoff, policy.backoff * 2.0 ** min(doublings, 32)) * (0.5 + jitter / 2)
