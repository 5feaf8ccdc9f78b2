"""What happened is kept, over the end of the scheduler, and never in the way of the loop."""

import threading
from dataclasses import replace

import pytest

from builders import a_spec
from tf_scheduler.journal import Journal
from tf_scheduler.model.effects import Decision, Outcome
from tf_scheduler.model.events import Tick
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.store.interface import Put, StoreConflict, StoreUnavailable
from tf_scheduler.store.journal_records import KEPT
from tf_scheduler.store.memory import MemoryDisk, MemoryStore
from tf_scheduler.store.records import changes
from tf_scheduler.store.shared import SharedStore

NOTHING = Decision(SchedulerState(a_spec()))


def a_decision(*messages):
    return replace(NOTHING, outcomes=tuple(Outcome(message, "worker-0", warning=True) for message in messages))


@pytest.fixture
def disk():
    return MemoryDisk()


def opened(disk):
    store = MemoryStore("digits", disk)
    store.load()
    return SharedStore(store)


def test_outcomes_are_numbered():
    """With the event that they were decided on."""
    journal = Journal(clock=lambda: 5.0)

    journal(Tick(), a_decision("one", "two"))
    journal(Tick(), NOTHING)
    journal.note("SchedulerStarted", "three")

    assert [(1, "Tick", "one"), (2, "Tick", "two"), (3, "SchedulerStarted", "three")] == [
        (entry.number, entry.kind, entry.message) for entry in journal.after(0)
    ]
    assert ("worker-0", True, 5.0) == (journal.after(1)[0].task, journal.after(1)[0].warning, journal.after(1)[0].at)
    assert [3] == [entry.number for entry in journal.after(2)]
    assert (1, 3) == (journal.first, journal.last)


def test_they_survive_the_scheduler(disk):
    """The next one goes on with the numbers, and reads its state as if they were not there."""
    with Journal(opened(disk)) as journal:
        journal(Tick(), a_decision("before"))

    with Journal(opened(disk)) as after:
        after.note("SchedulerStarted", "again")
        assert [(1, "before"), (2, "again")] == [(entry.number, entry.message) for entry in after.after(0)]
    assert () == changes(opened(disk).load())


def test_only_so_many_are_kept(disk):
    """In memory, and in the store."""
    with Journal(opened(disk)) as journal:
        for number in range(0, KEPT + 150, 10):
            journal(Tick(), a_decision(*map(str, range(number, number + 10))))

    again = Journal(opened(disk))

    assert (151, KEPT + 150) == (journal.first, journal.last)
    assert journal.after(0) == again.after(0)
    assert 51 == len(opened(disk).load())


def test_a_part_that_cannot_be_read_costs_itself_only(disk, caplog):
    """The journal is no reason not to start."""
    with Journal(opened(disk)) as journal:
        journal(Tick(), a_decision(*map(str, range(45))))
    opened(disk).apply([Put("journal/01", b"{")])

    assert 25 == len(Journal(opened(disk)).after(0))
    assert "journal/01" in caplog.text


class Failing:
    """A store whose writes fail."""

    def __init__(self, error):
        self.error, self.tried = error, threading.Event()
        self.writes = 0

    def load(self):
        return {}

    def apply(self, _writes):
        self.writes += 1
        self.tried.set()
        raise self.error


@pytest.mark.parametrize("error", [StoreUnavailable("away"), StoreConflict("another one")])
def test_a_store_that_fails_does_not_reach_the_loop(error):
    """Reading goes on; after a conflict nothing is written any more."""
    store = Failing(error)
    with Journal(store) as journal:
        journal(Tick(), a_decision("one"))
        assert store.tried.wait(20)
        journal(Tick(), a_decision("two"))
        assert 2 == len(journal.after(0))
    assert isinstance(error, StoreUnavailable) or store.writes == 1


def test_listeners_are_told_until_they_end_it():
    """Of each decision that says something."""
    journal, told = Journal(), []
    end = journal.listen(lambda: told.append(journal.last))

    journal(Tick(), a_decision("one", "two"))
    journal(Tick(), NOTHING)
    end()
    journal(Tick(), a_decision("three"))

    assert [2] == told
