"""Back-off as a pure function of the number of failures and a random number."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from mesos_client.backoff import (
    MAX_ATTEMPTS_PER_SECOND,
    REJECTED_BACKOFF,
    UNAVAILABLE_BACKOFF,
    AttemptRateLimit,
    Backoff,
)


@given(st.integers(0, 10**9), st.integers())
def test_a_wait_stays_between_half_and_all_of_its_ceiling(attempt, seed) -> None:
    """No failure count gives a wait beyond the maximum, or one near zero."""
    for policy in (UNAVAILABLE_BACKOFF, REJECTED_BACKOFF):
        wait = policy.delay(attempt, random.Random(seed).uniform)
        assert policy.first / 2 <= wait <= policy.maximum


def test_ceilings_double_up_to_the_maximum() -> None:
    """Waits grow from 0.25 s to 1 s (no master), or to 15 s (rejected by a master)."""
    assert [0.25, 0.5, 1.0, 1.0] == [UNAVAILABLE_BACKOFF.delay(attempt, lambda low, high: high) for attempt in range(4)]
    assert [1, 2, 4, 8, 15, 15] == [REJECTED_BACKOFF.delay(attempt, lambda low, high: high) for attempt in range(6)]


def test_waits_differ() -> None:
    """Jitter: schedulers that lost the same master do not reconnect simultaneously."""
    assert Backoff().delay(5, lambda low, high: low) < Backoff().delay(5, lambda low, high: high)


@given(st.lists(st.floats(0, 2), max_size=60))
def test_rate_limit_holds_for_any_pauses(pauses) -> None:
    """No second has more than four attempts, and no attempt waits longer than needed."""
    pace, now = AttemptRateLimit(), 0.0
    times: list[float] = []
    for pause in pauses:
        now += pause
        wait = pace.wait(now)
        assert wait <= 1 + 1e-9
        assert wait == 0 or len(times) >= MAX_ATTEMPTS_PER_SECOND
        now += wait
        assert pace.wait(now) <= 1e-9
        pace.started(now)
        times.append(now)
    for early, late in zip(times, times[MAX_ATTEMPTS_PER_SECOND:], strict=False):
        assert late - early >= 1 - 1e-9
