"""How long to keep away after a round without success. Chance comes in as an argument."""

from __future__ import annotations

import zlib
from collections.abc import Iterable

from tf_scheduler.model.offer import FULL_TOKEN_BUCKET, TokenBucket
from tf_scheduler.model.spec import RestartPolicy

#: Seconds: no back-off is shorter, for the master allocates once a second (Mesos flag --allocation_interval), and
#: offers that come back before all others are free again help nobody.
MIN_DELAY = 1.0
#: Seconds: the window that a back-off is drawn from grows no further.
MAX_WINDOW = 60.0


def jitter_from_id(unique: str) -> float:
    """A number in [0, 1) from a unique id: ids are the only chance that the core knows."""
    return zlib.crc32(unique.encode()) / 2**32


def round_delay(failures: int, hold_seconds: float, luck: float) -> float:
    """Seconds to keep away from offers after `failures` rounds without success.

    Two services that need the same agents, each holding a part of them, would part and meet again for ever if both
    waited equally long. Drawn at random from a window that doubles, one of them soon waits so much longer that the
    other finds everything free for a whole round. `luck` in [0, 1).
    """
    window = min(MAX_WINDOW, max(MIN_DELAY, hold_seconds) * 2.0 ** min(failures - 1, 16))
    return MIN_DELAY + luck * window


# --- waiting
# How long to wait before the next launch, and when to give up.


#: The first retries of what is nobody's fault come at once; a cluster that keeps failing gets time to recover.
_FREE_RETRIES = 1


def recent_failures(failures: Iterable[float], window: float, now: float) -> tuple[float, ...]:
    """The times of failures that still count: within `window` seconds before `now`."""
    return tuple(time for time in failures if time > now - window)


def exhausted(policy: RestartPolicy, failures: Iterable[float], now: float) -> bool:
    """Whether the counted failures, this one included, are more than the policy forgives."""
    return len(recent_failures(failures, policy.window, now)) > policy.max_failures


def restart_delay(policy: RestartPolicy, failures: int, chance: float) -> float:
    """Seconds to wait after so many failures in a row. `chance` from 0 to 1 spreads those that fail together.

    Doubles from `backoff` up to `max_backoff`; the jitter is the upper half of it.
    """
    doublings = failures - _FREE_RETRIES - 1
    if doublings < 0:
        return 0.0
    whole = min(policy.max_backoff, policy.backoff * 2.0 ** min(doublings, 32))
    return whole * (0.5 + chance / 2)


# --- bucket
# A token bucket: how often the master may be asked for something that costs it much.


#: The SDK's numbers for REVIVE (dcos-commons, TokenBucket): 256 at once, then one per 256 s, none within 5 s.
CAPACITY = FULL_TOKEN_BUCKET.tokens
SECONDS_PER_TOKEN = 256.0
MIN_TOKEN_INTERVAL = 5.0
#: Unlike the SDK's, the first of a full bucket need not wait for each other: what is lost soon after something else is
#: sought a place at once.
BURST = 8.0


def take_token(bucket: TokenBucket, now: float) -> TokenBucket | None:
    """The bucket with one token less; None when there is none to take yet."""
    if now < next_token_at(bucket, now):
        return None
    return TokenBucket(_tokens(bucket, now) - 1.0, now, now)


def next_token_at(bucket: TokenBucket, now: float) -> float:
    """When the next token can be taken; seconds since the epoch."""
    missing = max(0.0, 1.0 - bucket.tokens)
    hurried = bucket.taken_at and _tokens(bucket, now) < CAPACITY - BURST + 1.0
    earliest = bucket.taken_at + MIN_TOKEN_INTERVAL if hurried else 0.0
    return max(earliest, bucket.at + missing * SECONDS_PER_TOKEN if missing else 0.0)


def _tokens(bucket: TokenBucket, now: float) -> float:
    if not bucket.at:
        return bucket.tokens
    return min(CAPACITY, bucket.tokens + max(0.0, now - bucket.at) / SECONDS_PER_TOKEN)
