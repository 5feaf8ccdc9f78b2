"""Event journal: number outcomes of decisions, store them, then publish them.

Outcomes are stored in the transaction of their decision's changes, before calls are sent. Outcomes of a decision
without changes are stored with the next transaction, or by a background thread within a second. Entries are published
only after they are stored. A published number is therefore never reused, and published entries survive a killed
scheduler.

`journal/id` holds the journal's id. `journal/<first number>` holds up to 100 entries of one transaction. These values
are not part of the state; a corrupt value loses only its own entries.
"""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from itertools import takewhile
from typing import Any

from tf_scheduler.model.effects import Decision, Outcome
from tf_scheduler.model.events import Event
from tf_scheduler.model.state import JournalEntry

from .interface import Delete, Put, StateStore, Write, read_extra
from .retrying import BackgroundWriter

#: Minimum number of entries that are kept.
MAX_ENTRIES = 1000
JOURNAL = "journal"
SCHEMA = 1
JOURNAL_ID = f"{JOURNAL}/id"
#: Maximum entries of one value, and characters of a message: ZooKeeper's nodes are small.
_MAX_PART, _MAX_MESSAGE = 100, 2000
_NAMES = tuple(field.name for field in fields(JournalEntry))


class JournalRecords:
    """Stored entries and their keys in the store. Not thread-safe."""

    def __init__(self, values: Mapping[str, bytes], new_id: str) -> None:
        parts = {key: _entries(key, data) for key, data in values.items() if key.startswith(f"{JOURNAL}/")}
        entries = (entry for part in parts.values() for entry in part)
        #: Sorted by number; up to MAX_ENTRIES.
        self.entries = tuple(sorted(entries, key=lambda entry: entry.number)[-MAX_ENTRIES:])
        #: (last number, key) of each part.
        self._keys = deque(sorted((part[-1].number, key) for key, part in parts.items() if part))
        stored_id = _id(values)
        self.id, self._has_id = stored_id or new_id, bool(stored_id)

    def writes(self, entries: Sequence[JournalEntry]) -> list[Write]:
        """Return the writes that store new entries and delete the oldest ones."""
        if not entries:
            return []
        first = [] if self._has_id else [_put(JOURNAL_ID, (), id=self.id)]
        deletes = [Delete(key) for _, key in self._expired(entries[-1].number)]
        return [*first, *(_put(_key(part), part) for part in _parts(entries)), *deletes]

    def mark_stored(self, entries: Sequence[JournalEntry]) -> None:
        """Record that the `writes` of these entries are in the store."""
        if entries:
            self._has_id = True
            for _ in self._expired(entries[-1].number):
                self._keys.popleft()
            self._keys.extend((part[-1].number, _key(part)) for part in _parts(entries))

    def _expired(self, newest: int) -> list[tuple[int, str]]:
        return list(takewhile(lambda item: item[0] <= newest - MAX_ENTRIES, self._keys))


def _parts(entries: Sequence[JournalEntry]) -> Iterator[Sequence[JournalEntry]]:
    return (entries[start : start + _MAX_PART] for start in range(0, len(entries), _MAX_PART))


def _key(entries: Sequence[JournalEntry]) -> str:
    return f"{JOURNAL}/{entries[0].number:016}"


def _put(key: str, entries: Sequence[JournalEntry], **more: str) -> Put:
    document = {"schema": SCHEMA, "entries": [_fields(entry) for entry in entries], **more}
    return Put(key, json.dumps(document).encode())


def _fields(entry: JournalEntry) -> dict[str, Any]:
    """Return the fields; `asdict` would be ten times slower, for each decision."""
    return {**{name: getattr(entry, name) for name in _NAMES}, "message": entry.message[:_MAX_MESSAGE]}


def _id(values: Mapping[str, bytes]) -> str:
    if JOURNAL_ID not in values:
        return ""
    return read_extra(f"journal value {JOURNAL_ID}", values[JOURNAL_ID], SCHEMA, lambda stored: str(stored["id"]), "")


def _entries(key: str, data: bytes) -> list[JournalEntry]:
    def read(stored: dict[str, Any]) -> list[JournalEntry]:
        return [JournalEntry(**fields) for fields in stored.get("entries", ())]

    return read_extra(f"journal value {key}", data, SCHEMA, read, [])


