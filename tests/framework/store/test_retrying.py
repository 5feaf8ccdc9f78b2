"""Retrying store: no change is lost or made twice."""

from __future__ import annotations

import threading

import pytest

from kit.memory_store import MemoryStore
from tf_scheduler.store import retrying
from tf_scheduler.store.interface import LeadershipLostError, Put, StoreConflictError, StoreUnavailableError
from tf_scheduler.store.retrying import RetryingStore

WRITES = [Put("framework", b"1")]


class Full(MemoryStore):
    """Raise StoreUnavailableError in the first `times` attempts."""

    def __init__(self, times) -> None:
        super().__init__("digits")
        self.left, self.load_first = times, self.load()

    def apply(self, writes) -> None:
        if self.left:
            self.left -= 1
            raise StoreUnavailableError("the disk is full")
        super().apply(writes)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retrying, "RETRY_SECONDS", 0.0)


def test_unavailable_store_is_retried(caplog: pytest.LogCaptureFixture) -> None:
    """The failure and its end are logged once."""
    store = RetryingStore(Full(3), threading.Event(), lambda: None)

    store.apply(WRITES)

    assert {"framework": b"1"} == dict(store.load())
    assert "" == store.last_error
    assert ["state store unavailable, scheduling paused: the disk is full", "state store available again"] == [
        record.message for record in caplog.records
    ]


def test_stop_ends_retries() -> None:
    """The reason stays available."""
    leave = threading.Event()
    leave.set()
    store = RetryingStore(Full(1), leave, lambda: None)

    with pytest.raises(StoreUnavailableError, match="the disk is full"):
        store.apply(WRITES)
    assert "the disk is full" == store.last_error


def test_lost_leadership_ends_retries() -> None:
    """Another scheduler may have changed the state."""

    def leads() -> None:
        raise LeadershipLostError("test")

    full = Full(5)
    with pytest.raises(LeadershipLostError):
        RetryingStore(full, threading.Event(), leads).apply(WRITES)
    assert 4 == full.left


def test_conflict_is_not_retried() -> None:
    """A retry cannot succeed."""
    inner = MemoryStore("digits")

    with pytest.raises(StoreConflictError):
        RetryingStore(inner, threading.Event(), lambda: None).apply(WRITES)
