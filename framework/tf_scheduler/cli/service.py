"""One scheduler, put together: store, connection and loop, with the loop in a thread of its own."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from tf_scheduler.interfaces import Observer
from tf_scheduler.mesos.driver import MesosDriver
from tf_scheduler.model.events import Event
from tf_scheduler.model.spec import ServiceSpec
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.runner import Runner, restore
from tf_scheduler.store.open import lead, open_store
from tf_scheduler.store.patient import PatientStore

from .secrets import served_desk

log = logging.getLogger(__name__)


class Service:
    """A scheduler that runs while the caller watches it.

    `state`: where its state is kept, see `store.open`; made when another scheduler of the service leads, it waits until
    that ends. `on_end` is called from the scheduler's thread when it has ended, well or with `error`.
    """

    def __init__(
        self,
        spec: ServiceSpec,
        master: str,
        state: str | Path,
        *,
        observers: Iterable[Observer] = (),
        on_end: Callable[[], None] = lambda: None,
    ) -> None:
        self._open = ExitStack()
        self._leaving = threading.Event()
        self._store = open_store(state, spec.name)
        self._open.callback(self._store.close)
        try:
            spec, desk = self._open.enter_context(served_desk(spec, self._put, os.environ))
            observers = (*observers, *desk)
            leadership = lead(self._store, lambda holder: log.info("waiting: another scheduler leads: %s", holder))
            patient = PatientStore(self._store, self._leaving, leadership.check)
            self.runner = Runner(restore(spec, self._store), patient, observers=observers, leadership=leadership)
        except BaseException:
            self._open.close()
            raise
        self._driver = MesosDriver(spec, master, self.state.framework_id, self.runner.put, leads=leadership.check)
        self._on_end = on_end
        self._thread = threading.Thread(target=self._run, name="scheduler")
        self.error: BaseException | None = None

    def _put(self, thunk: Callable[[], Event | None]) -> None:
        self.runner.put(thunk)

    @property
    def state(self) -> SchedulerState:
        """The state as it is now; immutable."""
        return self.runner.state

    def leave(self) -> None:
        """End the scheduler at once, without its tasks' answers; Mesos is told to end them, if it listens."""
        self._leaving.set()
        self.runner.abort(teardown=True)

    @property
    def ended(self) -> bool:
        return not self._thread.is_alive()

    def __enter__(self) -> Service:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.leave()
        self._thread.join()
        self._open.close()

    def _run(self) -> None:
        try:
            final = self.runner.run(self._driver)
            if final.result is not None and not final.refused:
                self._store.remove()
        except BaseException as error:
            self.error = error
        finally:
            self._on_end()
