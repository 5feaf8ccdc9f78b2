"""Build the scheduler's API from options: access, backend, web server, past runs."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

from starlette.types import ASGIApp

from tf_executor.contract.reports import strict_json
from tf_scheduler.api.app import create_app
from tf_scheduler.api.http.auth import Policy
from tf_scheduler.api.http.backend import Backend, CurveRecorder
from tf_scheduler.api.http.server import ServerTls, is_loopback
from tf_scheduler.api.routes.operations import RequestCounter, metric_routes
from tf_scheduler.api.routes.secret_delivery import SecretHandler, with_secrets
from tf_scheduler.api.views.base import Snapshot
from tf_scheduler.errors import JobError, OptionsError, Problem, SecretError
from tf_scheduler.history.compare import run_details, run_row
from tf_scheduler.history.database import RunDatabase, SharedRuns
from tf_scheduler.history.model import Run, to_json
from tf_scheduler.interfaces import TaskFiles
from tf_scheduler.metrics.meter import Meter
from tf_scheduler.model.effects import Decision, ResultDecided, StatusStored
from tf_scheduler.model.events import Event
from tf_scheduler.model.state import Result, SchedulerState
from tf_scheduler.runner import Runner
from tf_scheduler.store.interface import StateStore
from tf_scheduler.store.journal import EventJournal
from tf_scheduler.store.operator_files import OperatorFiles
from tf_scheduler.store.retrying import BackgroundWriter
from tf_scheduler.store.training_history import TrainingHistory, decode_curves
from tf_scheduler.web.pages import pages

from .secrets import api_token

#: Maximum number of past runs in an answer.
MAX_LISTED = 100
#: Seconds between two attempts to write a record; and that a folder has to answer.
_ARCHIVE_INTERVAL, _ARCHIVE_TIMEOUT = 30.0, 5.0
#: Variable that Marathon sets. On DC/OS, Admin Router on the masters authenticates the clients.
_MARATHON = "MARATHON_APP_ID"


@dataclass(frozen=True, slots=True)
class ApiSettings:
    """Access rules and TLS of the API; without `tls`, connections are not encrypted."""

    policy: Policy = field(default_factory=Policy)
    tls: ServerTls | None = None


def api_settings(options: Mapping[str, Any], environment: Mapping[str, str]) -> ApiSettings:
    """Return the settings of resolved options. Raises OptionsError."""
    settings, problems = _settings(options, environment)
    if problems:
        raise OptionsError(problems)
    return settings


def uninstall_api_settings(
    options: Mapping[str, Any], environment: Mapping[str, str], *, closed: bool
) -> tuple[ApiSettings, list[Problem]]:
    """Return API settings and option problems for an uninstall; raises nothing.

    With invalid options, or `closed`, the API rejects every token. It then serves only health and the deploy plan,
    which DC/OS polls.
    """
    settings, problems = _settings(options, environment)
    tls = settings.tls
    if tls is not None and not tls.is_usable:
        less = replace(tls, client_ca="")
        tls = less if less.is_usable else None
        problems.append(Problem("api.certificate_file", "invalid certificate_file, key_file or client_ca_file"))
        closed = True
    return ApiSettings(_locked(settings.policy) if closed else settings.policy, tls), problems


def _settings(options: Mapping[str, Any], environment: Mapping[str, str]) -> tuple[ApiSettings, list[Problem]]:
    """Return settings and problems; an unreadable token is replaced by a random one."""
    api, problems = options["api"], list[Problem]()

    def token(path: str, source: str) -> str:
        try:
            return api_token(options, environment, source)
        except SecretError as error:
            problems.append(Problem(f"api.{path}", str(error)))
            return secrets.token_urlsafe(32)

    loopback = is_loopback(environment.get("HOST", ""))
    policy = Policy(
        read_token=token("read_token", api["read_token"]),
        write_token=token("write_token", api["write_token"]),
        users={user["name"]: token(f"users.{index}.token", user["token"]) for index, user in enumerate(api["users"])},
        client_certificates=bool(api["client_ca_file"]),
        writers=frozenset(filter(None, (name.strip() for name in api["writers"].split(",")))),
        loopback_only=loopback,
    )
    tokens = [policy.read_token, policy.write_token, *policy.users.values()]
    for index, own in enumerate(policy.users.values()):
        if own and tokens.count(own) > 1:
            problems.append(Problem(f"api.users.{index}.token", "must differ from all other tokens of the API"))
    is_exempt = loopback or api["authentication"] == "none"
    if not (policy.is_restricted or is_exempt) and environment.get(_MARATHON):
        from mesos_client.zookeeper_detector import master_addresses  # others need no kazoo here

        policy = replace(policy, find_writers=partial(master_addresses, options["mesos"]["master"]))
    elif not (policy.is_restricted or is_exempt):
        message = (
            "required, because the API listens on a network; set it (for readers, also api.read_token), or set "
            "api.client_ca_file, or give all clients access with api.authentication: none"
        )
        problems.append(Problem("api.write_token", message))
        policy = _locked(policy)
    tls = ServerTls(api["certificate_file"], api["key_file"], api["client_ca_file"])
    return ApiSettings(policy, tls if api["certificate_file"] else None), problems


def _locked(policy: Policy) -> Policy:
    return replace(policy, read_token="", write_token=secrets.token_urlsafe(32), users={}, client_certificates=False)


class ApiServices:
    """Services that the HTTP API reads and calls; constructed after the runner."""

    def __init__(
        self,
        store: StateStore,
        values: Mapping[str, bytes],
        journal: EventJournal,
        files: TaskFiles,
        runner: Runner,
        snapshot: Callable[[], Snapshot],
        preview: Callable[[Mapping[str, Any], SchedulerState], Mapping[str, Any]] | None,
        runs: RunArchive,
    ) -> None:
        curves = CurveRecorder(decode_curves(values))
        self.training_history = TrainingHistory(store, curves.current, lambda: runner.state.process.progress)
        self.backend = Backend(
            snapshot,
            runner.put,
            journal=journal,
            files=files,
            operator_files=OperatorFiles(store, values),
            curves=curves,
            preview_update=None if preview is None else lambda update: preview(update, runner.state),
            runs=runs,
        )
        self.runs = runs

    def observe(self, event: Event, decision: Decision) -> None:
        """Observe every decision: pass it to backend, training history and run archive."""
        self.backend.observe(event, decision)
        self.training_history(event, decision)
        self.runs(event, decision)


class RunArchive(BackgroundWriter):
    """Past runs for the API; writes this run into `history.store` after its end.

    Args:
        run: Returns the run so far. Raises JobError if it is not recorded.
        result: Returns the stored result.
        note: Called with the reason why the folder cannot be written.
        store: Folder for records; empty: no folder.
        history: Database with the past runs of this user.

    The record is written after the result is stored. If the scheduler is killed before the write, the next
    scheduler writes the record. A failed write is tried again.
    """

    def __init__(
        self,
        service: str,
        run: Callable[[], Run],
        result: Callable[[], Result | None],
        note: Callable[[str], None],
        store: str = "",
        history: Path | None = None,
    ) -> None:
        super().__init__("record of the run", _ARCHIVE_INTERVAL)
        self._service, self._run_so_far, self._result, self._note = service, run, result, note
        self._store, self._shared = store, SharedRuns(Path(store)) if store else None
        self._local = None if history is None else RunDatabase(history)
        self._due, self._reading = True, threading.Lock()
        #: Why the folder cannot be written; empty: it can.
        self.problem = ""
        self._wakeup.set()

    def __call__(self, _event: Event, decision: Decision) -> None:
        """Observe decisions: after the result or a task's status, the record is due."""
        if any(isinstance(change, ResultDecided | StatusStored) for change in decision.changes):
            self._due = True
            if decision.state.stored.result is not None:
                self._wakeup.set()

    def close(self) -> None:
        """Write a due record; wait a limited time for a folder that does not answer."""
        self._closing.set()
        self._wakeup.set()
        if self._thread.is_alive():
            self._thread.join(_ARCHIVE_TIMEOUT)

    def _save(self) -> bool:
        if self._shared is None or not self._due:
            return False
        self._due, problem, result = False, "", self._result()
        try:
            if result is None:
                self._shared.check()
            elif (run := self._current()) is not None:
                # A new recording lacks the result.
                run = replace(run, state=result.verdict.value, reason=result.sentence)
                self._shared.save(run, replace=False)
        except JobError as error:
            problem, self._due = str(error), True
        if problem and problem != self.problem:
            self._note(problem)
        self.problem = problem
        return not problem

    def current(self) -> Mapping[str, Any]:
        """Return the record of this run. Raises JobError if it is not recorded."""
        return to_json(self._run_so_far())

    def list(self) -> Mapping[str, Any]:
        """Return the newest runs of this service. Raises JobError."""
        with self._one_reader():
            current = self._current()
            runs, unreadable, problem = self._past()
            listed = [run for run in runs if current is None or run.id != current.id][:MAX_LISTED]
            rows = [run_row(run, is_current=run is current) for run in (*filter(None, [current]), *listed)]
            answer = {"store": self._store, "problem": problem, "unreadable": unreadable, "runs": rows}
            return cast(Mapping[str, Any], strict_json(answer))

    def get(self, name: str, points: int) -> Mapping[str, Any] | None:
        """Return one run with its curve; None if it is unknown. Raises JobError."""
        with self._one_reader():
            current = self._current()
            run = current if current is not None and current.id == name else None
            run = run or (self._shared.find(name) if self._shared is not None else None)
            run = run or next((run for run in self._past()[0] if run.id == name), None)
            return None if run is None else cast(Mapping[str, Any], strict_json(run_details(run, points)))

    def _current(self) -> Run | None:
        with suppress(JobError):  # nothing was launched
            return self._run_so_far()
        return None

    def _past(self) -> tuple[Sequence[Run], int, str]:
        """Return past runs (newest first), the number of unreadable files, any problem."""
        runs, unreadable, problem = dict[str, Run](), list[str](), self.problem
        try:
            if self._shared is not None:
                shared, unreadable = self._shared.runs(self._service, MAX_LISTED)
                runs |= {run.id: run for run in shared}
            if self._local is not None:
                runs |= {run.id: run for run in self._local.runs() if run.service == self._service}
        except JobError as error:
            problem = str(error)
        return sorted(runs.values(), key=lambda run: run.submitted, reverse=True), len(unreadable), problem

    @contextmanager
    def _one_reader(self) -> Iterator[None]:
        """Let one thread read at a time: a folder that hangs must not block all threads."""
        if not self._reading.acquire(timeout=_ARCHIVE_TIMEOUT):
            raise JobError(f"history.store {self._store}: does not answer")
        try:
            yield
        finally:
            self._reading.release()


def web_app(backend: Backend, access: ApiSettings, give: SecretHandler, metrics: Meter) -> ASGIApp:
    """Return the API of a scheduler with its page, metrics, and delivery of secrets."""
    rows = tuple(metric_routes(metrics.prometheus, metrics.dropwizard))
    app = create_app(backend, access.policy, rows, pages=pages())
    return RequestCounter(with_secrets(app, give), metrics.loop.request)
