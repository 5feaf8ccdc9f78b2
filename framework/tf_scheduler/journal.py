"""What happened and why, kept: every outcome is numbered, stored, and only then shown.

What a decision tells is stored in the transaction of what it changes, before anything is done. What goes with no change
waits for the next transaction, a second at most: then a thread of its own stores it. Nobody has seen what is not
stored, so a number that was shown never comes again, and what a killed scheduler has shown is there after it.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType

from .model.effects import Decision, Outcome
from .model.events import Event
from .model.journal import Entry
from .store.interface import StateStore, StoreConflict, StoreError, Write
from .store.journal_records import KEPT, Shelf

log = logging.getLogger(__name__)

_PAUSE = 1.0  # seconds between two writes
_LATER = 10.0  # seconds after one that failed


class Journal:
    """A context manager: inside, what is new is stored. Reading is safe for all threads.

    `store`: one that several threads may use, see `store.shared`; None: nothing is stored. `values`: what it has, if
    that is loaded already. Raises what `load` does.
    """

    def __init__(
        self,
        store: StateStore | None = None,
        clock: Callable[[], float] = time.time,
        values: Mapping[str, bytes] | None = None,
    ) -> None:
        self._store, self._clock = store, clock
        known = values if values is not None else store.load() if store is not None else {}
        self._shelf = Shelf(known, uuid.uuid4().hex[:16])
        #: Shown; and told, but not stored yet.
        self._entries: deque[Entry] = deque(self._shelf.entries, maxlen=KEPT)
        self._waiting: deque[Entry] = deque(maxlen=KEPT)
        self._last = self._given = self._entries[-1].number if self._entries else 0
        self._listeners: tuple[Callable[[], None], ...] = ()
        #: Of what is in memory; of the store and the shelf.
        self._lock, self._storing = threading.Lock(), threading.Lock()
        self._dropped = False
        self._news, self._end = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._write_on, name="journal", daemon=True)

    def keep(self, store: StateStore, changed: Sequence[Write], decided: Sequence[tuple[Event, Decision]]) -> None:
        """Store what decisions change and tell, in one transaction; in the loop's thread, a `store.keeping.Keep`.

        Without a change it is stored later.
        """
        for event, decision in decided:
            self._number(event, decision)
        if changed:
            with self._storing:
                self._store_with(store, changed)
        else:
            self._wake()

    def __call__(self, event: Event, decision: Decision) -> None:
        """What a decision tells, to be stored soon."""
        self._number(event, decision)
        self._wake()

    def note(self, kind: str, message: str, *, warning: bool = False) -> None:
        """Something that no decision tells, such as the start of the scheduler."""
        self._add(kind, Outcome(message, warning=warning))
        self._wake()

    @property
    def id(self) -> str:
        """Of a service from its installation on: numbers are of one journal."""
        return self._shelf.id

    @property
    def first(self) -> int:
        """Number of the oldest entry that is kept; one more than `last` when there is none."""
        with self._lock:
            return self._entries[0].number if self._entries else self._last + 1

    @property
    def last(self) -> int:
        """Number of the newest that is stored; 0 before the first."""
        return self._last

    def after(self, number: int) -> Sequence[Entry]:
        """The entries with greater numbers, oldest first."""
        with self._lock:
            if number >= self._last:
                return ()
            return tuple(entry for entry in self._entries if entry.number > number)

    def listen(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call it whenever there are new ones, from any thread; it must not block. What is returned ends that."""
        with self._lock:
            self._listeners = (*self._listeners, callback)

        def end() -> None:
            with self._lock:
                self._listeners = tuple(other for other in self._listeners if other is not callback)

        return end

    def _number(self, event: Event, decision: Decision) -> None:
        for outcome in decision.outcomes:
            self._add(type(event).__name__, outcome)

    def _add(self, kind: str, outcome: Outcome) -> None:
        with self._lock:
            self._given += 1
            entry = Entry(self._given, self._clock(), kind, outcome.message, outcome.task, outcome.warning)
            self._waiting.append(entry)

    def _wake(self) -> None:
        """Have what waits stored."""
        if not self._waiting:
            return
        if self._store is None:
            self._show(tuple(self._waiting))
        self._news.set()

    def _store_with(self, store: StateStore, changed: Sequence[Write]) -> None:
        """And show what waits, which is stored then; while nobody else stores."""
        with self._lock:
            waiting = tuple(self._waiting)
        store.apply([*changed, *self._shelf.writes(waiting)])
        self._shelf.stored(waiting)
        self._show(waiting)

    def _show(self, entries: Sequence[Entry]) -> None:
        if not entries:
            return
        with self._lock:
            self._last = entries[-1].number
            self._entries.extend(entries)
            while self._waiting and self._waiting[0].number <= self._last:
                self._waiting.popleft()
        for listener in self._listeners:
            listener()

    # --- in the journal's own thread

    def __enter__(self) -> Journal:
        if self._store is not None:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # After an error the store is not asked again: it may be what failed, and nobody waits for the next failure.
        self._dropped = kind is not None
        self.close()

    def close(self) -> None:
        """Store what is left, and nothing more. May be called again."""
        self._end.set()
        self._news.set()
        if self._thread.is_alive():
            self._thread.join()

    def _write_on(self) -> None:
        going_on = True
        while going_on:
            self._news.wait()
            self._news.clear()
            going_on = not self._end.is_set()
            pause = self._write()
            if going_on and pause is None:
                return
            self._end.wait(pause or 0.0)

    def _write(self) -> float | None:
        """Seconds until the next one; None: never again."""
        assert self._store is not None, "the thread is not started without"
        try:
            with self._storing:
                if self._dropped or not self._waiting:
                    return 0.0
                self._store_with(self._store, ())
        except StoreConflict:
            return None  # the loop will find out, too, and end
        except StoreError as error:
            log.warning("the journal could not be stored, %g s later again: %s", _LATER, error)
            self._news.set()
            return _LATER
        return _PAUSE
