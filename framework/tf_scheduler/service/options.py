"""Load settings from options and environment; store options and preview updates."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from mesos_client.credentials import Tls
from tf_executor.contract.bodies import PreviewBody
from tf_executor.contract.strategies import Strategy
from tf_scheduler.api.http.server import listen_address
from tf_scheduler.core.state.spec_index import index_of, wanted_spec
from tf_scheduler.errors import JobError, OptionsError, Problem
from tf_scheduler.history.model import Run
from tf_scheduler.history.record import service_run
from tf_scheduler.logging_setup import configure_logging
from tf_scheduler.mesos.registration import LostFrameworks
from tf_scheduler.model.effects import Outcome
from tf_scheduler.model.spec import ServiceSpec
from tf_scheduler.model.state import Configuration, SchedulerState, newest_first
from tf_scheduler.options.configurations import (
    SelectedConfiguration,
    kept_options,
    rollback_options,
    select_configuration,
)
from tf_scheduler.options.environment import to_document
from tf_scheduler.options.load import (
    data_has_addresses,
    job_url_has_address,
    load_lenient,
    merge,
    program_is_named,
    resolve,
)
from tf_scheduler.options.schema.document import changed_options, mask_options
from tf_scheduler.options.schema.service import is_queue, runs_check_job
from tf_scheduler.options.spec import to_spec
from tf_scheduler.options.update import Difference, describe_difference, difference
from tf_scheduler.options.warnings import find_warnings, security_is_weakened
from tf_scheduler.runner import restore
from tf_scheduler.store.interface import StateStore
from tf_scheduler.store.records import writes

from .api import ApiSettings, api_settings, uninstall_api_settings
from .secrets import DCOS_AUTHORITIES, known_secrets, trusted_authorities, with_api_address

log = logging.getLogger(__name__)

#: Rules that only services on a cluster have.
CLUSTER_RULES = (program_is_named, data_has_addresses, job_url_has_address)

Document = Mapping[str, Any]

#: File name in the sandbox of the scheduler for the history of the run (tf_scheduler.history).
RECORDING = "recording.jsonl"
_TRUE = ("1", "true", "yes")
#: Log levels of the package and their Python names.
_LEVELS = {"OFF": "CRITICAL", "FATAL": "CRITICAL", "WARN": "WARNING", "TRACE": "DEBUG", "ALL": "DEBUG"}
_SANITY = {"command": "python examples/sanity/check.py", "strategy": Strategy.BETWEEN_GRAPH.value}


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """Settings of one scheduler process, from options and environment."""

    spec: ServiceSpec
    #: host:port, several with commas, or zk://...
    master: str
    #: Address of the state store, see `service.store`.
    state: str | Path
    #: Listening address of the API.
    host: str
    port: int
    access: ApiSettings = field(default_factory=ApiSettings)
    uninstalling: bool = False
    #: TLS of the connection to Mesos; None: not encrypted.
    tls: Tls | None = None
    #: Environment variables of sources of secrets and credentials.
    environment: Mapping[str, str] = field(default_factory=dict)
    #: File for the history of the run; None: not recorded.
    recording: Path | None = None
    #: Past runs of this user, and the id of this one if it is a local run.
    history: Path | None = None
    run_id: str = ""
    #: Frameworks to continue or to replace.
    lost: LostFrameworks = field(default_factory=LostFrameworks)
    #: host:port of a StatsD server; empty: the server named in `environment`, if any.
    statsd: str = ""
    #: Stored configurations and updates; None: only `spec` counts.
    options: OptionsHistory | None = None
    #: What makes the service less secure than by default or than it could be, for the health.
    weaknesses: tuple[str, ...] = ()
    #: Refuse a state store that everybody can change.
    requires_state_acl: bool = False

    @property
    def url(self) -> str:
        """Base URL of the API at its listening address."""
        return f"{'http' if self.access.tls is None else 'https'}://{self.host}:{self.port}"

    def run(self) -> Run:
        """Return the run so far, for the history. Raises JobError if it is not recorded."""
        if self.recording is None or self.options is None:
            raise JobError("this scheduler does not record its run")
        run = recorded_run(self.recording, self.options.options)
        return replace(run, id=self.run_id or run.id)

    @property
    def is_queue(self) -> bool:
        """Whether the service runs jobs of a queue."""
        return self.options is not None and is_queue(self.options.options)

    @property
    def shared_runs(self) -> str:
        """Folder of past runs that a team shares; empty: none."""
        return str(self.options.options["history"]["store"]) if self.options is not None else ""


def load_settings(
    document: Document, environment: Mapping[str, str], lost: LostFrameworks | None = None
) -> ServiceSettings:
    """Configure the log and return the settings from the options and the environment.

    An uninstall tolerates invalid and missing options. Raises OptionsError with all problems.
    """
    uninstalling = environment.get("SDK_UNINSTALL", "").lower() in _TRUE
    options, access = _load(document, environment, uninstalling)
    port = api_port(environment)
    for notice in () if uninstalling else find_warnings(document, options):
        log.warning("option %s", notice)
    scheme = "http" if access.tls is None else "https"
    own_spec = partial(spec_of, environment, port, scheme, uninstalling)
    return ServiceSettings(
        own_spec(options),
        options["mesos"]["master"],
        options["scheduler"]["state"],
        listen_address(environment.get("HOST", "")),
        port,
        access,
        uninstalling,
        _tls(options["tls"], environment),
        environment,
        _recording(environment),
        Path(environment["HISTORY_FILE"]) if environment.get("HISTORY_FILE") else None,
        environment.get("RUN_ID", ""),
        lost or LostFrameworks(),
        options["metrics"]["statsd"],
        OptionsHistory(options, environment, own_spec, uninstalling, document),
        tuple(map(str, security_is_weakened(options))),
        options["scheduler"]["state_acl"] == "required" and not uninstalling,
    )


def api_port(environment: Mapping[str, str]) -> int:
    """Return the port of the API: PORT_API, else PORT0. Raises OptionsError."""
    text = environment.get("PORT_API") or environment.get("PORT0") or ""
    if not text.isdecimal() or not 0 < int(text) <= 65_535:
        raise OptionsError([Problem("PORT_API", f"must be the port of the HTTP API, 1 to 65535, not {text!r}")])
    return int(text)


def _recording(environment: Mapping[str, str]) -> Path | None:
    """Return RECORDING_FILE, else a file in the sandbox, which outlives the service."""
    sandbox = environment.get("MESOS_SANDBOX")
    path = environment.get("RECORDING_FILE") or (sandbox and f"{sandbox}/{RECORDING}")
    return Path(path) if path else None


def _tls(options: Mapping[str, Any], environment: Mapping[str, str]) -> Tls | None:
    if not options["enabled"]:
        return None
    verify = trusted_authorities("tls.ca_file", options["ca_file"], environment)
    if verify is True and "MESOS_SANDBOX" in environment:
        places = " nor ".join(DCOS_AUTHORITIES)
        log.warning("tls.ca_file is empty, and neither %s exists: only authorities of the system are trusted", places)
    certificate = options["certificate_file"], options["key_file"]
    return Tls(verify=verify, cert=certificate if all(certificate) else None)


def _load(document: Document, environment: Mapping[str, str], uninstalling: bool) -> tuple[Document, ApiSettings]:
    """Return options and API settings; an uninstall only logs their problems."""
    defaults, problems = package_defaults(document, environment), list[Problem]()
    if uninstalling:
        options, invalid = load_lenient(document, defaults)
        closed = any(problem.path.partition(".")[0] == "api" for problem in invalid)
        access, missing = uninstall_api_settings(options, environment, closed=closed)
        problems = [*invalid, *missing]
    else:
        options = resolve(document, defaults, CLUSTER_RULES)
        access = api_settings(options, environment)
    tokens = (access.policy.read_token, access.policy.write_token)
    service, secrets = options["service"], known_secrets(options, environment, tokens)
    level = _LEVELS.get(service["log_level"], service["log_level"])
    configure_logging(sys.stderr, service["log_format"], level, secrets)
    for problem in problems:
        log.error("option ignored during uninstall: %s", problem)
    return options, access


def spec_of(
    environment: Mapping[str, str], port: int, scheme: str, uninstalling: bool, options: Document
) -> ServiceSpec:
    """Return the spec with the API's address; an uninstall needs no certificates."""
    spec = to_spec(options)
    if uninstalling:
        spec = replace(spec, secret_delivery=replace(spec.secret_delivery, ca_file=""))
    return with_api_address(spec, environment, port, scheme)


