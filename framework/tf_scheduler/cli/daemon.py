"""The scheduler as a service: one loop, one API, for as long as Marathon wants it.

The loop may end before the process: the job is done, or the service is uninstalled. The API stays, for DC/OS and people
ask for the plan of what has ended, and Marathon would start again what exits.
"""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from mesos_client import Tls
from tf_scheduler.api.app import create_app
from tf_scheduler.api.server import ApiServer
from tf_scheduler.api.views import Snapshot
from tf_scheduler.core.uninstall import REASON
from tf_scheduler.errors import JobError
from tf_scheduler.history.recorder import Recorder
from tf_scheduler.interfaces import Observer
from tf_scheduler.mesos.driver import MesosDriver
from tf_scheduler.model.spec import ServiceSpec
from tf_scheduler.runner import Runner, restore
from tf_scheduler.store.interface import StateStore
from tf_scheduler.store.open import lead, open_store

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Daemon:
    """What a scheduler needs. `state`: see `store.open`. `host` and `port`: where the API listens."""

    spec: ServiceSpec
    master: str
    state: str
    host: str
    port: int
    uninstalling: bool = False
    #: Of the connection to Mesos; None: not encrypted.
    tls: Tls | None = None
    #: Where the history of the run is recorded; None: nowhere.
    recording: Path | None = None
    _leave: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Returns at SIGTERM or SIGINT; tasks that run go on then, for the next scheduler to take over.

        Raise JobError when Mesos refuses the framework before the job has ended, and what the store or the API raise.
        """
        with closing(open_store(self.state, self.spec.name)) as store:
            leadership = lead(store, lambda holder: log.info("waiting: another scheduler leads: %s", holder))
            runner = Runner(restore(self.spec, store), store, observers=self._recorders, leadership=leadership)
            with self._signals(runner), self._api(runner):
                self._work(runner, store)
                self._leave.wait()

    @property
    def _recorders(self) -> tuple[Observer, ...]:
        return () if self.recording is None else (Recorder(self.recording),)

    def _work(self, runner: Runner, store: StateStore) -> None:
        if self.uninstalling:
            runner.request_stop(REASON)
        driver = MesosDriver(self.spec, self.master, runner.state.framework_id, runner.put, tls=self.tls)
        final = runner.run(driver)
        if not final.over:
            return
        if final.result is None:
            raise JobError(f"Mesos refused the framework: {final.refused}")
        if self.uninstalling:
            store.erase()
        log.info("nothing is left to do; the API stays until the service is removed")

    def _api(self, runner: Runner) -> ApiServer:
        api = ApiServer(create_app(lambda: Snapshot(runner.state, self.uninstalling)), self.host, self.port)
        log.info("the API of %s is at http://%s:%s/v1", self.spec.name, self.host, api.port)
        return api

    @contextmanager
    def _signals(self, runner: Runner) -> Iterator[None]:
        def leave(number: int, _frame: FrameType | None) -> None:
            log.info("%s received%s", signal.Signals(number).name, "" if runner.state.over else "; the tasks go on")
            self._leave.set()
            runner.abort()

        with _handled(leave, signal.SIGTERM, signal.SIGINT):
            yield


@contextmanager
def _handled(handler: Callable[[int, FrameType | None], None], *numbers: signal.Signals) -> Iterator[None]:
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, former in before.items():
            signal.signal(number, former)
