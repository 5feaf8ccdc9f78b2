"""Calls, one after the other, and only while the subscription lasts that they belong to."""

from __future__ import annotations

import threading

import pytest

from mesos_client.calls import CallSender, Session
from mesos_client.results import Failed, NotConnected, Sent
from mesos_client.transport import Reply, Transport
from wire.peer import PATIENCE

SESSION = Session("http://m/api", "stream-1")
CALL = {"type": "REVIVE"}


class Slow(Transport):
    """Answers when it is told to."""

    def __init__(self) -> None:
        self.requests, self.asked, self.answer = [], threading.Event(), threading.Event()

    def stream(self):
        raise NotImplementedError

    def post(self, request):
        self.requests.append(request)
        self.asked.set()
        assert self.answer.wait(PATIENCE)
        return Reply(202, b"")

    def interrupt(self):
        pass

    def close(self):
        pass


@pytest.fixture
def slow():
    transport = Slow()
    yield transport
    transport.answer.set()


def in_thread(results, sender, present):
    thread = threading.Thread(target=lambda: results.append(sender.send(SESSION, present, {}, CALL)))
    thread.start()
    return thread


def test_a_call_that_waited_while_its_subscription_ended_is_not_sent(slow):
    """It would go out after the disconnection, or on the next subscription with a stream id of the old one."""
    sender, sessions, results = CallSender(slow, PATIENCE), [SESSION], []
    asked = threading.Event()

    def present():
        asked.set()
        return sessions[0]

    first = in_thread(results, sender, lambda: SESSION)
    assert slow.asked.wait(PATIENCE)
    second = in_thread(results, sender, present)
    sessions[0] = Session("http://m/api", "stream-2")
    slow.answer.set()
    for thread in (first, second):
        thread.join(PATIENCE)
    assert asked.is_set()
    assert [Sent(), NotConnected()] == results
    assert len(slow.requests) == 1


def test_a_call_does_not_wait_for_ever_for_its_turn(slow):
    """Behind a call that hangs: a typed failure after the time for calls."""
    sender, results = CallSender(slow, 0.05), []
    thread = in_thread(results, sender, lambda: SESSION)
    assert slow.asked.wait(PATIENCE)
    assert isinstance(sender.send(SESSION, lambda: SESSION, {}, CALL), Failed)
    slow.answer.set()
    thread.join(PATIENCE)
    assert results == [Sent()]


def test_headers_are_made_anew_for_each_call():
    """P14: what one caller adds is in no other request."""
    SESSION.headers["Authorization"] = "Basic x"
    assert {"Mesos-Stream-Id": "stream-1"} == SESSION.headers
    assert Session("http://m/api", "").headers == {}
