"""Back-off between offer rounds."""

from hypothesis import given
from hypothesis import strategies as st

from tf_scheduler.core.state.backoff import MAX_WINDOW, MIN_DELAY, jitter_from_id, round_delay


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
