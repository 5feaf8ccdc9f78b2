"""Back-off between offer rounds and between launches."""

from hypothesis import given
from hypothesis import strategies as st

from tf_scheduler.core.state import backoff
from tf_scheduler.model.spec import RestartPolicy

POLICY = RestartPolicy(max_failures=2, window=100.0, backoff=2.0, max_backoff=60.0)


@given(st.integers(1, 10_000), st.floats(0.0, 60.0), st.floats(0.0, 1.0, exclude_max=True))
def test_offer_back_off_is_bounded(failures, hold, luck) -> None:
    """It never exceeds the longest window, for any number of failures."""
    assert backoff.MIN_DELAY <= backoff.round_delay(failures, hold, luck) <= backoff.MIN_DELAY + backoff.MAX_WINDOW


def test_back_off_window_doubles() -> None:
    """From hold_seconds, up to a minute."""
    windows = [backoff.round_delay(n, 5.0, 1.0) - backoff.MIN_DELAY for n in range(1, 7)]
    assert [5.0, 10.0, 20.0, 40.0, 60.0, 60.0] == windows


def test_jitter_is_spread_and_depends_on_id() -> None:
    numbers = sorted(map(backoff.jitter_from_id, map("id-{}".format, range(1000))))
    assert numbers == sorted(map(backoff.jitter_from_id, map("id-{}".format, range(1000))))
    assert 0.0 <= numbers[0] <= numbers[100] < 0.2 < 0.8 < numbers[900] <= numbers[-1] < 1.0


def test_first_retry_is_immediate_and_back_off_doubles() -> None:
    assert [0.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0] == [backoff.restart_delay(POLICY, n, 1.0) for n in range(1, 9)]


@given(st.integers(0, 10_000), st.floats(0, 1))
def test_back_off_is_between_zero_and_limit(failures, chance) -> None:
    """Also after very many failures; the jitter shortens it by up to half."""
    wait, longest = backoff.restart_delay(POLICY, failures, chance), backoff.restart_delay(POLICY, failures, 1.0)

    assert longest / 2 <= wait <= longest <= POLICY.max_backoff


def test_only_failures_within_the_window_are_recent() -> None:
    assert (1010.0, 1050.0) == backoff.recent_failures([900.0, 1010.0, 1050.0], 100.0, 1100.0)
