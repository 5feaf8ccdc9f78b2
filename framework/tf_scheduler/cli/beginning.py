"""How a scheduler begins: its options, who may use its API, its log. One that takes its service down needs less."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tf_scheduler.api.policy import Policy
from tf_scheduler.model.spec import ServiceSpec
from tf_scheduler.options.loader import resolve, to_spec
from tf_scheduler.options.salvage import salvaged
from tf_scheduler.telling.lines import log_to
from tf_scheduler.telling.masks import Masks

from .front import ApiSettings, api_settings, last_api_settings
from .known_secrets import known_secrets
from .secrets import reachable

log = logging.getLogger(__name__)

#: The package's word for a level -> Python's.
_LEVELS = {"OFF": "CRITICAL", "FATAL": "CRITICAL", "WARN": "WARNING", "TRACE": "DEBUG", "ALL": "DEBUG"}
#: Options that name a program.
_PROGRAM = {"command", "job_url", "job_name"}
_SANITY = "python examples/sanity/check.py"


def begin(
    document: Mapping[str, Any], environment: Mapping[str, str], uninstalling: bool
) -> tuple[Mapping[str, Any], ApiSettings]:
    """Resolved options, and who may use the API; the log has begun. Raise OptionsError.

    A service that is taken down does without what is wrong or missing: else it could not be taken down at all.
    """
    defaults = package_defaults(document, environment)
    if not uninstalling:
        options = resolve(document, defaults)
        access = api_settings(options, environment, options["secret_delivery"]["directory"])
        _log(options, environment, access.policy)
        return options, access
    options, wrong = salvaged(document, defaults)
    closed = any(problem.path.partition(".")[0] == "api" for problem in wrong)
    access, missing = last_api_settings(options, environment, options["secret_delivery"]["directory"], closed=closed)
    _log(options, environment, access.policy)
    for problem in (*wrong, *missing):
        log.error("the service is uninstalled without: %s", problem)
    return options, access


def spec_of(
    environment: Mapping[str, str], port: int, scheme: str, uninstalling: bool, options: Mapping[str, Any]
) -> ServiceSpec:
    """With where tasks reach us; when there will be none, no certificates are read for them."""
    spec = to_spec(options)
    if uninstalling:
        spec = replace(spec, delivery=replace(spec.delivery, ca_file=""))
    return reachable(spec, environment, port, scheme)


def package_defaults(document: Mapping[str, Any], environment: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """What the package provides where the options are silent: the executor, and a program when none is named.

    That program checks that the tasks reach each other: so the package can be installed, and tried, without options.
    """
    found = {"executor": {"url": environment.get("EXECUTOR_URI", "")}}
    named = {name for section in document.values() if isinstance(section, dict) for name in section}
    if not named & _PROGRAM and environment.get("EXAMPLES_URI"):
        found["service"] = {"job_url": environment["EXAMPLES_URI"], "command": _SANITY}
    return found


def _log(options: Mapping[str, Any], environment: Mapping[str, str], policy: Policy) -> None:
    service = options["service"]
    level = _LEVELS.get(service["log_level"], service["log_level"])
    log_to(sys.stderr, service["log_format"], level, Masks(known_secrets(options, environment, policy)))
