"""How long to wait before the next launch, and when to give up."""

from __future__ import annotations

from collections.abc import Iterable

from tf_scheduler.model.policy import RestartPolicy

#: The first retries of what is nobody's fault come at once; a cluster that keeps failing gets time to recover.
_FREE_RETRIES = 1


def recent(failures: Iterable[float], window: float, now: float) -> tuple[float, ...]:
    """The times of failures that still count: within `window` seconds before `now`."""
    return tuple(time for time in failures if time > now - window)


def gives_up(policy: RestartPolicy, failures: Iterable[float], now: float) -> bool:
    """Whether the counted failures, this one included, are more than the policy forgives."""
    return len(recent(failures, policy.window, now)) > policy.max_failures


def delay(policy: RestartPolicy, failures: int, chance: float) -> float:
    """Seconds to wait after so many failures in a row. `chance` from 0 to 1 spreads those that fail together.

    Doubles from `backoff` up to `max_backoff`; the jitter is the upper half of it.
    """
    doublings = failures - _FREE_RETRIES - 1
    if doublings < 0:
        return 0.0
    whole = min(policy.max_backoff, policy.backoff * 2.0 ** min(doublings, 32))
    return whole * (0.5 + chance / 2)
