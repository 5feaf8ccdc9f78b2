"""A state store that waits while nothing can be stored: its disk is full, it is locked, nobody answers."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence

from .interface import StateStore, StoreUnavailable, Write

log = logging.getLogger(__name__)

#: Seconds between two attempts.
AGAIN = 1.0


class PatientStore:
    """The same store. A change that cannot be made for now is tried again until it is made, or `leave` is set.

    Meanwhile nothing else happens in the caller's thread: what is not stored is neither acted upon nor acknowledged.
    `leads` is asked before each further attempt, and raises LeadershipLost. `trouble` may be read from any thread.
    """

    def __init__(self, store: StateStore, leave: threading.Event, leads: Callable[[], None]) -> None:
        self._store, self._leave, self._leads = store, leave, leads
        #: Why nothing can be stored now; empty: it can.
        self.trouble = ""

    def load(self) -> Mapping[str, bytes]:
        return self._store.load()

    def apply(self, writes: Sequence[Write]) -> None:
        self._insist(lambda: self._store.apply(writes))

    def erase(self) -> None:
        self._insist(self._store.erase)

    def remove(self) -> None:
        self._insist(self._store.remove)

    def close(self) -> None:
        self._store.close()

    def _insist(self, change: Callable[[], None]) -> None:
        while True:
            try:
                change()
            except StoreUnavailable as error:
                self._told(str(error))
                if self._leave.wait(AGAIN):
                    raise
                self._leads()
            else:
                self._told("")
                return

    def _told(self, trouble: str) -> None:
        """Once per reason."""
        if trouble and trouble != self.trouble:
            log.error("nothing can be stored, so nothing is done: %s", trouble)
        if self.trouble and not trouble:
            log.warning("it can be stored again: going on")
        self.trouble = trouble
