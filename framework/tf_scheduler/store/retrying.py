"""State store wrappers that retry or lock, and a base class of background writers."""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import TypeVar

from .interface import StateStore, StoreConflictError, StoreError, StoreUnavailableError, Write

_T = TypeVar("_T")
_W = TypeVar("_W", bound="BackgroundWriter")

log = logging.getLogger(__name__)

#: Seconds between retries.
RETRY_SECONDS = 1.0
#: Seconds between two writes in the background, and after a failed one.
_WRITE_INTERVAL, _WRITE_RETRY = 1.0, 10.0


class StoreWrapper:
    """Pass calls to another store; subclasses override `_call` or `_change`."""

    def __init__(self, store: StateStore) -> None:
        self._store = store

    @property
    def place(self) -> str:
        return self._store.place

    def _call(self, call: Callable[[], _T]) -> _T:
        return call()

    def _change(self, call: Callable[[], None]) -> None:
        self._call(call)

    def load(self) -> Mapping[str, bytes]:
        return self._call(self._store.load)

    def apply(self, writes: Sequence[Write]) -> None:
        self._change(lambda: self._store.apply(writes))

    def erase(self) -> None:
        self._change(self._store.erase)

    def remove(self) -> None:
        self._change(self._store.remove)

    def close(self) -> None:
        self._call(self._store.close)


class RetryingStore(StoreWrapper):
    """Retry changes of a store while it is unavailable, until `stop` is set.

    The caller's thread blocks meanwhile, so that nothing unstored is acted upon or acknowledged. `check_leadership` is
    called before each retry and raises LeadershipLostError. `note` gets a message when the store becomes unavailable or
    available, and whether it is a warning. `last_error` may be read from any thread.
    """

    def __init__(
        self,
        store: StateStore,
        stop: threading.Event,
        check_leadership: Callable[[], None],
        note: Callable[[str, bool], None] = lambda *_: None,
    ) -> None:
        super().__init__(store)
        self._stop, self._check_leadership, self._note = stop, check_leadership, note
        #: Error of the last attempt; empty after a success.
        self.last_error = ""

    def _change(self, call: Callable[[], None]) -> None:
        while True:
            try:
                call()
            except StoreUnavailableError as error:
                self._set_error(str(error))
                if self._stop.wait(RETRY_SECONDS):
                    raise
                self._check_leadership()
            else:
                self._set_error("")
                return

    def _set_error(self, error: str) -> None:
        """Set `last_error`; log and note it if it has changed."""
        if error != self.last_error:
            text = f"state store unavailable, scheduling paused: {error}" if error else "state store available again"
            log.log(logging.ERROR if error else logging.WARNING, text)
            self._note(text, bool(error))
        self.last_error = error


class SharedStore(StoreWrapper):
    """Make a store thread-safe: one call at a time."""

    def __init__(self, store: StateStore) -> None:
        super().__init__(store)
        self._lock = threading.Lock()

    def _call(self, call: Callable[[], _T]) -> _T:
        with self._lock:
            return call()


class BackgroundWriter(ABC):
    """Context manager whose thread calls `_save` on wake-up, periodically and at exit."""

    def __init__(self, what: str, interval: float | None = None) -> None:
        self._what, self._interval, self._failed = what, interval, False
        self._wakeup, self._closing = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name=what, daemon=True)

    @abstractmethod
    def _save(self) -> bool:
        """Store new data; return whether there was any. Raises StoreError."""

    def __enter__(self: _W) -> _W:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # After an error, do not use the store again: it may be the cause.
        self._failed = kind is not None
        self.close()

    def close(self) -> None:
        """Store the latest values and stop. May be called again."""
        self._closing.set()
        self._wakeup.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        running = True
        while running:
            self._wakeup.wait(self._interval)
            self._wakeup.clear()
            running = not self._closing.is_set()
            try:
                self._closing.wait(_WRITE_INTERVAL if not self._failed and self._save() else 0.0)
            except StoreConflictError:
                return  # the scheduler loop gets the same error and stops
            except StoreError as error:
                log.warning("storing the %s failed, retrying in %g s: %s", self._what, _WRITE_RETRY, error)
                self._wakeup.set()
                self._closing.wait(_WRITE_RETRY)
