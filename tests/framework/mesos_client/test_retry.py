"""Where and when to subscribe again, as a function of what happened before."""

from __future__ import annotations

import random

import pytest

from mesos_client.backoff import REJECTED_BACKOFF, STABLE_AFTER, UNAVAILABLE_BACKOFF
from mesos_client.credentials import Credentials
from mesos_client.http import HttpRequest
from mesos_client.masters import MasterList, parse_masters
from mesos_client.scheduler import MAX_REDIRECTS, SubscribeRetry
from mesos_client.stream import StreamLoss

PATH = "/api/v1/scheduler"


@pytest.fixture(autouse=True)
def longest_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """No chance: each wait is the longest that it could be."""
    monkeypatch.setattr(random, "uniform", lambda _low, high: high)


class RetryHarness:
    """Masters, and the loss of whichever is asked now."""

    def __init__(self, masters: str) -> None:
        self.masters = MasterList(parse_masters(masters))
        self.retry = SubscribeRetry(self.masters, Credentials(), PATH)

    def lose(self, now: float, status: int | None = None, location: str | None = None) -> float:
        """Return the wait."""
        request = HttpRequest(f"{self.masters.current}{PATH}", {}, b"", 1.0)
        return self.retry.after(StreamLoss("test", status, location, request), now)[0]


def test_waits_grow_to_the_maximum() -> None:
    """Waits restart after a lasting subscription, not after one cut immediately."""
    world = RetryHarness("a")
    now, waits = 0.0, []
    for _ in range(5):
        waits.append(world.lose(now))
        now += waits[-1]
    assert [0.25, 0.5, 1.0, 1.0, 1.0] == waits
    world.retry.subscribed(now)
    assert world.lose(now + STABLE_AFTER - 1) == UNAVAILABLE_BACKOFF.maximum
    world.retry.subscribed(now)
    assert world.lose(now + STABLE_AFTER) == UNAVAILABLE_BACKOFF.first


def test_delay_includes_duration_of_round() -> None:
    """A master that takes 4 s to fail delays the next one by no further wait."""
    world = RetryHarness("a,b")
    assert world.lose(0.0) == 0.0
    assert world.lose(0.1) == pytest.approx(0.25)
    assert world.lose(0.35) == 0.0
    assert world.lose(4.35) == 0.0, "the round has taken longer than any wait"
    assert world.masters.current == "http://a:5050"


def test_lost_subscription_starts_a_full_delay() -> None:
    """Jitter spreads schedulers that lose their master in the same moment."""
    world = RetryHarness("a")
    world.lose(0.0)
    world.retry.subscribed(1.0)
    assert world.lose(1000.0) == UNAVAILABLE_BACKOFF.first


def test_redirects_are_followed_up_to_a_limit() -> None:
    """Then the given masters are asked again, after a wait."""
    world = RetryHarness("a")
    for number in range(MAX_REDIRECTS):
        assert world.lose(0.0, 307, f"//m{number}:1/x") == 0.0
        assert world.masters.current == f"http://m{number}:1"
    assert world.lose(0.0, 307, "//m9:1/x") == UNAVAILABLE_BACKOFF.first
    assert world.masters.current == "http://a:5050"


def test_failed_leader_falls_back_to_master_list() -> None:
    """After a wait: they may not know yet that it is gone."""
    world = RetryHarness("a,b")
    assert world.lose(0.0, 307, "//m:1/x") == 0.0
    assert world.lose(0.0) == UNAVAILABLE_BACKOFF.first
    assert world.masters.current == "http://a:5050"


def test_rejections_wait_longer_and_are_reported_once() -> None:
    """A rejection is reported when its status changes."""
    world, request = RetryHarness("a"), HttpRequest(f"http://a:5050{PATH}", {}, b"", 1.0)
    steps = [world.retry.after(StreamLoss("test", status, None, request), 0.0) for status in (403, 403, 400, 503, 400)]
    assert [True, False, True, False, False] == [is_rejected for _, is_rejected in steps]
    assert [1.0, 2.0, 4.0, UNAVAILABLE_BACKOFF.maximum, REJECTED_BACKOFF.maximum] == [delay for delay, _ in steps]


def test_interrupted_delay_is_forgotten() -> None:
    """A master newly named by the detector is tried before a long wait has ended."""
    world = RetryHarness("a")
    for _ in range(6):
        world.lose(0.0, 403)
    world.masters.replace(parse_masters("b"))
    assert world.lose(0.1, 503) <= UNAVAILABLE_BACKOFF.maximum
