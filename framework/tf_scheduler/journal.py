"""What happened and why, kept: an observer of the loop numbers every outcome, a thread of its own stores them.

The loop's transactions are not touched. The last KEPT entries are stored in chunks, under keys that are used again and
again, at most once a second: what the scheduler has told in the second before its death may be lost.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType

from .model.effects import Decision, Outcome
from .model.events import Event
from .model.journal import Entry
from .store.interface import StateStore, StoreConflict, StoreError
from .store.journal_records import KEPT, entries_of, writes_for

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
        found = entries_of(store.load() if values is None else values) if store is not None else ()
        self._entries: deque[Entry] = deque(found, maxlen=KEPT)
        self._last = self._stored = found[-1].number if found else 0
        self._listeners: tuple[Callable[[], None], ...] = ()
        self._lock = threading.Lock()
        self._dropped = False
        self._news, self._end = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._write_on, name="journal", daemon=True)

    def __call__(self, event: Event, decision: Decision) -> None:
        """In the loop's thread."""
        if not decision.outcomes:
            return
        for outcome in decision.outcomes:
            self._add(type(event).__name__, outcome)
        self._tell()

    def note(self, kind: str, message: str, *, warning: bool = False) -> None:
        """Something that no decision tells, such as the start of the scheduler."""
        self._add(kind, Outcome(message, warning=warning))
        self._tell()

    @property
    def first(self) -> int:
        """Number of the oldest entry that is kept; one more than `last` when there is none."""
        with self._lock:
            return self._entries[0].number if self._entries else self._last + 1

    @property
    def last(self) -> int:
        """Number of the newest; 0 before the first."""
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

    def _add(self, kind: str, outcome: Outcome) -> None:
        with self._lock:
            self._last += 1
            entry = Entry(self._last, self._clock(), kind, outcome.message, outcome.task, outcome.warning)
            self._entries.append(entry)

    def _tell(self) -> None:
        self._news.set()
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
        with self._lock:
            last, entries = self._last, tuple(self._entries)
        if last == self._stored or self._dropped:
            return 0.0
        try:
            self._store.apply(writes_for(entries, self._stored))
        except StoreConflict:
            return None  # the loop will find out, too, and end
        except StoreError as error:
            log.warning("the journal could not be stored, %g s later again: %s", _LATER, error)
            self._news.set()
            return _LATER
        self._stored = last
        return _PAUSE
