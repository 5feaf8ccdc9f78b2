"""A state store that several threads use: one call at a time."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

from .interface import StateStore, Write


class SharedStore:
    """The same store, behind a lock. Becoming its leader is the business of the store itself."""

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
