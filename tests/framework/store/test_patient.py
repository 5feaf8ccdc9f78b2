"""A store that waits: nothing is lost, nothing is done twice, and whoever has to leave does."""

from __future__ import annotations

import threading

import pytest

from tf_scheduler.store import patient
from tf_scheduler.store.interface import LeadershipLost, Put, StoreConflict, StoreUnavailable
from tf_scheduler.store.memory import MemoryStore
from tf_scheduler.store.patient import PatientStore

WRITES = [Put("framework", b"1")]


class Full(MemoryStore):
    """Full for the first so many attempts."""

    def __init__(self, times):
        super().__init__("digits")
        self.left, self.load_first = times, self.load()

    def apply(self, writes):
        if self.left:
            self.left -= 1
            raise StoreUnavailable("the disk is full")
        super().apply(writes)


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(patient, "AGAIN", 0.0)


def test_what_cannot_be_stored_is_stored_later(caplog):
    """Told once, and once more when it is over."""
    store = PatientStore(Full(3), threading.Event(), lambda: None)

    store.apply(WRITES)

    assert {"framework": b"1"} == dict(store.load())
    assert "" == store.trouble
    assert ["nothing can be stored, so nothing is done: the disk is full", "it can be stored again: going on"] == [
        record.message for record in caplog.records
    ]


def test_whoever_is_told_to_leave_leaves():
    """With the reason, which stays to be seen."""
    leave = threading.Event()
    leave.set()
    store = PatientStore(Full(1), leave, lambda: None)

    with pytest.raises(StoreUnavailable, match="the disk is full"):
        store.apply(WRITES)
    assert "the disk is full" == store.trouble


def test_whoever_leads_no_more_does_not_wait():
    """Another scheduler may have stored something meanwhile."""

    def leads():
        raise LeadershipLost("test")

    full = Full(5)
    with pytest.raises(LeadershipLost):
        PatientStore(full, threading.Event(), leads).apply(WRITES)
    assert 4 == full.left


def test_a_conflict_is_no_reason_to_wait():
    """Somebody else has changed the state: that does not pass."""
    inner = MemoryStore("digits")

    with pytest.raises(StoreConflict):
        PatientStore(inner, threading.Event(), lambda: None).apply(WRITES)
