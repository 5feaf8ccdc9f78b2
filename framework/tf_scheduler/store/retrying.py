"""State store wrappers: retry while the backend is unavailable; share a store among threads."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence

from .interface import StateStore, StoreUnavailableError, Write

log = logging.getLogger(__name__)

#: Seconds between retries.
RETRY_SECONDS = 1.0


class RetryingStore:
    """Retry changes of a store while it is unavailable, until `stop` is set.

    The caller's thread blocks meanwhile, so that nothing unstored is acted upon or acknowledged. `check_leadership` is
    called before each retry and raises LeadershipLostError. `trouble` may be read from any thread.
    """

    def __init__(self, store: StateStore, stop: threading.Event, check_leadership: Callable[[], None]) -> None:
        self._store, self._stop, self._check_leadership = store, stop, check_leadership
        #: Error of the last attempt; empty after a success.
        self.trouble = ""

    def load(self) -> Mapping[str, bytes]:
        return self._store.load()

    def apply(self, writes: Sequence[Write]) -> None:
        self._retry(lambda: self._store.apply(writes))

    def erase(self) -> None:
        self._retry(self._store.erase)

    def remove(self) -> None:
        self._retry(self._store.remove)

    def close(self) -> None:
        self._store.close()

    def _retry(self, change: Callable[[], None]) -> None:
        while True:
            try:
                change()
            except StoreUnavailableError as error:
                self._set_trouble(str(error))
                if self._stop.wait(RETRY_SECONDS):
                    raise
                self._check_leadership()
            else:
                self._set_trouble("")
                return

    def _set_trouble(self, trouble: str) -> None:
        """Log each change once."""
        if trouble and trouble != self.trouble:
            log.error("state store unavailable, scheduling paused: %s", trouble)
        if self.trouble and not trouble:
            log.warning("state store available again")
        self.trouble = trouble


class SharedStore:
    """Make a store thread-safe: one call at a time."""

    def __init__(self, store: StateStore) -> None:
        self._store, self._lock = store, threading.Lock()

    def load(self) -> Mapping[str, bytes]:
        with self._lock:
            return self._store.load()

    def apply(self, writes: Sequence[Write]) -> None:
        with self._lock:
            self._store.apply(writes)

    def erase(self) -> None:
        with self._lock:
            self._store.erase()

    def remove(self) -> None:
        with self._lock:
            self._store.remove()

    def close(self) -> None:
        with self._lock:
            self._store.close()
