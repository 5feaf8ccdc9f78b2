"""The scheduler as a service: one loop, one API, for as long as Marathon wants it.

The loop may end before the process: the job is done, or the service is uninstalled. The API stays, for DC/OS and people
ask for the plan of what has ended, and Marathon would start again what exits.
"""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from mesos_client import Credentials, Tls
from tf_scheduler import __version__
from tf_scheduler.api.late import LateServer
from tf_scheduler.api.listening import listen
from tf_scheduler.api.views import Snapshot
from tf_scheduler.core.progress import still_of
from tf_scheduler.core.removal import lament
from tf_scheduler.core.scheduler import handle
from tf_scheduler.core.uninstall import REASON, what_is_left
from tf_scheduler.errors import JobError, SchedulerError
from tf_scheduler.history.recorder import Recorder
from tf_scheduler.interfaces import Observer
from tf_scheduler.mesos.driver import MesosDriver
from tf_scheduler.metrics.meter import Meter
from tf_scheduler.metrics.statsd import target
from tf_scheduler.model.spec import ServiceSpec
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.runner import Runner, restore
from tf_scheduler.secrets.desk import Desk
from tf_scheduler.store.interface import Leadership
from tf_scheduler.store.open import lead, open_store
from tf_scheduler.store.patient import PatientStore
from tf_scheduler.store.shared import SharedStore

from .front import ApiSettings, Front
from .secrets import credentials_of, desk_of
from .settle import Settling

if TYPE_CHECKING:
    from tf_scheduler.api.server import ApiServer

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
    #: Where the scheduler's own secrets may be.
    environment: Mapping[str, str] = field(default_factory=dict)
    #: Where the history of the run is recorded; None: nowhere.
    recording: Path | None = None
    #: Who may use the API, and how it is encrypted.
    access: ApiSettings = field(default_factory=ApiSettings)
    #: Id of the framework to forget, if Mesos has removed it.
    reset: str = ""
    #: host:port of a StatsD server; empty: the one that the environment names, if any.
    statsd: str = ""
    #: Which options hold; None: those of `spec`.
    settling: Settling | None = None
    _leave: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Returns at SIGTERM or SIGINT; tasks that run go on then, for the next scheduler to take over.

        Raise JobError when Mesos refuses the framework before the job has ended, and what the store or the API raise.
        """
        self._credentials()  # what is wrong with them is told before anything else
        with closing(open_store(self.state, self.spec.name)) as opened:
            leadership = lead(opened, lambda holder: log.info("waiting: another scheduler leads: %s", holder))
            store = SharedStore(opened)
            begin = restore(self.spec, store) if self.settling is None else self.settling.settle(store)
            replace(self, spec=begin.full or begin.spec)._serve(begin, store, leadership)

    def _serve(self, begin: SchedulerState, store: SharedStore, leadership: Leadership) -> None:
        credentials = self._credentials()
        # Nothing is launched any more: no source has to be there.
        desk = desk_of(self.spec, lambda thunk: runner.put(thunk), {} if self.uninstalling else self.environment)
        front = Front(store, credentials, self.tls)
        begin = replace(begin, progress=still_of(begin, front.heard))
        front.progress = lambda: runner.state.progress
        meter = self._meter(begin, lambda: Snapshot(runner.state, self.uninstalling))
        observers: list[Observer] = [desk.observe, front.observe, meter.count, *self._recorders(begin)]
        patient = PatientStore(meter.store(store), self._leave, leadership.check)
        front.trouble = lambda: patient.trouble
        decide = meter.decide(handle)
        keep = front.journal.keep
        runner = Runner(begin, patient, leadership=leadership, observers=observers, decide=decide, keep=keep)
        with self._signals(runner), front.journal, front.kept_curves, meter, self._api(runner, front, desk, meter):
            self._work(runner, front, credentials, leadership.check)
            self._leave.wait()

    def _credentials(self) -> Credentials | None:
        """Who we are to Mesos. A service that is taken down tries without them: Mesos may let it in."""
        try:
            return credentials_of(self.spec, self.environment)
        except SchedulerError as error:
            if not self.uninstalling:
                raise
            log.error("%s; so Mesos is not told who we are", error)
            return None

    def _meter(self, begin: SchedulerState, look: Callable[[], Snapshot]) -> Meter:
        statsd = target(self.statsd, self.spec.name, self.environment)
        return Meter(begin, lambda: look().state, lambda: look().plans(), statsd, __version__)

    def _recorders(self, begin: SchedulerState) -> tuple[Observer, ...]:
        if self.recording is None:
            return ()
        recorder = Recorder(self.recording)
        recorder.resume(begin)
        return (recorder,)

    def _work(
        self,
        runner: Runner,
        front: Front,
        credentials: Credentials | None,
        leads: Callable[[], None],
    ) -> None:
        if self.uninstalling:
            runner.request_stop(REASON)
        front.journal.note("SchedulerStarted", "the scheduler has started")
        for outcome in () if self.settling is None else self.settling.told:
            front.journal.note("OptionsSettled", outcome.message, warning=outcome.warning)
        final = self._follow(runner, front, credentials, leads)
        if final.removed and self._is_to_be_reset(final):
            final = self._follow(runner, front, credentials, leads)
        if not final.over:
            return
        if final.result is None and not (final.removed and self.uninstalling):
            raise JobError(lament(final) if final.removed else f"Mesos refused the framework: {final.refused}")
        if self.uninstalling:
            front.journal.close()
            front.kept_curves.close()
            runner.forget()
            log.info("the service is uninstalled: %s", what_is_left(final))
        if final.result is not None:
            log.info("the job has ended: %s: %s", final.result.verdict.value, final.result.sentence)
        log.info("nothing is left to do; the API stays until the service is removed")

    def _follow(
        self, runner: Runner, front: Front, credentials: Credentials | None, leads: Callable[[], None]
    ) -> SchedulerState:
        """The final state of one framework. One that is removed is forgotten first, if the operator wants that."""
        driver = self._driver(runner, credentials, leads)
        if self._is_to_be_reset(runner.state):
            runner.reset(driver)
            driver = self._driver(runner, credentials, leads)
        front.master = lambda: driver.master
        return runner.run(driver)

    def _driver(self, runner: Runner, credentials: Credentials | None, leads: Callable[[], None]) -> MesosDriver:
        known, url = runner.state.framework_id, self.spec.delivery.url
        return MesosDriver(self.spec, self.master, known, runner.put, credentials, self.tls, webui_url=url, leads=leads)

    def _is_to_be_reset(self, state: SchedulerState) -> bool:
        """Only the framework that the operator named, and only if Mesos has removed it: else its tasks would run on."""
        return state.removed and state.framework_id == self.reset and not self.uninstalling

    def _api(self, runner: Runner, front: Front, desk: Desk, meter: Meter) -> LateServer:
        settling = self.settling
        foretell = None if settling is None else lambda asked: settling.foretell(asked, runner.state)
        backend = front.backend(runner, uninstalling=self.uninstalling, foretell=foretell)
        listener = listen(self.host, self.port)

        def make() -> ApiServer:
            from .web_server import web_server

            return web_server(backend, self.access, desk.give, meter, listener)

        def leave() -> None:
            self._leave.set()
            runner.abort()

        encrypted = self.access.tls is not None
        # Files that cannot be used are told before anything is launched.
        made = make() if encrypted else None
        scheme, port = "https" if encrypted else "http", listener.getsockname()[1]
        log.info("the API of %s is at %s://%s:%s/v1", self.spec.name, scheme, self.host, port)
        return LateServer(listener, lambda: made or make(), front.launched, leave)

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
