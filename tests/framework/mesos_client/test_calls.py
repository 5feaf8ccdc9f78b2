"""Calls are sent in order, and only during the subscription that they belong to."""

from __future__ import annotations

import threading
from typing import Any

from mesos_client.http import Subscription
from mesos_client.results import Failed, NotConnected, Sent
from mesos_client.transport import Transport
from tf_executor.contract.http import HttpReply
from wire.peer import PATIENCE

SESSION = Subscription("http://m/api", "stream-1")
CALL = {"type": "REVIVE"}


class Slow(Transport):
    """A transport that answers when `answer` is set."""

    def __init__(self, timeout: float = PATIENCE) -> None:
        super().__init__(timeout=timeout)
        self.requests: list[Any] = []
        self.asked, self.answer = threading.Event(), threading.Event()

    def post(self, request):
        self.requests.append(request)
        self.asked.set()
        assert self.answer.wait(PATIENCE)
        return HttpReply(202, b"")


def in_thread(results, sender, present):
    thread = threading.Thread(target=lambda: results.append(sender.send(SESSION, present, {}, CALL)))
    thread.start()
    return thread


def test_queued_call_of_ended_subscription_is_dropped() -> None:
    """A late call would be sent while disconnected, or with an outdated stream id."""
    slow, sessions = Slow(), [SESSION]
    results: list[Any] = []
    asked = threading.Event()

    def present():
        asked.set()
        return sessions[0]

    first = in_thread(results, slow, lambda: SESSION)
    assert slow.asked.wait(PATIENCE)
    second = in_thread(results, slow, present)
    sessions[0] = Subscription("http://m/api", "stream-2")
    slow.answer.set()
    for thread in (first, second):
        thread.join(PATIENCE)
    assert asked.is_set()
    assert [Sent(), NotConnected()] == results
    assert len(slow.requests) == 1


def test_queued_call_times_out() -> None:
    """Behind a hanging call: a typed failure after the timeout."""
    slow = Slow(0.05)
    results: list[Any] = []
    thread = in_thread(results, slow, lambda: SESSION)
    assert slow.asked.wait(PATIENCE)
    assert isinstance(slow.send(SESSION, lambda: SESSION, {}, CALL), Failed)
    slow.answer.set()
    thread.join(PATIENCE)
    assert results == [Sent()]


def test_each_call_gets_new_headers() -> None:
    """P14: headers that one caller adds are in no other request."""
    SESSION.headers["Authorization"] = "Basic x"
    assert {"Mesos-Stream-Id": "stream-1"} == SESSION.headers
    assert Subscription("http://m/api", "").headers == {}
