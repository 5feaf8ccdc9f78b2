"""Stores how the training went, in a thread of its own: the next scheduler shows it, too.

From time to time, and at once when a task or the job has ended: nothing is told of it again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from types import TracebackType

from .model.effects import Decision, ResultDecided, StatusStored
from .model.events import Event, ProgressReported
from .model.ids import TaskId, TaskName
from .model.progress import Curve, Progress
from .store.curve_records import write_of
from .store.interface import Put, StateStore, StoreConflict, StoreError

log = logging.getLogger(__name__)

#: Seconds between two writes. What came since is stored at the end, unless the scheduler is killed.
EVERY = 60.0
#: Seconds between two at least, when many tasks end.
_PAUSE = 1.0
_LATER = 10.0  # seconds after one that failed


class KeptCurves:
    """A context manager: inside, what `shown` gives is stored, and what `last` gives: how far each launch is.

    An observer of the loop. `store`: one that several threads may use.
    """

    def __init__(
        self,
        store: StateStore,
        shown: Callable[[], Mapping[TaskName, Curve]],
        last: Callable[[], Mapping[TaskId, Progress]] = dict,
        *,
        every: float = EVERY,
    ) -> None:
        self._store, self._shown, self._last, self._every = store, shown, last, every
        self._stored: Put | None = None
        self._dropped = False
        self._now, self._end = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._write_on, name="curves", daemon=True)

    def __call__(self, event: Event, decision: Decision) -> None:
        """In the loop's thread."""
        if _ends(event, decision):
            self._now.set()

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
        self._now.set()
        if self._thread.is_alive():
            self._thread.join()

    def _write_on(self) -> None:
        going_on = True
        while going_on:
            self._now.wait(self._every)
            self._now.clear()
            going_on = not self._end.is_set()
            pause = 0.0 if self._dropped else self._write()
            if pause is None:
                return
            self._end.wait(pause)

    def _write(self) -> float | None:
        """Seconds until the next one at least; None: never again."""
        curves, last = self._shown(), self._last()
        found = write_of(curves, last) if curves or last else None
        if found is None or found == self._stored:
            return 0.0
        try:
            self._store.apply([found])
        except StoreConflict:
            return None  # the loop will find out, too, and end
        except StoreError as error:
            log.warning("the curves of the training could not be stored, %g s later again: %s", _LATER, error)
            self._now.set()
            return _LATER
        self._stored = found
        return _PAUSE


def _ends(event: Event, decision: Decision) -> bool:
    """Whether it is the end of a task or of the job, or what a task that has ended had still to tell."""
    if isinstance(event, ProgressReported):
        status = decision.state.statuses.get(event.task_id)
        return status is not None and status.state.ended
    return any(
        isinstance(change, ResultDecided) or (isinstance(change, StatusStored) and change.status.state.ended)
        for change in decision.changes
    )