class EventJournal(BackgroundWriter):
    """Context manager: store new entries in the background. Reading is thread-safe.

    Args:
        store: A thread-safe store (`SharedStore`); None keeps the journal in memory.
        values: The store's values, if already loaded.

    Raises StoreError as `StateStore.load` does.
    """

    def __init__(
        self,
        store: StateStore | None = None,
        clock: Callable[[], float] = time.time,
        values: Mapping[str, bytes] | None = None,
    ) -> None:
        super().__init__("journal")
        self._store, self._clock = store, clock
        stored = values if values is not None else store.load() if store is not None else {}
        self._records = JournalRecords(stored, uuid.uuid4().hex[:16])
        #: Stored and published entries; entries that are not stored yet.
        self._entries: deque[JournalEntry] = deque(self._records.entries, maxlen=MAX_ENTRIES)
        self._pending: deque[JournalEntry] = deque(maxlen=MAX_ENTRIES)
        self._last = self._last_assigned = self._entries[-1].number if self._entries else 0
        self._listeners: tuple[Callable[[], object], ...] = ()
        #: Locks of the entries in memory, and of the store with its records.
        self._lock, self._store_lock = threading.Lock(), threading.Lock()

    def commit(self, store: StateStore, changed: Sequence[Write], decided: Sequence[tuple[Event, Decision]]) -> None:
        """Store changes with their outcomes; outcomes alone later. A CommitHook."""
        for event, decision in decided:
            for outcome in decision.outcomes:
                self._add(event.kind, outcome)
        if changed:
            with self._store_lock:
                self._store_with(store, changed)
        else:
            self._wake()

    def note(self, kind: str, message: str, *, warning: bool = False) -> None:
        """Add an entry that no decision caused, such as the start of the scheduler."""
        self._add(kind, Outcome("Note", message, warning=warning))
        self._wake()

    @property
    def id(self) -> str:
        """Id from installation to uninstall; entry numbers are unique within one id."""
        return self._records.id

    @property
    def first(self) -> int:
        """Number of the oldest entry; `last` + 1 if there is none."""
        with self._lock:
            return self._entries[0].number if self._entries else self._last + 1

    @property
    def last(self) -> int:
        """Number of the newest stored entry; 0 before the first."""
        return self._last

    def after(self, number: int) -> Sequence[JournalEntry]:
        """Return the entries with greater numbers, oldest first."""
        with self._lock:
            if number >= self._last:
                return ()
            return tuple(entry for entry in self._entries if entry.number > number)

    def listen(self, callback: Callable[[], object]) -> Callable[[], None]:
        """Call `callback` after new entries; it must not block. Return the unsubscriber."""
        with self._lock:
            self._listeners = (*self._listeners, callback)

        def end() -> None:
            with self._lock:
                self._listeners = tuple(other for other in self._listeners if other is not callback)

        return end

    def _add(self, kind: str, outcome: Outcome) -> None:
        with self._lock:
            self._last_assigned += 1
            entry = JournalEntry(
                self._last_assigned, self._clock(), kind, outcome.message, outcome.task, outcome.warning
            )
            self._pending.append(entry)

    def _wake(self) -> None:
        """Make the background thread store pending entries."""
        if not self._pending:
            return
        if self._store is None:
            self._publish(tuple(self._pending))
        self._wakeup.set()

    def _store_with(self, store: StateStore, changed: Sequence[Write]) -> None:
        """Store the writes with pending entries, then publish. Requires `_store_lock`."""
        with self._lock:
            pending = tuple(self._pending)
        store.apply([*changed, *self._records.writes(pending)])
        self._records.mark_stored(pending)
        self._publish(pending)

    def _publish(self, entries: Sequence[JournalEntry]) -> None:
        if not entries:
            return
        with self._lock:
            self._last = entries[-1].number
            self._entries.extend(entries)
            while self._pending and self._pending[0].number <= self._last:
                self._pending.popleft()
        for listener in self._listeners:
            listener()

    def __enter__(self) -> EventJournal:
        return self if self._store is None else super().__enter__()

    def _save(self) -> bool:
        with self._store_lock:
            if self._store is None or not self._pending:
                return False
            self._store_with(self._store, ())
        return True
