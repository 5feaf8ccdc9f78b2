"""Back-off and giving up."""

from hypothesis import given
from hypothesis import strategies as st

from tf_scheduler.core.state.backoff import recent_failures, restart_delay
from tf_scheduler.model.spec import RestartPolicy

POLICY = RestartPolicy(max_failures=2, window=100.0, backoff=2.0, max_backoff=60.0)


def test_first_retry_is_immediate_and_back_off_doubles() -> None:
    """Doubling up to the limit."""
    assert [0.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0] == [restart_delay(POLICY, n, 1.0) for n in range(1, 9)]


@given(st.integers(0, 10_000), st.floats(0, 1))
def test_back_off_is_between_zero_and_limit(failures, chance) -> None:
    """Also after very many failures; the jitter shortens it by up to half."""
    wait, longest = restart_delay(POLICY, failures, chance), restart_delay(POLICY, failures, 1.0)

    assert longest / 2 <= wait <= longest <= POLICY.max_backoff


def test_only_failures_within_the_window_are_recent() -> None:
    assert (1010.0, 1050.0) == recent_failures([900.0, 1010.0, 1050.0], 100.0, 1100.0)
