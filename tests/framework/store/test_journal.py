"""Event journal: entries survive restarts, and never stop the loop."""

import threading
from dataclasses import replace

import pytest

from builders import a_spec
from kit.memory_store import MemoryDisk, MemoryStore
from tf_scheduler.model.effects import Decision, Outcome
from tf_scheduler.model.events import Tick
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.store.interface import Put, StoreConflictError, StoreUnavailableError
from tf_scheduler.store.journal import MAX_ENTRIES, EventJournal
from tf_scheduler.store.records import changes
from tf_scheduler.store.retrying import SharedStore

NOTHING = Decision(SchedulerState(a_spec()))


def a_decision(*messages):
    return replace(
        NOTHING, outcomes=tuple(Outcome("TaskPending", message, "worker-0", warning=True) for message in messages)
    )


@pytest.fixture
def disk():
    return MemoryDisk()


def opened(disk):
    store = MemoryStore("digits", disk)
    store.load()
    return SharedStore(store)


def add(journal, decision):
    journal.commit(MemoryStore("digits"), (), [(Tick(), decision)])


def test_outcomes_are_numbered():
    """With the event that caused the decision."""
    journal = EventJournal(clock=lambda: 5.0)

    add(journal, a_decision("one", "two"))
    add(journal, NOTHING)
    journal.note("SchedulerStarted", "three")

    assert [(1, "Tick", "one"), (2, "Tick", "two"), (3, "SchedulerStarted", "three")] == [
        (entry.number, entry.kind, entry.message) for entry in journal.after(0)
    ]
    assert ("worker-0", True, 5.0) == (journal.after(1)[0].task, journal.after(1)[0].warning, journal.after(1)[0].at)
    assert [3] == [entry.number for entry in journal.after(2)]
    assert (1, 3) == (journal.first, journal.last)


def test_next_scheduler_continues_the_numbers(disk):
    """The journal does not affect the restored state."""
    with EventJournal(opened(disk)) as journal:
        add(journal, a_decision("before"))

    with EventJournal(opened(disk)) as after:
        after.note("SchedulerStarted", "again")
    assert [(1, "before"), (2, "again")] == [(entry.number, entry.message) for entry in after.after(0)]
    assert journal.id == after.id == EventJournal(opened(disk)).id
    assert () == changes(opened(disk).load())


def test_entries_are_visible_after_storing(disk):
    """So no number is used twice, whenever the scheduler is killed."""
    killed = EventJournal(opened(disk))
    add(killed, a_decision("lost"))
    assert (0, ()) == (killed.last, killed.after(0))

    with EventJournal(opened(disk)) as after:
        add(after, a_decision("refused"))
    assert [(1, "refused")] == [(entry.number, entry.message) for entry in after.after(0)]


def test_entries_are_stored_with_the_changes(disk):
    """In one transaction, without additional writes."""
    store, seen = Writes(disk), []
    journal = EventJournal(store)
    journal.listen(lambda: seen.append(journal.last))
    journal.commit(store, (), [(Tick(), a_decision("changes nothing"))])
    journal.commit(store, [Put("result", b"{}")], [(Tick(), a_decision("one", "two")), (Tick(), NOTHING)])

    assert [["result", "journal/id", f"journal/{1:016}"]] == store.written
    assert [3] == seen
    assert ["changes nothing", "one", "two"] == [entry.message for entry in EventJournal(opened(disk)).after(0)]


def test_refused_entries_are_not_visible(disk):
    """The loop ends then."""
    journal = EventJournal(opened(disk))
    with pytest.raises(StoreConflictError):
        journal.commit(
            Failing(StoreConflictError("another one")), [Put("result", b"{}")], [(Tick(), a_decision("one"))]
        )

    assert () == journal.after(0)


def test_another_installation_has_another_journal():
    """Its numbers start again."""
    assert EventJournal(opened(MemoryDisk())).id != EventJournal(opened(MemoryDisk())).id


def test_number_of_entries_is_limited(disk):
    """In memory, and in the store."""
    with EventJournal(opened(disk)) as journal:
        for number in range(0, MAX_ENTRIES + 150, 10):
            add(journal, a_decision(*map(str, range(number, number + 10))))

    again = EventJournal(opened(disk))

    assert (151, MAX_ENTRIES + 150) == (journal.first, journal.last)
    assert journal.after(0) == again.after(0)
    assert len(opened(disk).load()) <= 2 + MAX_ENTRIES // 10


def test_unreadable_part_is_skipped(disk, caplog):
    """The journal does not prevent a start."""
    with EventJournal(opened(disk)) as journal:
        add(journal, a_decision(*map(str, range(145))))
    opened(disk).apply([Put(f"journal/{101:016}", b"{"), Put("journal/id", b'{"schema": 2}')])

    assert 100 == len(EventJournal(opened(disk)).after(0))
    assert f"journal/{101:016}" in caplog.text


class Writes(SharedStore):
    """A store that records what is written."""

    def __init__(self, disk):
        super().__init__(opened(disk))
        self.written = []

    def apply(self, writes):
        self.written.append([write.key for write in writes])
        super().apply(writes)


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


@pytest.mark.parametrize("error", [StoreUnavailableError("away"), StoreConflictError("another one")])
def test_failing_store_does_not_stop_the_loop(error):
    """After a conflict nothing more is written."""
    store = Failing(error)
    with EventJournal(store) as journal:
        add(journal, a_decision("one"))
        assert store.tried.wait(20)
        add(journal, a_decision("two"))
        assert () == journal.after(0)
    assert isinstance(error, StoreUnavailableError) or store.writes == 1


def test_listeners_are_called_until_they_unsubscribe():
    """For each decision with an outcome."""
    journal, seen = EventJournal(), []
    end = journal.listen(lambda: seen.append(journal.last))

    add(journal, a_decision("one", "two"))
    add(journal, NOTHING)
    end()
    add(journal, a_decision("three"))

    assert [2] == seen
