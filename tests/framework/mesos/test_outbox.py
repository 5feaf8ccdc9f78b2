"""The outbox between the loop and a master that is slow, or refuses calls."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kit.waiting import PATIENCE
from mesos_client.backoff import Backoff, Uniform
from mesos_client.results import Failed, NotConnected, Rejected, SendResult, Sent
from tf_scheduler.mesos.outbox import MAX_UNANSWERED, RESUBSCRIBE_INTERVAL, Outbox, QueuedCall
from tf_scheduler.model.effects import Accept, Acknowledge, Call, Decline, Kill, Revive, Suppress, Teardown
from tf_scheduler.model.events import CallFailed, CallsAccepted
from tf_scheduler.store.interface import LeadershipLostError

TIMED_OUT = Failed("timed out")
UNAUTHORIZED = Rejected(401, "Unauthorized")
ACCEPT = Accept(("offer-1",), (), 1.0)


def kill(number: int) -> Kill:
    return Kill(f"worker-{number}__1", "agent-1")


class Line:
    """Scripted connection: `answers` in order, then Sent."""

    def __init__(self, *answers: SendResult) -> None:
        self.answers = list(answers)
        self.sent: queue.Queue[Call] = queue.Queue()
        self.thunks: queue.Queue[Callable[[], Any]] = queue.Queue()
        self.lost: queue.Queue[tuple[int, str]] = queue.Queue()
        #: Clear it to make the master hang.
        self.is_answering = threading.Event()
        self.is_answering.set()
        self.leads = True
        #: Latest subscription: an earlier one cannot be ended.
        self.subscription = 0

    def resubscribe(self, subscription: int, reason: str) -> bool:
        self.lost.put((subscription, reason))
        return subscription >= self.subscription

    def send(self, item: QueuedCall) -> SendResult:
        self.sent.put(item.call)
        assert self.is_answering.wait(PATIENCE)
        return self.answers.pop(0) if self.answers else Sent()

    def check(self) -> None:
        if not self.leads:
            raise LeadershipLostError("test")

    def calls(self, count: int) -> list[Call]:
        """Wait for the next calls."""
        return [self.sent.get(timeout=PATIENCE) for _ in range(count)]

    def event(self) -> Any:
        return self.thunks.get(timeout=PATIENCE)()


@pytest.fixture
def outbox_of() -> Iterator[Callable[..., Outbox]]:
    made: list[tuple[Outbox, Line]] = []

    def make(line: Line, **options: Any) -> Outbox:
        outbox = Outbox(line.send, line.resubscribe, line.thunks.put, line.check, **options)
        made.append((outbox, line))
        outbox.start()
        return outbox

    yield make
    for outbox, line in made:
        line.is_answering.set()
        outbox.close(PATIENCE)


def add(outbox: Outbox, *calls: Call, subscription: int = 1) -> None:
    for call in calls:
        outbox.add(QueuedCall(call, {}, subscription))


def test_calls_keep_their_order(outbox_of) -> None:
    line, calls = Line(), [Suppress(), Revive(), *map(kill, range(50)), Revive()]
    add(outbox_of(line), *calls)

    assert calls == line.calls(len(calls))


def test_hanging_master_does_not_hold_the_loop(outbox_of) -> None:
    line = Line()
    line.is_answering.clear()
    outbox = outbox_of(line)

    add(outbox, *map(kill, range(100)))

    assert [kill(0)] == line.calls(1)
    assert 100 == len(outbox)
    line.is_answering.set()
    assert list(map(kill, range(1, 100))) == line.calls(99)


def test_repeated_kill_waits_once(outbox_of) -> None:
    """The core repeats each KILL every 10 s; the queue must not grow by that."""
    line = Line()
    line.is_answering.clear()
    outbox = outbox_of(line)
    add(outbox, Suppress())
    line.calls(1)

    add(outbox, kill(0), Acknowledge("t", "a", "u"), kill(0), Acknowledge("t", "a", "u"), kill(1))
    add(outbox, kill(0), subscription=2)

    line.is_answering.set()
    assert [kill(0), Acknowledge("t", "a", "u"), kill(1), kill(0)] == line.calls(4)
    add(outbox, kill(0))
    assert [kill(0)] == line.calls(1)


def test_refused_call_is_reported_and_ends_the_subscription(outbox_of) -> None:
    """A new subscription returns offers and repeats calls; at most once per interval."""
    line = Line(UNAUTHORIZED, UNAUTHORIZED)
    outbox = outbox_of(line)
    decline = Decline(("offer-1",), 1.0)
    add(outbox, decline)

    assert CallFailed(decline, "Unauthorized", 401) == line.event()
    assert (1, "Mesos refused a call: 401 Unauthorized") == line.lost.get(timeout=PATIENCE)
    add(outbox, Revive(), subscription=2)
    assert CallFailed(Revive(), "Unauthorized", 401) == line.event()
    add(outbox, Suppress(), subscription=2)
    assert CallsAccepted() == line.event()
    assert line.lost.empty()


def test_interval_limits_both_the_load_and_the_wait_for_restored_rights() -> None:
    assert 10 <= RESUBSCRIBE_INTERVAL <= 15


def test_later_refusal_ends_the_subscription_after_the_interval(outbox_of, monkeypatch) -> None:
    """Without another call, too."""
    monkeypatch.setattr("tf_scheduler.mesos.outbox.RESUBSCRIBE_INTERVAL", 0.05)
    line = Line(UNAUTHORIZED, UNAUTHORIZED)
    outbox = outbox_of(line)
    add(outbox, Revive())
    assert 1 == line.lost.get(timeout=PATIENCE)[0]
    add(outbox, Revive(), subscription=2)

    assert 2 == line.lost.get(timeout=PATIENCE)[0]


def test_refusal_on_lost_connection_does_not_delay_next(outbox_of) -> None:
    """Only a subscription that the outbox has ended counts for the interval."""
    line = Line(UNAUTHORIZED, UNAUTHORIZED)
    line.subscription = 2
    outbox = outbox_of(line)
    add(outbox, Revive())
    assert 1 == line.lost.get(timeout=PATIENCE)[0]
    add(outbox, Revive(), subscription=2)

    assert 2 == line.lost.get(timeout=RESUBSCRIBE_INTERVAL / 3)[0]


def test_unanswered_call_is_sent_again_in_its_place(outbox_of) -> None:
    """Otherwise a REVIVE could overtake a SUPPRESS."""
    line = Line(TIMED_OUT)
    add(outbox_of(line), Suppress(), Revive())

    assert [Suppress(), Suppress(), Revive()] == line.calls(3)
    assert CallFailed(Suppress(), "timed out", may_be_done=True) == line.event()


def test_unanswered_accept_is_not_sent_again(outbox_of) -> None:
    """Mesos may have launched its tasks."""
    line = Line(TIMED_OUT)
    add(outbox_of(line), ACCEPT, Suppress())

    assert [ACCEPT, Suppress()] == line.calls(2)
    assert CallFailed(ACCEPT, "timed out", may_be_done=True) == line.event()


def test_accept_without_connection_is_certainly_not_sent(outbox_of) -> None:
    line = Line(Failed("connection refused", may_be_done=False))
    add(outbox_of(line), ACCEPT)

    assert CallFailed(ACCEPT, "connection refused") == line.event()


def test_third_unanswered_call_ends_the_subscription(outbox_of) -> None:
    """The calls that wait are dropped; the new subscription repeats them."""
    line = Line(*[TIMED_OUT] * MAX_UNANSWERED)
    line.is_answering.clear()
    outbox = outbox_of(line)
    add(outbox, kill(0), kill(1), ACCEPT)
    add(outbox, kill(2), subscription=2)
    line.is_answering.set()

    assert (1, "3 calls in a row were not answered: timed out") == line.lost.get(timeout=PATIENCE)
    assert [kill(0)] * MAX_UNANSWERED + [kill(2)] == line.calls(MAX_UNANSWERED + 1)
    failures = [line.event() for _ in range(MAX_UNANSWERED + 1)]
    assert CallFailed(ACCEPT, "not connected") == failures[-1]


def test_answer_resets_the_count_of_unanswered_calls(outbox_of) -> None:
    line = Line(TIMED_OUT, TIMED_OUT, Sent(), TIMED_OUT, TIMED_OUT)
    add(outbox_of(line), kill(0), kill(1), Suppress())

    assert [kill(0)] * 3 + [kill(1)] * 3 + [Suppress()] == line.calls(7)
    assert line.lost.empty()


def test_delay_after_unanswered_calls_grows(outbox_of, monkeypatch) -> None:
    """New subscriptions do not reset it: they must not become a storm. An answer does."""
    attempts: list[int] = []

    class NoDelay(Backoff):
        def delay(self, attempt: int, uniform: Uniform) -> float:
            attempts.append(attempt)
            return 0.0

    monkeypatch.setattr("tf_scheduler.mesos.outbox.RETRY", NoDelay())
    line = Line(*[TIMED_OUT] * 5, Sent(), TIMED_OUT)
    outbox = outbox_of(line)

    add(outbox, kill(0))
    assert 1 == line.lost.get(timeout=PATIENCE)[0]
    add(outbox, kill(1), kill(2), subscription=2)

    assert [kill(0)] * 3 + [kill(1)] * 3 + [kill(2)] * 2 == line.calls(8)
    assert [0, 1, 2, 3, 4, 0] == attempts


def test_call_of_ended_subscription_is_dropped(outbox_of) -> None:
    """Only the launches of an ACCEPT need an answer."""
    line = Line(NotConnected(), NotConnected())
    add(outbox_of(line), kill(0), ACCEPT)

    assert CallFailed(ACCEPT, "not connected") == line.event()
    assert line.thunks.empty()


def test_full_outbox_neither_blocks_nor_drops_silently(outbox_of) -> None:
    """What waits is sent first; then a new subscription repeats the rest."""
    line = Line()
    line.is_answering.clear()
    outbox = outbox_of(line, max_calls=3)
    add(outbox, kill(0))
    line.calls(1)

    add(outbox, *map(kill, range(1, 7)), ACCEPT, Teardown())

    problem = "3 calls are waiting for answers of the master"
    assert [CallFailed(kill(4), problem), CallFailed(ACCEPT, problem)] == [line.event(), line.event()]
    assert line.lost.empty()
    line.is_answering.set()
    assert [*map(kill, (1, 2, 3)), Teardown()] == line.calls(4)
    assert (1, "3 calls were waiting") == line.lost.get(timeout=PATIENCE)


def test_close_sends_what_waits(outbox_of) -> None:
    line = Line()
    line.is_answering.clear()
    outbox = outbox_of(line)
    add(outbox, *map(kill, range(20)), Teardown())
    line.is_answering.set()

    outbox.close(PATIENCE)

    assert Teardown() == line.calls(21)[-1]
    assert 0 == len(outbox)


def test_lost_leadership_ends_the_loop_and_all_calls(outbox_of) -> None:
    line = Line()
    line.is_answering.clear()
    outbox = outbox_of(line)
    add(outbox, kill(0), kill(1))
    assert [kill(0)] == line.calls(1)
    line.leads = False
    line.is_answering.set()

    with pytest.raises(LeadershipLostError):
        line.event()
    outbox.close(PATIENCE)
    assert line.sent.empty()
