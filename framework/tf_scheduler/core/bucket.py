"""A token bucket: how often the master may be asked for something that costs it much."""

from __future__ import annotations

from tf_scheduler.model.evaluation import FULL_BUCKET, Bucket

#: The SDK's numbers for REVIVE (dcos-commons, TokenBucket): 256 at once, then one per 256 s, none within 5 s.
CAPACITY = FULL_BUCKET.tokens
SECONDS_PER_TOKEN = 256.0
BETWEEN_TOKENS = 5.0
#: Unlike the SDK's, the first of a full bucket need not wait for each other: what is lost soon after something else is
#: sought a place at once.
AT_ONCE = 8.0


def take(bucket: Bucket, now: float) -> Bucket | None:
    """The bucket with one token less; None when there is none to take yet."""
    if now < token_at(bucket, now):
        return None
    return Bucket(_tokens(bucket, now) - 1.0, now, now)


def token_at(bucket: Bucket, now: float) -> float:
    """When the next token can be taken; seconds since the epoch."""
    missing = max(0.0, 1.0 - bucket.tokens)
    hurried = bucket.taken_at and _tokens(bucket, now) < CAPACITY - AT_ONCE + 1.0
    earliest = bucket.taken_at + BETWEEN_TOKENS if hurried else 0.0
    return max(earliest, bucket.at + missing * SECONDS_PER_TOKEN if missing else 0.0)


def _tokens(bucket: Bucket, now: float) -> float:
    if not bucket.at:
        return bucket.tokens
    return min(CAPACITY, bucket.tokens + max(0.0, now - bucket.at) / SECONDS_PER_TOKEN)
