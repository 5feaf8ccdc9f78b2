"""Assemble the scheduler's API from options: access policy, backend, web server."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from tf_scheduler.api.app import create_app
from tf_scheduler.api.http.auth import Policy
from tf_scheduler.api.http.backend import Backend, CurveRecorder
from tf_scheduler.api.http.server import ApiServer, ServerTls, listen_address
from tf_scheduler.api.routes.secrets import SecretHandler, with_secrets
from tf_scheduler.api.routes.service import RequestCounter, metric_routes
from tf_scheduler.api.views.base import Snapshot
from tf_scheduler.errors import OptionsError, Problem, SecretError
from tf_scheduler.interfaces import TaskFiles
from tf_scheduler.metrics.meter import Meter
from tf_scheduler.model.effects import Decision
from tf_scheduler.model.events import Event
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.runner import Runner
from tf_scheduler.secrets.sources import SecretSources, directory_reader, environment_reader
from tf_scheduler.store.interface import StateStore
from tf_scheduler.store.journal import EventJournal
from tf_scheduler.store.operator_files import OperatorFiles
from tf_scheduler.store.training_history import TrainingHistory, decode_curves
from tf_scheduler.web.pages import pages

#: Variable that Marathon sets. On DC/OS, Admin Router on the masters authenticates the clients.
_MARATHON = "MARATHON_APP_ID"


@dataclass(frozen=True, slots=True)
class ApiSettings:
    """Access rules and TLS of the API; `tls` None: not encrypted."""

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
    """Return an uninstalling service's settings and option problems; raises nothing.

    With invalid options, or `closed`, every token is rejected; only health and the deploy plan, which DC/OS polls, are
    served.
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
    """Return settings and option problems; a missing token becomes a random one."""
    api, problems = options["api"], list[Problem]()
    directory = Path(options["secret_delivery"]["directory"])
    near = SecretSources({"env": environment_reader(environment), "file": directory_reader(directory)})

    def token(name: str) -> str:
        if not api[name]:
            return ""
        try:
            if value := os.fsdecode(near.value(api[name])).strip():
                return value
            problem = f"{api[name]}: empty token"
        except SecretError as error:
            problem = str(error)
        problems.append(Problem(f"api.{name}", problem))
        return secrets.token_urlsafe(32)

    loopback = listen_address(environment.get("HOST", "")) not in ("0.0.0.0", "::")  # noqa: S104 - a comparison
    policy = Policy(
        read_token=token("read_token"),
        write_token=token("write_token"),
        client_certificates=bool(api["client_ca_file"]),
        writers=frozenset(filter(None, (name.strip() for name in api["writers"].split(",")))),
        loopback_only=loopback,
    )
    is_exempt = loopback or api["authentication"] == "none"
    if not (policy.is_restricted or is_exempt) and environment.get(_MARATHON):
        policy = replace(policy, find_writers=partial(_master_addresses, options["mesos"]["master"]))
    elif not (policy.is_restricted or is_exempt):
        message = (
            "required, because the API listens on a network; set it (for readers, also api.read_token), or set "
            "api.client_ca_file, or give all clients access with api.authentication: none"
        )
        problems.append(Problem("api.write_token", message))
        policy = _locked(policy)
    tls = ServerTls(api["certificate_file"], api["key_file"], api["client_ca_file"])
    return ApiSettings(policy, tls if api["certificate_file"] else None), problems


def _master_addresses(master: str) -> frozenset[str]:
    # Imported late, because only a service under Marathon needs kazoo here.
    from mesos_client.zookeeper_detector import master_addresses

    return master_addresses(master)


def _locked(policy: Policy) -> Policy:
    return replace(policy, read_token="", write_token=secrets.token_urlsafe(32), client_certificates=False)


class ApiServices:
    """Services that the HTTP API reads and calls. The runner exists before them."""

    def __init__(
        self,
        store: StateStore,
        values: Mapping[str, bytes],
        journal: EventJournal,
        files: TaskFiles,
        runner: Runner,
        snapshot: Callable[[], Snapshot],
        preview: Callable[[Mapping[str, Any], SchedulerState], Mapping[str, Any]] | None,
        run: Callable[[], Mapping[str, Any]] | None = None,
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
            run=run,
        )

    def observe(self, event: Event, decision: Decision) -> None:
        """Observer: called after every decision."""
        self.backend.observe(event, decision)
        self.training_history(event, decision)


def web_server(
    backend: Backend, access: ApiSettings, host: str, port: int, give: SecretHandler, metrics: Meter
) -> ApiServer:
    """Construct the API server; it listens immediately and answers after its start.

    Raises ApiError if the port is in use or a TLS file is invalid.
    """
    rows = tuple(metric_routes(metrics.prometheus, metrics.dropwizard))
    app = create_app(backend, access.policy, rows, pages=pages())
    return ApiServer(RequestCounter(with_secrets(app, give), metrics.loop.request), host, port, access.tls)
