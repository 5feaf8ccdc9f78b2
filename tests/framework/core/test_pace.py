"""How often Mesos is asked, and how long the service keeps away: token bucket and back-off."""

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


def test_the_first_token_is_there_at_once():
    """A full bucket has been waiting."""
    assert TokenBucket(CAPACITY - 1, 1000.0, 1000.0) == take_token(FULL_TOKEN_BUCKET, 1000.0)


def taken(count):
    bucket = FULL_TOKEN_BUCKET
    for _ in range(count):
        bucket = take_token(bucket, 1000.0)
    return bucket


def test_the_first_of_a_full_bucket_need_not_wait_for_each_other():
    """What is lost right after something else is sought a place at once."""
    bucket = taken(int(BURST))

    assert CAPACITY - BURST == bucket.tokens


def test_no_two_further_tokens_within_five_seconds():
    """However many are left."""
    bucket = taken(int(BURST))

    assert take_token(bucket, 1000.0) is None
    assert take_token(bucket, 1000.0 + MIN_TOKEN_INTERVAL - 0.1) is None
    assert 1000.0 + MIN_TOKEN_INTERVAL == next_token_at(bucket, 1000.0)
    assert take_token(bucket, 1000.0 + MIN_TOKEN_INTERVAL) is not None


def test_a_bucket_that_was_left_alone_is_full_again():
    """Not fuller than that."""
    later = take_token(taken(int(BURST)), 1000.0 + 2 * BURST * SECONDS_PER_TOKEN)

    assert CAPACITY - 1 == later.tokens


def test_an_empty_bucket_fills_slowly():
    """One token in 256 seconds."""
    empty = TokenBucket(0.0, 1000.0, 900.0)

    assert 1000.0 + SECONDS_PER_TOKEN == next_token_at(empty, 1000.0)
    assert take_token(empty, 999.0 + SECONDS_PER_TOKEN) is None
    assert TokenBucket(0.0, 1000.0 + SECONDS_PER_TOKEN, 1000.0 + SECONDS_PER_TOKEN) == take_token(
        empty, 1000.0 + SECONDS_PER_TOKEN
    )


@given(st.lists(st.floats(0.0, 500.0), max_size=400))
def test_never_more_than_the_bucket_holds_and_gets(pauses):
    """Whenever it is asked: at most a bucketful, and one per 256 s."""
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
def test_a_back_off_is_bounded(failures, hold, luck):
    """It never lasts longer than the longest window, however often it failed."""
    assert MIN_DELAY <= round_delay(failures, hold, luck) <= MIN_DELAY + MAX_WINDOW


def test_the_window_doubles():
    """From hold_seconds, up to a minute."""
    assert [5.0, 10.0, 20.0, 40.0, 60.0, 60.0] == [round_delay(n, 5.0, 1.0) - MIN_DELAY for n in range(1, 7)]


@given(st.uuids().map(str))
def test_chance_comes_from_ids(unique):
    """The same id, the same number, from 0 to 1."""
    assert jitter_from_id(unique) == jitter_from_id(unique)
    assert 0.0 <= jitter_from_id(unique) < 1.0


def test_chance_is_spread():
    """Ids that differ in one digit give numbers all over the range."""
    numbers = sorted(jitter_from_id(f"id-{number}") for number in range(1000))

    assert numbers[100] < 0.2
    assert numbers[900] > 0.8
