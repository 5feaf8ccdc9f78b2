"""The API of a scheduler, put together: what it shows, who may use it, and its part in the loop."""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from mesos_client import Credentials, Tls
from tf_scheduler.api.backend import Backend, Foretell
from tf_scheduler.api.curves import Curves
from tf_scheduler.api.listening import ServerTls, address_for
from tf_scheduler.api.policy import Policy
from tf_scheduler.api.views import Snapshot
from tf_scheduler.errors import OptionsError, Problem
from tf_scheduler.journal import Journal
from tf_scheduler.kept_curves import KeptCurves
from tf_scheduler.kept_files import KeptFiles
from tf_scheduler.mesos.agent_files import AgentFiles
from tf_scheduler.model.effects import Accept, Decision
from tf_scheduler.model.events import Event
from tf_scheduler.model.ids import TaskId
from tf_scheduler.model.progress import Progress
from tf_scheduler.runner import Runner
from tf_scheduler.secrets.errors import SecretError
from tf_scheduler.secrets.sources import Sources, directory_reader, environment_reader
from tf_scheduler.store.curve_records import curves_of, progress_of
from tf_scheduler.store.interface import StateStore

#: Variable that Marathon sets: on DC/OS its Admin Router authenticates, in front of us.
_MARATHON = "MARATHON_APP_ID"


@dataclass(frozen=True, slots=True)
class ApiSettings:
    """Who may use the API, and how it is encrypted; None: not."""

    policy: Policy = field(default_factory=Policy)
    tls: ServerTls | None = None


def api_settings(options: Mapping[str, Any], environment: Mapping[str, str], directory: str) -> ApiSettings:
    """Of the resolved options. `directory`: of file: sources. Raise OptionsError."""
    found, problems = _settings(options, environment, directory)
    if problems:
        raise OptionsError(problems)
    return found


def last_api_settings(
    options: Mapping[str, Any], environment: Mapping[str, str], directory: str, *, closed: bool
) -> tuple[ApiSettings, list[Problem]]:
    """The same for a service that is taken down, and what is missing, which must not hold that up: who would be let in
    by it is not.

    `closed`: it is not known who may get in. Health and the plan, for which DC/OS asks, are for everybody then.
    """
    found, problems = _settings(options, environment, directory)
    tls = found.tls
    if tls is not None and not tls.usable:
        less = replace(tls, client_ca="")
        tls = less if less.usable else None
        problems.append(Problem("api.certificate_file", "this, key_file or client_ca_file cannot be used"))
        closed = True
    return ApiSettings(_closed(found.policy) if closed else found.policy, tls), problems


def _settings(
    options: Mapping[str, Any], environment: Mapping[str, str], directory: str
) -> tuple[ApiSettings, list[Problem]]:
    """And what is wrong: in place of a token that cannot be had there is one that nobody knows."""
    api, problems = options["api"], list[Problem]()
    near = Sources({"env": environment_reader(environment), "file": directory_reader(Path(directory))})

    def token(name: str) -> str:
        try:
            return _token(near, api, name)
        except OptionsError as error:
            problems.extend(error.problems)
            return _unknown()

    loopback = address_for(environment.get("HOST", "")) not in ("0.0.0.0", "::")  # noqa: S104 - a comparison
    policy = Policy(
        read_token=token("read_token"),
        write_token=token("write_token"),
        certificates=bool(api["client_ca_file"]),
        writers=frozenset(filter(None, (name.strip() for name in api["writers"].split(",")))),
        loopback=loopback,
    )
    if not (policy.closed or loopback or api["authentication"] == "none" or environment.get(_MARATHON)):
        words = (
            "is needed, for the API listens on a network. Set it (and api.read_token), or api.client_ca_file; or say "
            "that everybody may use the API with api.authentication none"
        )
        problems.append(Problem("api.write_token", words))
        policy = _closed(policy)
    tls = ServerTls(api["certificate_file"], api["key_file"], api["client_ca_file"])
    return ApiSettings(policy, tls if api["certificate_file"] else None), problems


def _closed(policy: Policy) -> Policy:
    return replace(policy, read_token="", write_token=_unknown(), certificates=False)


def _unknown() -> str:
    return secrets.token_urlsafe(32)


def _token(near: Sources, api: Mapping[str, Any], name: str) -> str:
    if not api[name]:
        return ""
    try:
        token = os.fsdecode(near.value(api[name])).strip()
    except SecretError as error:
        raise OptionsError([Problem(f"api.{name}", str(error))]) from error
    if not token:
        raise OptionsError([Problem(f"api.{name}", f"{api[name]} is empty")])
    return token


class Front:
    """What the API stands on. Made before the loop, whose observers it is among."""

    def __init__(self, store: StateStore, credentials: Credentials | None, tls: Tls | None) -> None:
        values = store.load()
        self.journal, self._kept = Journal(store, values=values), KeptFiles(store, values)
        self._curves = Curves(curves_of(values))
        #: What the scheduler before us has heard of each launch last; and what this one has.
        self.heard = progress_of(values)
        self.progress: Callable[[], Mapping[TaskId, Progress]] = dict
        self.kept_curves = KeptCurves(store, self._curves.shown, lambda: self.progress())
        #: Base URL of the Mesos master now.
        self.master: Callable[[], str | None] = lambda: None
        #: Why nothing can be stored now; empty: it can.
        self.trouble: Callable[[], str] = lambda: ""
        #: Set when the first tasks are on their way: before, all else has time.
        self.launched = threading.Event()
        self._files = AgentFiles(lambda: self.master(), credentials, tls)
        self._backend: Backend | None = None

    def observe(self, event: Event, decision: Decision) -> None:
        """Of every decision."""
        if not self.launched.is_set() and any(isinstance(call, Accept) and call.launches for call in decision.calls):
            self.launched.set()
        if self._backend is not None:
            self._backend.observe(event, decision)
        self.kept_curves(event, decision)

    def backend(self, runner: Runner, *, uninstalling: bool, foretell: Foretell | None = None) -> Backend:
        """For the loop of `runner`."""
        self._backend = Backend(
            lambda: Snapshot(runner.state, uninstalling, self.trouble()),
            runner.put,
            journal=self.journal,
            files=self._files,
            kept=self._kept,
            curves=self._curves,
            foretell=foretell,
        )
        return self._backend
