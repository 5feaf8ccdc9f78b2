"""How often Mesos is asked, and how long the service keeps away: token bucket and back-off."""

from hypothesis import given
from hypothesis import strategies as st

from tf_scheduler.core.back_off import LONGEST_WINDOW, SHORTEST, back_off, chance
from tf_scheduler.core.bucket import AT_ONCE, BETWEEN_TOKENS, CAPACITY, SECONDS_PER_TOKEN, take, token_at
from tf_scheduler.model.evaluation import FULL_BUCKET, Bucket


def test_the_first_token_is_there_at_once():
    """A full bucket has been waiting."""
    assert Bucket(CAPACITY - 1, 1000.0, 1000.0) == take(FULL_BUCKET, 1000.0)


def taken(count):
    bucket = FULL_BUCKET
    for _ in range(count):
        bucket = take(bucket, 1000.0)
    return bucket


def test_the_first_of_a_full_bucket_need_not_wait_for_each_other():
    """What is lost right after something else is sought a place at once."""
    bucket = taken(int(AT_ONCE))

    assert CAPACITY - AT_ONCE == bucket.tokens


def test_no_two_further_tokens_within_five_seconds():
    """However many are left."""
    bucket = taken(int(AT_ONCE))

    assert take(bucket, 1000.0) is None
    assert take(bucket, 1000.0 + BETWEEN_TOKENS - 0.1) is None
    assert 1000.0 + BETWEEN_TOKENS == token_at(bucket, 1000.0)
    assert take(bucket, 1000.0 + BETWEEN_TOKENS) is not None


def test_a_bucket_that_was_left_alone_is_full_again():
    """Not fuller than that."""
    later = take(taken(int(AT_ONCE)), 1000.0 + 2 * AT_ONCE * SECONDS_PER_TOKEN)

    assert CAPACITY - 1 == later.tokens


def test_an_empty_bucket_fills_slowly():
    """One token in 256 seconds."""
    empty = Bucket(0.0, 1000.0, 900.0)

    assert 1000.0 + SECONDS_PER_TOKEN == token_at(empty, 1000.0)
    assert take(empty, 999.0 + SECONDS_PER_TOKEN) is None
    assert Bucket(0.0, 1000.0 + SECONDS_PER_TOKEN, 1000.0 + SECONDS_PER_TOKEN) == take(
        empty, 1000.0 + SECONDS_PER_TOKEN
    )


@given(st.lists(st.floats(0.0, 500.0), max_size=400))
def test_never_more_than_the_bucket_holds_and_gets(pauses):
    """Whenever it is asked: at most a bucketful, and one per 256 s."""
    now, bucket, count = 1000.0, FULL_BUCKET, 0
    for pause in pauses:
        now += pause
        after = take(bucket, now)
        assert (after is None) is (now < token_at(bucket, now))
        bucket, count = after or bucket, count + (after is not None)
        assert 0.0 <= bucket.tokens <= CAPACITY
        due = token_at(bucket, now)
        assert take(bucket, max(now, due)) is not None, "nobody is woken in vain"

    assert count <= CAPACITY + (now - 1000.0) / SECONDS_PER_TOKEN


@given(st.integers(1, 10_000), st.floats(0.0, 60.0), st.floats(0.0, 1.0, exclude_max=True))
def test_a_back_off_is_bounded(failures, hold, luck):
    """It never lasts longer than the longest window, however often it failed."""
    assert SHORTEST <= back_off(failures, hold, luck) <= SHORTEST + LONGEST_WINDOW


def test_the_window_doubles():
    """From hold_seconds, up to a minute."""
    assert [5.0, 10.0, 20.0, 40.0, 60.0, 60.0] == [back_off(n, 5.0, 1.0) - SHORTEST for n in range(1, 7)]


@given(st.uuids().map(str))
def test_chance_comes_from_ids(unique):
    """The same id, the same number, from 0 to 1."""
    assert chance(unique) == chance(unique)
    assert 0.0 <= chance(unique) < 1.0


def test_chance_is_spread():
    """Ids that differ in one digit give numbers all over the range."""
    numbers = sorted(chance(f"id-{number}") for number in range(1000))

    assert numbers[100] < 0.2
    assert numbers[900] > 0.8
