"""Rate limit of REVIVE and back-off between offer rounds."""

from hypothesis import given
from hypothesis import strategies as st

from tf_scheduler.core.state.backoff import (
    BURST,
    CAPACITY,
    MAX_WINDOW,
    MIN_DELAY,
    MIN_TOKEN_INTERVAL,
    SECONDS_PER_TOKEN,
    jitter_from_id,
    next_token_at,
    round_delay,
    take_token,
)
from tf_scheduler.model.offer import FULL_TOKEN_BUCKET, TokenBucket


def test_first_token_is_available_immediately() -> None:
    """The bucket starts full."""
    assert TokenBucket(CAPACITY - 1, 1000.0, 1000.0) == take_token(FULL_TOKEN_BUCKET, 1000.0)


def bucket_after(count):
    bucket = FULL_TOKEN_BUCKET
    for _ in range(count):
        after = take_token(bucket, 1000.0)
        assert after
        bucket = after
    return bucket


def test_full_bucket_gives_several_tokens_immediately() -> None:
    """A task lost right after another is placed immediately."""
    bucket = bucket_after(int(BURST))

    assert CAPACITY - BURST == bucket.tokens


def test_later_tokens_are_five_seconds_apart() -> None:
    """However many are left."""
    bucket = bucket_after(int(BURST))

    assert take_token(bucket, 1000.0) is None
    assert take_token(bucket, 1000.0 + MIN_TOKEN_INTERVAL - 0.1) is None
    assert 1000.0 + MIN_TOKEN_INTERVAL == next_token_at(bucket, 1000.0)
    assert take_token(bucket, 1000.0 + MIN_TOKEN_INTERVAL) is not None


def test_unused_bucket_fills_again() -> None:
    """Not beyond its capacity."""
    later = take_token(bucket_after(int(BURST)), 1000.0 + 2 * BURST * SECONDS_PER_TOKEN)

    assert CAPACITY - 1 == later.tokens


def test_empty_bucket_fills_slowly() -> None:
    """One token in 256 seconds."""
    empty = TokenBucket(0.0, 1000.0, 900.0)

    assert 1000.0 + SECONDS_PER_TOKEN == next_token_at(empty, 1000.0)
    assert take_token(empty, 999.0 + SECONDS_PER_TOKEN) is None
    assert TokenBucket(0.0, 1000.0 + SECONDS_PER_TOKEN, 1000.0 + SECONDS_PER_TOKEN) == take_token(
        empty, 1000.0 + SECONDS_PER_TOKEN
    )


@given(st.lists(st.floats(0.0, 500.0), max_size=400))
def test_tokens_never_exceed_capacity_and_rate(pauses) -> None:
    """For any times of requests: at most the capacity, and one per 256 s."""
    now, bucket, count = 1000.0, FULL_TOKEN_BUCKET, 0
    for pause in pauses:
        now += pause
        after = take_token(bucket, now)
        assert (after is None) is (now < next_token_at(bucket, now))
        bucket, count = after or bucket, count + (after is not None)
        assert 0.0 <= bucket.tokens <= CAPACITY
        due = next_token_at(bucket, now)
        assert take_token(bucket, max(now, due)) is not None, "nobody is woken in vain"

    assert count <= CAPACITY + (now - 1000.0) / SECONDS_PER_TOKEN


@given(st.integers(1, 10_000), st.floats(0.0, 60.0), st.floats(0.0, 1.0, exclude_max=True))
def test_offer_back_off_is_bounded(failures, hold, luck) -> None:
    """It never exceeds the longest window, for any number of failures."""
    assert MIN_DELAY <= round_delay(failures, hold, luck) <= MIN_DELAY + MAX_WINDOW


def test_back_off_window_doubles() -> None:
    """From hold_seconds, up to a minute."""
    assert [5.0, 10.0, 20.0, 40.0, 60.0, 60.0] == [round_delay(n, 5.0, 1.0) - MIN_DELAY for n in range(1, 7)]


@given(st.uuids().map(str))
def test_jitter_depends_on_id(unique) -> None:
    """The same id gives the same number, from 0 to 1."""
    assert jitter_from_id(unique) == jitter_from_id(unique)
    assert 0.0 <= jitter_from_id(unique) < 1.0


def test_jitter_is_spread() -> None:
    """Ids that differ in one digit give numbers over the whole range."""
    numbers = sorted(jitter_from_id(f"id-{number}") for number in range(1000))

    assert numbers[100] < 0.2
    assert numbers[900] > 0.8


def test_first_token_is_not_delayed_by_an_empty_bucket() -> None:
    """The distance counts from the last token that was taken."""
    assert 0.0 == next_token_at(TokenBucket(1.0), 1000.0)
