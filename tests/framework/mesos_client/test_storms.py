"""Count subscriptions per failure with a real peer on a simulated clock."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise

import pytest

from mesos_client.backoff import MAX_ATTEMPTS_PER_SECOND, REJECTED_BACKOFF
from mesos_client.credentials import Credentials
from mesos_client.executor import ExecutorDriver
from mesos_client.scheduler import SchedulerDriver
from wire.client import ENVIRON, FRAMEWORK
from wire.peer import (
    PATIENCE,
    Exchange,
    Peer,
    Script,
    cut_after,
    executor_subscribed,
    status,
    stream,
    subscribed,
    vanish,
)
from wire.time import FastClock

#: Seconds of the clock that each failure lasts.
MINUTE = 60.0
#: What rounding may add.
EPSILON = 1e-6


class Counting(Credentials):
    """A permit that counts all attempts, also those without a connection."""

    def __init__(self, clock: FastClock) -> None:
        super().__init__("Basic x")
        self._clock, self.times = clock, list[float]()

    def header(self) -> str | None:
        self.times.append(self._clock.now())
        return super().header()


def most_in_a_second(times: list[float]) -> int:
    return max(sum(start <= time < start + 1 - EPSILON for time in times) for start in times)


def longest_pause(times: list[float]) -> float:
    return max(later - earlier for earlier, later in pairwise(times))


def reset(exchange: Exchange) -> None:
    """A connection that ends with RST."""
    exchange.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    os.close(exchange.connection.detach())


def cut_inside_a_record(exchange: Exchange) -> None:
    exchange.begin()
    exchange.connection.sendall(b"4\r\n99\n{\r\n")
    vanish(exchange)


def garbage(exchange: Exchange) -> None:
    exchange.begin()
    exchange.connection.sendall(b"5\r\n<html\r\n")
    exchange.hold()


def not_http(exchange: Exchange) -> None:
    exchange.connection.sendall(b"\x15\x03\x01\x00\x02\x02\x46")
    vanish(exchange)


ABSENT: dict[str, Script] = {
    "503": status(503, b"Master has not finished recovery"),
    "404": status(404),
    "500": status(500),
    "closed without an answer": vanish,
    "reset": reset,
    "closed after SUBSCRIBED": cut_after(subscribed()),
    "closed inside a record": cut_inside_a_record,
    "garbage": garbage,
    "no HTTP": not_http,
    "no stream": status(200, b"{}"),
    "redirect to nowhere": status(307, Location="//127.0.0.1:1/api/v1/scheduler"),
    "redirect without a place": status(307),
    "redirect that cannot be read": status(307, Location="gopher://x"),
}
NO: dict[str, Script] = {"400": status(400, b"no such principal"), "401": status(401), "403": status(403)}


@contextmanager
def running(address: str, clock: FastClock) -> Iterator[Counting]:
    """Run a scheduler driver until its simulated time is over."""
    credentials = Counting(clock)
    driver = SchedulerDriver(FRAMEWORK, address, on_event=ignore, on_state=ignore, credentials=credentials, clock=clock)
    driver.start()
    try:
        assert clock.ended.wait(PATIENCE)
        yield credentials
    finally:
        driver.stop()


def ignore(_: object) -> None:
    pass


@pytest.mark.parametrize("script", ABSENT.values(), ids=ABSENT)
def test_absent_master_is_retried_each_second(script) -> None:
    """One to four subscriptions in every second, for any failure."""
    clock = FastClock(MINUTE)
    with Peer(script, clock=clock.now) as peer, running(peer.address, clock):
        times = [one.at for one in peer.all("SUBSCRIBE")]
        assert most_in_a_second(times) <= MAX_ATTEMPTS_PER_SECOND
        assert longest_pause([*times, MINUTE]) <= 1.0 + EPSILON


@pytest.mark.parametrize("script", NO.values(), ids=NO)
def test_rejecting_master_is_asked_less_often(script) -> None:
    """A rejection rarely passes by itself: the interval grows to 15 s."""
    clock = FastClock(10 * MINUTE)
    with Peer(script, clock=clock.now) as peer, running(peer.address, clock):
        times = [one.at for one in peer.all("SUBSCRIBE")]
        assert most_in_a_second(times) <= 3
        assert longest_pause([*times, 10 * MINUTE]) <= REJECTED_BACKOFF.maximum + EPSILON
        assert len(times) <= 10 * MINUTE / (REJECTED_BACKOFF.maximum / 2) + 5


@pytest.mark.parametrize("address", ["127.0.0.1:1", "no-such-host.invalid:5050", "127.0.0.1:1,127.0.0.1:2,[::1]:1"])
def test_unreachable_master_is_retried_each_second(address, monkeypatch: pytest.MonkeyPatch) -> None:
    """No server listens, or the name does not exist: count the attempts themselves."""

    def getaddrinfo(host, *arguments, **options):
        if host.endswith(".invalid"):
            raise socket.gaierror("no such name")  # as the resolver says, but at once
        return real(host, *arguments, **options)

    real = socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    clock = FastClock(MINUTE)
    with running(address, clock) as credentials:
        assert most_in_a_second(credentials.times) <= MAX_ATTEMPTS_PER_SECOND
        assert longest_pause([*credentials.times, MINUTE]) <= 1.0 + EPSILON


def test_masters_that_point_at_each_other_are_not_chased() -> None:
    """Each says that the other leads."""
    clock = FastClock(MINUTE)
    others: list[str] = []

    def point(exchange) -> None:
        there = next(address for address in others if address != exchange.peer.address)
        exchange.answer(307, Location=f"//{there}/api/v1/scheduler")

    with Peer(point, clock=clock.now) as one, Peer(point, clock=clock.now) as two:
        others += [one.address, two.address]
        with running(one.address, clock) as credentials:
            assert most_in_a_second(credentials.times) <= MAX_ATTEMPTS_PER_SECOND
            assert longest_pause([*credentials.times, MINUTE]) <= 1.0 + EPSILON
            assert len(one.all("SUBSCRIBE")) + len(two.all("SUBSCRIBE")) == len(credentials.times)


def test_a_master_that_points_at_itself_is_not_chased() -> None:
    """For example a master that does not know its own address."""
    clock = FastClock(MINUTE)
    point = lambda exchange: exchange.answer(307, Location=f"//{exchange.peer.address}/")  # noqa: E731
    with Peer(point, clock=clock.now) as peer, running(peer.address, clock):
        assert most_in_a_second([one.at for one in peer.all("SUBSCRIBE")]) <= MAX_ATTEMPTS_PER_SECOND


@pytest.mark.parametrize("count", [3, 5])
def test_each_listed_master_is_asked_once_a_second(count) -> None:
    """A list of masters is not tried more often than a single master."""
    clock = FastClock(MINUTE)
    with ExitStack() as stack:
        peers = [stack.enter_context(Peer(status(503), clock=clock.now)) for _ in range(count)]
        with running(",".join(peer.address for peer in peers), clock) as credentials:
            assert most_in_a_second(credentials.times) <= MAX_ATTEMPTS_PER_SECOND
            for peer in peers:
                times = [one.at for one in peer.all("SUBSCRIBE")]
                assert most_in_a_second(times) <= 3
                assert longest_pause([*times, MINUTE]) <= 1.0 + count / MAX_ATTEMPTS_PER_SECOND


def when(clock: FastClock, moment: float, before: Script, then: Script) -> Script:
    return lambda exchange: (then if clock.now() >= moment else before)(exchange)


@pytest.mark.parametrize("before", ABSENT.values(), ids=ABSENT)
def test_returning_master_is_rejoined_within_a_second(before, driver_of, recorder) -> None:
    """After any failure of any duration, here of a minute."""
    clock = FastClock()
    with Peer(when(clock, MINUTE, before, stream(subscribed())), clock=clock.now) as peer:
        driver = driver_of(peer.address, clock=clock)
        driver.start()
        peer.wait_stream()
        assert MINUTE <= peer.all("SUBSCRIBE")[-1].at <= MINUTE + 1
        recorder.wait_event("SUBSCRIBED")


def test_repeated_stream_restarts_are_rate_limited(driver_of, recorder) -> None:
    """Repeated changes of the leader, or calls in a loop, respect the rate limit."""
    clock = FastClock()
    with Peer(stream(subscribed()), clock=clock.now) as peer:
        driver = driver_of(peer.address, clock=clock)
        driver.start()
        for _ in range(20):
            recorder.wait_event("SUBSCRIBED")
            driver.restart_stream()
        recorder.wait_event("SUBSCRIBED")
        assert most_in_a_second([one.at for one in peer.all("SUBSCRIBE")]) == MAX_ATTEMPTS_PER_SECOND


AGENT: dict[str, Script] = {
    **{name: ABSENT[name] for name in ("503", "404", "closed without an answer", "reset", "garbage")},
    "401": status(401),
    "closed after SUBSCRIBED": cut_after(executor_subscribed()),
}


@pytest.mark.parametrize("script", AGENT.values(), ids=AGENT)
def test_absent_agent_is_retried_each_second(script) -> None:
    """P8, P9: always within the agent's window of 2 s, and never in a loop."""
    times = attempts_of_executor(script)

    assert most_in_a_second(times) <= MAX_ATTEMPTS_PER_SECOND
    assert longest_pause([*times, MINUTE]) <= 1.0 + EPSILON


@pytest.mark.parametrize("maximum", ["0ns", "2secs"])
def test_zero_backoff_is_rate_limited(maximum) -> None:
    """An operator may set MESOS_SUBSCRIPTION_BACKOFF_MAX to 0."""
    times = attempts_of_executor(status(503), MESOS_SUBSCRIPTION_BACKOFF_MAX=maximum)

    assert 0 < most_in_a_second(times) <= MAX_ATTEMPTS_PER_SECOND


def attempts_of_executor(script: Script, **environ: str) -> list[float]:
    """Return the times of an executor's subscriptions within a minute."""
    clock = FastClock(MINUTE)
    with Peer(script, clock=clock.now) as peer:
        driver = executor(peer.address, clock, **environ)
        driver.start()
        try:
            assert clock.ended.wait(PATIENCE)
        finally:
            driver.stop()
        return [one.at for one in peer.all("SUBSCRIBE")]


def executor(address: str, clock: FastClock, **environ: str) -> ExecutorDriver:
    variables = {**ENVIRON, "MESOS_AGENT_ENDPOINT": address, "MESOS_SUBSCRIPTION_BACKOFF_MAX": "2secs", **environ}
    return ExecutorDriver(on_event=ignore, on_state=ignore, environ=variables, clock=clock)
