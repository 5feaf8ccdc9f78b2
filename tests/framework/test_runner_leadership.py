"""The loop ends when its scheduler loses the leadership."""

from __future__ import annotations

import threading

import pytest

from builders import a_spec, an_offer
from kit.memory_store import MemoryStore
from tf_scheduler.model.events import OffersReceived, Subscribed
from tf_scheduler.runner import Runner, restore
from tf_scheduler.store.interface import LeadershipLostError

SPEC = a_spec(workers=1, ps=0, chief=0)


class Disputed:
    """A leadership that is lost at its n-th check, or when the test says so."""

    def __init__(self, checks=1000):
        self.left = checks
        self.callbacks = []

    def check(self):
        self.left -= 1
        if self.left < 0:
            raise LeadershipLostError("this scheduler is no longer the leader: test")

    def on_lost(self, callback):
        self.callbacks.append(callback)

    def lose(self):
        self.left = 0
        for callback in self.callbacks:
            callback("test")


class Wire:
    """A driver that records its calls; `hook` is called with each call."""

    def __init__(self, hook=lambda call: None):
        self.done, self.hook = [], hook

    def start(self):
        self.done.append("start")

    def stop(self):
        self.done.append("stop")

    def perform(self, call):
        self.done.append(type(call).__name__)
        self.hook(call)


def runner_with(leadership):
    store = MemoryStore("digits")
    return Runner(restore(SPEC, store), store, clock=lambda: 1000.0, new_id=lambda: "id", leadership=leadership)


def test_scheduler_without_leadership_does_not_connect():
    """Its connection would take the framework away from the leader."""
    wire = Wire()
    with pytest.raises(LeadershipLostError):
        runner_with(Disputed(checks=0)).run(wire)

    assert [] == wire.done


def test_lost_leadership_wakes_and_ends_the_loop():
    leadership, wire = Disputed(), Wire()
    runner, connected = runner_with(leadership), threading.Event()
    wire.start = connected.set  # type: ignore[method-assign]
    ended = []

    def lead():
        with pytest.raises(LeadershipLostError) as caught:
            runner.run(wire)
        ended.append(caught.value)

    thread = threading.Thread(target=lead)
    thread.start()
    assert connected.wait(30)
    leadership.lose()
    thread.join(30)

    assert 1 == len(ended)
    assert "stop" == wire.done[-1]


def calls_of(script, checks):
    """Return the calls before leadership was lost at this check, and if it was lost."""
    leadership, wire = Disputed(checks), Wire()
    runner = runner_with(leadership)
    for event in script:
        runner.put(lambda event=event: event)
    runner.put(lambda: runner.abort())
    lost = False
    try:
        runner.run(wire)
    except LeadershipLostError:
        lost = True
    return [name for name in wire.done if name not in ("start", "stop")], lost


def test_no_call_after_lost_leadership():
    """Leadership is checked before each call."""
    script = [Subscribed("fw-1"), OffersReceived((an_offer(),))]
    complete, lost = calls_of(script, checks=1000)
    assert not lost
    assert len(complete) >= 2

    for checks in range(1, len(complete) + 1):
        assert (complete[: checks - 1], True) == calls_of(script, checks)