def package_defaults(document: Document, environment: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Return the package's defaults: executor; the check job if no program is set.

    The check job tests that tasks can reach each other. With it, the package can be installed without options.
    """
    defaults = {"executor": {"url": environment.get("EXECUTOR_URI", "")}}
    executor = document.get("executor")
    if not (isinstance(executor, dict) and executor.get("url")):
        defaults["executor"]["sha256"] = environment.get("EXECUTOR_URI_SHA256", "")
    if runs_check_job(document) and environment.get("EXAMPLES_URI"):
        digest = environment.get("EXAMPLES_URI_SHA256", "")
        defaults["service"] = {"job_url": environment["EXAMPLES_URI"], "job_sha256": digest, **_SANITY}
    return defaults


def recorded_run(recording: Path, options: Document) -> Run:
    """Return a service's recorded run, without secrets. Raises JobError without one."""
    masked = mask_options(options)
    run = service_run(recording, options["service"]["name"], changed_options(masked, options))
    return replace(run, resolved=masked)


@dataclass(slots=True)
class OptionsHistory:
    """Stored configurations. `options`: new options; after `activate` the active ones."""

    options: Document
    environment: Mapping[str, str]
    spec_of: Callable[[Document], ServiceSpec]
    uninstalling: bool = False
    #: `options` without defaults; None: `options` are complete.
    document: Document | None = None
    #: Decisions of `activate`, for the journal.
    outcomes: list[Outcome] = field(default_factory=list)
    clock: Callable[[], float] = field(default=time.time)
    #: Completes the options of an update; None: they are complete.
    complete: Callable[[Document], Document] | None = None

    def activate(self, store: StateStore) -> SchedulerState:
        """Choose and store the active options; return the stored state with them.

        Raises OptionsError if neither the new options nor the previous ones are valid.
        """
        before = restore(self.spec_of(self.options), store)
        history, strict = before.stored.configurations, not self.uninstalling
        if history and self.document is not None and not self.uninstalling:
            with suppress(OptionsError):  # then the update is refused because of an option that it cannot change
                self.options = self._resolved(self.document, self.environment, newest_first(history)[0].options)
        chosen = select_configuration(self.options, history, self._defaults, self.clock(), strict=strict)
        self.options, self.outcomes = chosen.options, [*self._outcomes(chosen, before)]
        for outcome in self.outcomes:
            log.log(logging.ERROR if outcome.warning else logging.INFO, "%s", outcome.message)
        if chosen.changes:
            store.apply([write for change in chosen.changes for write in writes(change, before)])
        spec = self.spec_of(chosen.options)
        state = restore(replace(spec, earlier=tuple(self._earlier(spec, before))), store, self.clock())
        return replace(state, process=replace(state.process, rejected=chosen.rejected))

    def _earlier(self, spec: ServiceSpec, before: SchedulerState) -> Iterator[ServiceSpec]:
        """Yield the specs of earlier options with which tasks still run."""
        running = {record.config for record in before.stored.tasks.values()} - {*index_of(spec).configs.values()}
        for configuration in newest_first(before.stored.configurations) if running else ():
            old = rollback_options(configuration, self.options, self._defaults)
            earlier = None if old is None else wanted_spec(self.spec_of(old), before.stored.resized)
            if earlier is None or earlier.secrets != spec.secrets:  # a task redeems its token for the present secrets
                continue
            if running.intersection(index_of(earlier).configs.values()):
                yield earlier

    def _resolved(self, document: Document, environment: Mapping[str, str], target: Document) -> Document:
        """Resolve new options; take `kept_options` that are omitted from `target`."""
        defaults = merge(kept_options(target), package_defaults(document, environment))
        return resolve(document, defaults, CLUSTER_RULES)

    def _defaults(self, document: Document) -> Mapping[str, Mapping[str, Any]]:
        return package_defaults(document, self.environment)

    def _outcomes(self, chosen: SelectedConfiguration, before: SchedulerState) -> Iterator[Outcome]:
        history = before.stored.configurations
        for reason in chosen.rejected:
            yield Outcome("OptionsRejected", f"new options rejected: {reason}", warning=True)
        for change in chosen.changes:
            if isinstance(change, Configuration) and history:
                old = rollback_options(newest_first(history)[0], chosen.options, self._defaults)
                effects = "effects unknown, because the previous options are now invalid"
                if old is not None:
                    effects = describe_difference(difference(old, chosen.options, before))
                yield Outcome("TargetChanged", f"new target configuration {change.id}: {effects}")

    def preview(self, update: Document, state: SchedulerState) -> PreviewBody:
        """Return the effects of an update, given as `options` or an app's `environment`.

        Raises OptionsError with all problems.
        """
        app = update.get("environment")
        if not isinstance(app, Mapping | None):
            raise OptionsError([Problem("environment", "must be a JSON object")])
        # References to DC/OS secrets are not strings.
        environment = {**self.environment, **{key: text for key, text in (app or {}).items() if isinstance(text, str)}}
        document = update.get("options") if "options" in update else to_document(environment)
        if not isinstance(document, Mapping):
            raise OptionsError([Problem("options", "must be a JSON object")])
        document = self.complete(document) if self.complete is not None else document
        new = self._resolved(document, environment, self.options)
        return _as_json(difference(self.options, new, state))


def _as_json(change: Difference) -> PreviewBody:
    return {
        "changed": [{"option": item.path, "old": item.old, "new": item.new} for item in change.changed],
        "refused": [{"option": item.path, "reason": item.message} for item in change.refused],
        "restarted": [
            {"task": item.task, "reason": item.reason, "step": item.step, "saved_step": item.saved_step}
            for item in change.restarted
        ],
        "added": list(change.added),
        "removed": list(change.removed),
        "requested": change.requested,
    }
