"""Queue of updates without a driver: order, repetition and announcement."""

from __future__ import annotations

import threading

import pytest

from mesos_client import updates as module
from mesos_client.executor import ExecutorDriver
from mesos_client.results import Failed, Rejected, Sent
from mesos_client.updates import StatusUpdates
from wire.client import ENVIRON

TASK = {"task_id": {"value": "t"}}


class Agent:
    """Return one result per `send` (then Sent); close updates after `count` sends."""

    def __init__(self, kept, count, *results):
        self.kept, self.count, self.results, self.states = kept, count, list(results), []

    def send(self, status):
        self.states.append(status["state"])
        if len(self.states) == self.count:
            self.kept.close()
        return self.results.pop(0) if self.results else Sent()

    def serve(self):
        """Return the states sent, in order."""
        self.kept.deliver(self.send)
        return self.states


@pytest.fixture
def kept(monkeypatch):
    monkeypatch.setattr(module, "RETRY_SECONDS", 0.01)
    return StatusUpdates()


def add(kept, *states):
    return [kept.add({**TASK, "state": state}) for state in states]


def test_updates_go_in_order(kept):
    """As they were made."""
    add(kept, "A", "B", "C")
    kept.online()
    assert Agent(kept, 3).serve() == ["A", "B", "C"]


def test_a_failed_update_goes_before_later_ones(kept):
    """The agent must not see RUNNING after FINISHED."""
    add(kept, "A", "B")
    kept.online()
    assert Agent(kept, 4, Failed("x"), Rejected(503, "x")).serve() == ["A", "A", "A", "B"]


def test_update_rejected_as_invalid_is_dropped(kept):
    """400 is permanent; later updates must not wait behind it."""
    add(kept, "A", "B")
    kept.online()
    assert Agent(kept, 2, Rejected(400, "x")).serve() == ["A", "B"]


def test_update_is_sent_after_an_exception(kept, caplog: pytest.LogCaptureFixture):
    """The thread that sends survives, and the log names the cause."""
    add(kept, "A", "B")
    kept.online()
    agent, failures = Agent(kept, 2), [RuntimeError("can't start new thread"), MemoryError()]

    def send(status):
        if failures:
            raise failures.pop(0)
        return agent.send(status)

    kept.deliver(send)
    assert ["A", "B"] == agent.states
    assert "can't start new thread" in caplog.text


def test_internal_error_is_not_an_invalid_event(monkeypatch, caplog: pytest.LogCaptureFixture):
    """The traceback shows where this project is wrong; the event is passed on."""

    def defect(*_: object) -> None:
        raise KeyError("defect")

    events: list[object] = []
    driver = ExecutorDriver(on_event=events.append, on_state=print, environ={**ENVIRON, "MESOS_AGENT_ENDPOINT": "a:1"})
    monkeypatch.setattr(StatusUpdates, "launched", defect)
    driver.process_event({"type": "LAUNCH"})
    assert "invalid LAUNCH event: KeyError" in caplog.text
    assert "Traceback" not in caplog.text
    caplog.clear()
    driver.process_event({"type": "LAUNCH", "launch": {"task": TASK}})
    assert "invalid LAUNCH event" not in caplog.text
    assert "KeyError: 'defect'" in caplog.text
    assert 2 == len(events)


def test_announced_updates_are_not_resent(kept):
    """Later updates are sent."""
    add(kept, "A")
    announced, _ = kept.announce()
    add(kept, "B")
    kept.online()
    assert [status["state"] for status in announced] == ["A"]
    assert Agent(kept, 1).serve() == ["B"]


def test_an_unacknowledged_update_is_sent_again(kept, monkeypatch):
    """The agent accepted it, but may have lost it."""
    monkeypatch.setattr(module, "RESEND_SECONDS", 0.01)
    add(kept, "A")
    kept.online()
    assert Agent(kept, 3).serve() == ["A", "A", "A"]


def test_nothing_is_sent_while_offline(kept):
    """The sender waits, and is woken by the subscription."""
    add(kept, "A")
    kept.online()
    kept.offline()
    agent = Agent(kept, 1)
    thread = threading.Thread(target=agent.serve)
    thread.start()
    assert agent.states == []
    kept.online()
    thread.join(30)
    assert agent.states == ["A"]


def test_acknowledged_updates_and_their_tasks_are_forgotten(kept):
    """Only then."""
    kept.launched(TASK)
    first, second = add(kept, "A", "B")
    kept.acknowledged("t", first)
    statuses, tasks = kept.announce()
    assert (["B"], []) == ([status["state"] for status in statuses], tasks)
    kept.acknowledged("t", second)
    assert ([], []) == kept.announce()


@pytest.mark.parametrize("status", [{"state": "A"}, TASK])
def test_an_incomplete_status_is_refused(kept, status):
    """The agent would reject it later, unnoticed."""
    with pytest.raises(ValueError, match="is required"):
        kept.add(status)
