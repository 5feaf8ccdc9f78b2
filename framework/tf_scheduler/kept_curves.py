"""Stores how the training went, from time to time, in a thread of its own: the next scheduler shows it, too."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from types import TracebackType

from .model.ids import TaskName
from .model.progress import Curve
from .store.curve_records import write_of
from .store.interface import Put, StateStore, StoreConflict, StoreError

log = logging.getLogger(__name__)

#: Seconds between two writes. What came since is stored at the end, unless the scheduler is killed.
EVERY = 60.0


class KeptCurves:
    """A context manager: inside, what `shown` gives is stored. `store`: one that several threads may use."""

    def __init__(
        self, store: StateStore, shown: Callable[[], Mapping[TaskName, Curve]], *, every: float = EVERY
    ) -> None:
        self._store, self._shown, self._every = store, shown, every
        self._stored: Put | None = None
        self._dropped = False
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._write_on, name="curves", daemon=True)

    def __enter__(self) -> KeptCurves:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # After an error the store is not asked again: it may be what failed.
        self._dropped = kind is not None
        self.close()

    def close(self) -> None:
        """Store what is new, and nothing more. May be called again."""
        self._end.set()
        if self._thread.is_alive():
            self._thread.join()

    def _write_on(self) -> None:
        going_on = True
        while going_on:
            going_on = not self._end.wait(self._every)
            if not self._dropped and not self._write():
                return

    def _write(self) -> bool:
        """Whether to go on."""
        curves = self._shown()
        found = write_of(curves) if curves else None
        if found in (None, self._stored):
            return True
        try:
            self._store.apply([found] if found else [])
        except StoreConflict:
            return False  # the loop will find out, too, and end
        except StoreError as error:
            log.warning("the curves of the training could not be stored: %s", error)
            return True
        self._stored = found
        return True
