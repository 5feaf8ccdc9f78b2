"""`dcos-tensorflow scheduler run`: what the Marathon app starts. Its options come from the environment.

Loads nothing that the scheduler's bundle lacks: no local Mesos, no tables.
"""

from __future__ import annotations

import gc
import logging
import os
import ssl
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import click

from mesos_client import Tls
from tf_scheduler.errors import JobError, NotRunningError, OptionsError, Problem, SchedulerError
from tf_scheduler.options.environment import to_document
from tf_scheduler.options.notices import notices
from tf_scheduler.options.parse import parse
from tf_scheduler.store.interface import StoreConflict, StoreError, StoreUnavailable

from .document import read_bytes

log = logging.getLogger(__name__)

#: HTTP statuses that Marathon takes for healthy; above 299 the standard library calls them errors.
_HEALTHY = range(200, 400)
_HEALTH_TIMEOUT = 10.0  # seconds
_TRUE = ("1", "true", "yes")
#: In the scheduler's sandbox: its decisions, as far as people may want them later (tf_scheduler.history).
RECORDING = "recording.jsonl"


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def scheduler() -> None:
    """The scheduler, as Marathon runs it."""


@scheduler.command()
@click.option(
    "--options",
    "file",
    type=click.Path(path_type=Path),
    help="Options file, instead of the variables; for those who start the scheduler without Marathon.",
)
@click.option(
    "--reset",
    envvar="RESET_FRAMEWORK",
    default="",
    metavar="FRAMEWORK_ID",
    help="If Mesos has removed this framework, begin the job anew as another one. Also RESET_FRAMEWORK.",
)
def run(file: Path | None, reset: str) -> None:
    """Run the scheduler until SIGTERM; tasks go on then.

    Everything comes from the environment, as the package's Marathon app sets it: a variable for each option
    (docs/options.md), PORT_API for the HTTP API, EXECUTOR_URI for the executor's bundle, and SDK_UNINSTALL=true when
    the service is to be taken down.
    """
    # Much that other commands need not load.
    from tf_scheduler.api.listening import address_for

    from .beginning import begin, package_defaults, spec_of
    from .daemon import Daemon
    from .settle import Settling

    # What modules leave behind stays: the bundle has not had it looked through, and it never is.
    gc.freeze()
    gc.enable()
    environment = os.environ
    document = to_document(environment) if file is None else parse(read_bytes(file), str(file))
    uninstalling = environment.get("SDK_UNINSTALL", "").lower() in _TRUE
    options, access = begin(document, environment, uninstalling)
    port = _port(environment)
    for notice in () if uninstalling else notices(document, options):
        log.warning("option %s", notice)
    own_spec = partial(spec_of, environment, port, "http" if access.tls is None else "https", uninstalling)
    daemon = Daemon(
        own_spec(options),
        options["mesos"]["master"],
        options["scheduler"]["state"],
        address_for(environment.get("HOST", "")),
        port,
        uninstalling,
        _tls(options["tls"]),
        environment,
        recording=_recording(environment),
        access=access,
        reset=reset,
        settling=Settling(options, environment, package_defaults, own_spec, uninstalling),
        statsd=options["metrics"]["statsd"],
    )
    try:
        daemon.run()
    except (StoreUnavailable, StoreConflict) as error:
        raise NotRunningError(str(error)) from error


@scheduler.command()
@click.option("--port", type=click.IntRange(1, 65535), help="Port of the API. Default: PORT_API, or PORT0.")
def health(port: int | None) -> None:
    """Ask the scheduler on this machine how it is, for what watches containers: exit code 0, or 1 with the answer."""
    scheme = "https" if os.environ.get("API_CERTIFICATE_FILE") else "http"
    url = f"{scheme}://127.0.0.1:{port or _port(os.environ)}/v1/health"
    # It is ourselves, over loopback: nobody stands between, and the certificate has another name.
    trusting = ssl._create_unverified_context()  # noqa: S323
    try:
        with urllib.request.urlopen(url, timeout=_HEALTH_TIMEOUT, context=trusting) as answer:  # noqa: S310 - ourselves
            click.echo(answer.read().decode() or f"HTTP {answer.status}")
    except urllib.error.HTTPError as error:
        with error:
            click.echo(error.read().decode())
        sys.exit(0 if error.code in _HEALTHY else 1)
    except OSError as error:
        raise JobError(f"{url} does not answer: {getattr(error, 'reason', error)}") from error


def _recording(environment: Mapping[str, str]) -> Path | None:
    """RECORDING_FILE, else a file in the sandbox: there it is found when the service is gone."""
    sandbox = environment.get("MESOS_SANDBOX")
    place = environment.get("RECORDING_FILE") or (sandbox and f"{sandbox}/{RECORDING}")
    return Path(place) if place else None


def _tls(options: Mapping[str, Any]) -> Tls | None:
    if not options["enabled"]:
        return None
    certificate = (options["certificate_file"], options["key_file"])
    return Tls(verify=options["ca_file"] or True, cert=certificate if all(certificate) else None)


def main() -> None:
    """The whole command of the scheduler's bundle."""
    try:
        scheduler.main(prog_name="tensorflow-scheduler")
    except NotRunningError as error:
        fail(error, 3)
    except (SchedulerError, StoreError) as error:
        fail(error)


def fail(error: Exception, code: int = 1) -> NoReturn:
    """Whatever the exit code: Marathon starts us again, later and later."""
    click.echo(f"{error}", err=True)
    sys.exit(code)


def _port(environment: Mapping[str, str]) -> int:
    text = environment.get("PORT_API") or environment.get("PORT0") or ""
    if not text.isdecimal() or not 0 < int(text) <= 65_535:
        raise OptionsError([Problem("PORT_API", f"must be the port of the HTTP API, 1 to 65535, not {text!r}")])
    return int(text)
