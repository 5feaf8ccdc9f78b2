"""Build the scheduler process and run it: reset, uninstall or run a framework.

When the job has finished or the service is uninstalled, the loop ends, but the process continues. The API stays
available, because DC/OS asks for the plan of a finished service, and Marathon restarts a process that exits.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, closing
from dataclasses import dataclass, replace

from starlette.types import ASGIApp

from mesos_client.backoff import Backoff
from mesos_client.credentials import Credentials
from tf_scheduler import __version__
from tf_scheduler.api.http.server import ApiServer
from tf_scheduler.api.views.base import Snapshot
from tf_scheduler.api.views.plan_messages import UNINSTALL_REASON, leftovers_message
from tf_scheduler.api.views.reasons import reasons
from tf_scheduler.clock import SteadyClock
from tf_scheduler.core.framework import removal_message, reset_reason
from tf_scheduler.core.launch.secret_tokens import secrets_due, token_matches
from tf_scheduler.core.scheduler import handle, next_deadline, restored_progress
from tf_scheduler.errors import JobError, OptionsError, Problem, SchedulerError
from tf_scheduler.history.recorder import Recorder
from tf_scheduler.mesos.agent_files import AgentFiles
from tf_scheduler.mesos.client import MesosDriver
from tf_scheduler.mesos.fetch_errors import FetchErrors
from tf_scheduler.mesos.registration import LostFrameworks
from tf_scheduler.metrics.meter import LoopMetrics, Meter
from tf_scheduler.metrics.statsd import statsd_target
from tf_scheduler.model.events import StopRequested, SubscriptionRefused
from tf_scheduler.model.ids import FrameworkId
from tf_scheduler.model.spec import ServiceSpec
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.runner import Checkpoint, Runner, no_checkpoint, restore
from tf_scheduler.secrets.delivery import SecretService
from tf_scheduler.store.interface import Leadership, LeadershipLostError, StateStore
from tf_scheduler.store.journal import EventJournal
from tf_scheduler.store.retrying import RetryingStore, SharedStore
from tf_scheduler.store.training_history import decode_progress

from .api import ApiServices, RunArchive, web_app
from .options import ServiceSettings
from .secrets import credentials_of, sources_of
from .store import acquire_leadership, open_store, state_weakness

log = logging.getLogger(__name__)

#: Seconds in which the master must answer whether a live framework belongs to a service without stored state.
LOOKUP_TIMEOUT = 60.0
#: Seconds before an exit because of another scheduler.
_RIVAL_PAUSE = Backoff(first=5.0, maximum=300.0)


def build_scheduler(settings: ServiceSettings, *, checkpoint: Checkpoint = no_checkpoint) -> SchedulerProcess:
    """Construct the scheduler process without starting it.

    Waits as a standby while another scheduler of the service leads. Invalid credentials are reported before the state
    store is opened. Raises what the options, the state store or the API raise.
    """
    credentials_for(settings, settings.spec)
    with ExitStack() as undo:
        settings, store, leadership = lead(settings, undo)
        process = compose(settings, store, leadership, _listen(settings), checkpoint)
        undo.pop_all()
        return process


def lead(settings: ServiceSettings, undo: ExitStack) -> tuple[ServiceSettings, StateStore, Leadership]:
    """Open the state store and become the leader; `undo` closes the store.

    Waits as a standby. The returned settings name a store that everybody can change. Raises what the store raises, and
    OptionsError if scheduler.state_acl requires another store.
    """
    opened = open_store(settings.state, settings.spec.name)
    undo.callback(opened.close)
    if weakness := state_weakness(opened):
        if settings.requires_state_acl:
            raise OptionsError([Problem("scheduler.state_acl", f"required, but {weakness}")])
        log.warning("%s", weakness)
        settings = replace(settings, weaknesses=(*settings.weaknesses, weakness))
    leadership = acquire_leadership(opened, lambda holder: log.info("standby: the leading scheduler is %s", holder))
    return settings, SharedStore(opened), leadership


#: Serves an app while the returned context is open. Raises ApiError if the port is in use.
Serve = Callable[[ASGIApp], AbstractContextManager[object]]


def _listen(settings: ServiceSettings) -> Serve:
    """Return a server that listens immediately and answers after its start."""
    return lambda app: ApiServer(app, settings.host, settings.port, settings.access.tls)


def compose(
    settings: ServiceSettings,
    store: StateStore,
    leadership: Leadership,
    serve: Serve,
    checkpoint: Checkpoint = no_checkpoint,
) -> SchedulerProcess:
    """Construct a scheduler on an open store, which `run` closes; do not start it.

    Raises what the options, the state store or `serve` raise.
    """
    clock = SteadyClock()
    options, preview = settings.options, settings.options.preview if settings.options else None
    restored = restore(settings.spec, store, clock()) if options is None else options.activate(store)
    spec, values = restored.stored.full_spec or restored.spec, store.load()
    state, credentials = restored_progress(restored, decode_progress(values)), credentials_for(settings, spec)
    metrics, journal, stopping = LoopMetrics(state), EventJournal(store, values=values), threading.Event()
    retrying = RetryingStore(
        metrics.store(store),
        stopping,
        leadership.check,
        lambda message, warning: journal.note("StateStore", message, warning=warning),
    )
    runner = Runner(
        state,
        retrying,
        clock=clock,
        leadership=leadership,
        decide=metrics.decide(handle),
        deadline=metrics.deadline(next_deadline),
        commit=journal.commit,
        checkpoint=checkpoint,
    )

    def connect(framework_id: FrameworkId | None) -> MesosDriver:
        # For a live framework of this service that is not in the store.
        lost = LostFrameworks(uninstall=UNINSTALL_REASON) if settings.uninstalling else settings.lost
        arguments = spec, settings.master, framework_id, runner.put, credentials, settings.tls, lost
        return MesosDriver(
            *arguments,
            webui_url=spec.secret_delivery.url,
            check_leadership=leadership.check,
            fetch_errors=FetchErrors(runner.put, files, lambda: runner.state),
        )

    files = AgentFiles(lambda: connection.driver.master, credentials, settings.tls, spec.secret_access)
    connection = MesosConnection(connect, state.stored.framework_id)

    def snapshot() -> Snapshot:
        errors = retrying.last_error, connection.driver.problem
        return Snapshot(runner.state, settings.uninstalling, *errors, runner.view, clock(), settings.weaknesses)

    meter = _meter(settings, spec, metrics, snapshot)
    # An uninstalling service launches no tasks, so the sources of its secrets may be gone.
    sources = sources_of(spec.secret_access, {} if settings.uninstalling else settings.environment)
    desk = SecretService(runner.put, sources, secrets_due, token_matches)
    services = ApiServices(store, values, journal, files, runner, snapshot, preview, _runs(settings, runner, journal))
    runner.attach(desk.observe, services.observe, metrics.count)
    server = serve(web_app(services.backend, settings.access, desk.give, meter))
    process = SchedulerProcess(settings, store, runner, connection, journal, services, meter, server, stopping)
    _watch(process, clock)
    return process


def _watch(process: SchedulerProcess, clock: SteadyClock) -> None:
    """Measure the queues of the scheduler, and record its run."""
    process.meter.loop.watch_events(lambda: process.runner.queued_events)
    process.meter.loop.watch_calls(lambda: process.connection.driver.queued_calls)
    if process.settings.recording is not None:
        recorder = Recorder(process.settings.recording, clock)
        recorder.resume(process.runner.state, process.services.backend.curves.current())
        process.runner.attach(recorder)


def _meter(
    settings: ServiceSettings, spec: ServiceSpec, metrics: LoopMetrics, snapshot: Callable[[], Snapshot]
) -> Meter:
    return Meter(
        metrics,
        lambda: snapshot().state,
        lambda: snapshot().plans(),
        statsd_target(settings.statsd, spec.name, settings.environment),
        __version__,
        lambda: (reason.kind for reason in reasons(snapshot())),
    )


def _runs(settings: ServiceSettings, runner: Runner, journal: EventJournal) -> RunArchive:
    def note(problem: str) -> None:
        journal.note("RunNotStored", f"the record of the run is not stored: {problem}", warning=True)

    arguments = settings.run, lambda: runner.state.stored.result, note
    return RunArchive(settings.spec.name, *arguments, settings.shared_runs, settings.history)


def credentials_for(settings: ServiceSettings, spec: ServiceSpec) -> Credentials | None:
    """Return the credentials for Mesos; None if they are invalid during uninstall."""
    try:
        return credentials_of(spec, settings.environment)
    except SchedulerError as error:
        if not settings.uninstalling:
            raise
        log.error("connecting to Mesos without credentials: %s", error)
        return None


class MesosConnection:
    """Driver of the service's framework; a new framework gets a new driver."""

    def __init__(self, connect: Callable[[FrameworkId | None], MesosDriver], framework_id: FrameworkId | None) -> None:
        self._connect = connect
        self.driver = connect(framework_id)

    def reconnect(self, framework_id: FrameworkId | None) -> None:
        """Replace the driver, which must not be running."""
        self.driver = self._connect(framework_id)


