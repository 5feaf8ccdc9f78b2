"""Where and when to subscribe again, as a function of what happened before."""

from __future__ import annotations

import random

import pytest

from mesos_client.backoff import ABSENT, REFUSED, STEADY_AFTER
from mesos_client.credentials import Credentials
from mesos_client.masters import Masters, parse_masters
from mesos_client.retry import MAX_REDIRECTS, Retry
from mesos_client.subscriber import Loss
from mesos_client.transport import Request

PATH = "/api/v1/scheduler"


@pytest.fixture(autouse=True)
def longest_waits(monkeypatch):
    """No chance: each wait is the longest that it could be."""
    monkeypatch.setattr(random, "uniform", lambda _low, high: high)


class World:
    """Masters, and the loss of whichever is asked now."""

    def __init__(self, masters: str) -> None:
        self.masters = Masters(parse_masters(masters))
        self.retry = Retry(self.masters, Credentials(), PATH)

    def lose(self, now: float, status: int | None = None, location: str | None = None) -> float:
        """Return the wait."""
        request = Request(f"{self.masters.current}{PATH}", {}, b"", 1.0)
        return self.retry.after(Loss("test", status, location, request), now).delay


def test_waits_grow_to_the_maximum():
    """And begin anew after a subscription that held, not after one that was cut at once."""
    world = World("a")
    now, waits = 0.0, []
    for _ in range(5):
        waits.append(world.lose(now))
        now += waits[-1]
    assert [0.25, 0.5, 1.0, 1.0, 1.0] == waits
    world.retry.subscribed(now)
    assert world.lose(now + STEADY_AFTER - 1) == ABSENT.maximum
    world.retry.subscribed(now)
    assert world.lose(now + STEADY_AFTER) == ABSENT.first


def test_what_a_round_takes_is_part_of_the_wait():
    """A master of the list that does not answer for 4 s must not keep us from the others for longer."""
    world = World("a,b")
    assert world.lose(0.0) == 0.0
    assert world.lose(0.1) == pytest.approx(0.25)
    assert world.lose(0.35) == 0.0
    assert world.lose(4.35) == 0.0, "the round has taken longer than any wait"
    assert world.masters.current == "http://a:5050"


def test_the_wait_after_a_lost_subscription_is_a_whole_one():
    """All schedulers of a cluster lose their master in the same moment: chance spreads them."""
    world = World("a")
    world.lose(0.0)
    world.retry.subscribed(1.0)
    assert world.lose(1000.0) == ABSENT.first


def test_redirects_are_followed_at_once_but_not_for_ever():
    """Then the given masters are asked again, after a wait."""
    world = World("a")
    for number in range(MAX_REDIRECTS):
        assert world.lose(0.0, 307, f"//m{number}:1/x") == 0.0
        assert world.masters.current == f"http://m{number}:1"
    assert world.lose(0.0, 307, "//m9:1/x") == ABSENT.first
    assert world.masters.current == "http://a:5050"


def test_a_leader_that_fails_leads_back_to_those_who_named_it():
    """After a wait: they may not know yet that it is gone."""
    world = World("a,b")
    assert world.lose(0.0, 307, "//m:1/x") == 0.0
    assert world.lose(0.0) == ABSENT.first
    assert world.masters.current == "http://a:5050"


def test_refusals_wait_longer_and_are_news_once():
    """The reason is told when it changes."""
    world, request = World("a"), Request(f"http://a:5050{PATH}", {}, b"", 1.0)
    steps = [world.retry.after(Loss("test", status, None, request), 0.0) for status in (403, 403, 400, 503, 400)]
    assert [True, False, True, False, False] == [step.refused for step in steps]
    assert [1.0, 2.0, 4.0, ABSENT.maximum, REFUSED.maximum] == [step.delay for step in steps]


def test_a_wait_that_somebody_ended_is_forgotten():
    """A detector names another master during a long wait: its failure is not waited for as long."""
    world = World("a")
    for _ in range(6):
        world.lose(0.0, 403)
    world.masters.replace(parse_masters("b"))
    assert world.lose(0.1, 503) <= ABSENT.maximum