@dataclass(frozen=True, slots=True)
class SchedulerProcess:
    """Scheduler process. `run` starts its threads and returns after `stop`."""

    settings: ServiceSettings
    store: StateStore
    runner: Runner
    connection: MesosConnection
    journal: EventJournal
    services: ApiServices
    meter: Meter
    server: AbstractContextManager[object]
    _stopping: threading.Event

    def run(self) -> None:
        """Run until `stop`; tasks keep running for the next scheduler.

        Raises JobError when Mesos refuses the framework before the job has finished, and errors of the state store.
        """
        history, runs = self.services.training_history, self.services.runs
        with closing(self.store), self.journal, history, runs, self.meter, self.server:
            log.info("the API of %s is at %s/v1", self.settings.spec.name, self.settings.spec.secret_delivery.url)
            self._run_job()
            self._stopping.wait()

    def stop(self, *, teardown: bool = False) -> None:
        """Make `run` return, from any thread. With `teardown`, Mesos kills the tasks."""
        self._stopping.set()
        self.runner.abort(teardown=teardown)

    def _run_job(self) -> None:
        if self.settings.uninstalling:
            self._request_uninstall()
        self.journal.note("SchedulerStarted", "scheduler started")
        for outcome in () if self.settings.options is None else self.settings.options.outcomes:
            self.journal.note("OptionsSettled", outcome.message, warning=outcome.warning)
        stored, adopt = self.runner.state.stored.framework_id, self.settings.lost.adopt
        if adopt and stored not in (None, adopt):
            message = f"--adopt {adopt} ignored: the state store contains framework {stored}"
            self.journal.note("FrameworkAdopted", message, warning=True)
        final = self._run_framework()
        if final.stored.removed and self._must_reset(final):
            final = self._run_framework()
        if final.process.finished:
            self._finish(final)

    def _request_uninstall(self) -> None:
        """Stop the job; if no framework is stored, first give the driver time to find one."""
        if self.runner.state.stored.framework_id is not None or self.settings.lost.ignore:
            self.runner.request_stop(UNINSTALL_REASON)
            return
        timer = threading.Timer(LOOKUP_TIMEOUT, self.runner.request_stop, (UNINSTALL_REASON,))
        timer.daemon = True
        timer.start()

    def _run_framework(self) -> SchedulerState:
        """Run the framework to its final state; if it must be reset, stop or forget it."""
        driver, stored = self.connection.driver, self.runner.state.stored
        if self._must_reset(self.runner.state):
            if stored.removed:
                self.runner.reset(driver)
                self.connection.reconnect(None)
            else:
                self.runner.step(driver, StopRequested(reset_reason(self.settings.lost.reset)))
        return self.runner.run(self.connection.driver)

    def _must_reset(self, state: SchedulerState) -> bool:
        """Whether the operator asked to reset the stored framework."""
        return state.stored.framework_id == self.settings.lost.reset and not self.settings.uninstalling

    def _pause(self) -> None:
        """Wait before the exit, longer after each exit for this reason within an hour.

        Whatever restarts the scheduler would take the framework back, and the other scheduler would do the same.
        """
        hour_ago = time.time() - 3600.0
        count = sum(entry.kind == SubscriptionRefused.kind and entry.at > hour_ago for entry in self.journal.after(0))
        pause = _RIVAL_PAUSE.delay(count, random.uniform)
        log.error("%s; this scheduler exits in %.0f s", self.runner.state.process.refused, pause)
        self._stopping.wait(pause)

    def _finish(self, final: SchedulerState) -> None:
        uninstalling, result, removed = self.settings.uninstalling, final.stored.result, final.stored.removed
        if final.process.has_rival and not uninstalling:
            self._pause()
            raise LeadershipLostError(final.process.refused)
        if result is None and not uninstalling:
            raise JobError(removal_message(final) if removed else final.process.refused)
        if uninstalling:
            self.services.runs.close()
            self.journal.close()
            self.services.training_history.close()
            self.runner.forget()
            log.info("service uninstalled: %s", leftovers_message(final))
        if result is not None:
            log.info("job ended: %s: %s", result.verdict.value, result.sentence)
        log.info("job finished; the API stays available while the scheduler runs")
