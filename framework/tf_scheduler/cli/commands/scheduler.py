"""`dcos-tensorflow scheduler run`: what the Marathon app starts. Its options come from the environment.

Loads nothing that the scheduler's bundle lacks: no local Mesos, no tables.
"""

from __future__ import annotations

import logging
import os
import signal
import ssl
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NoReturn

import click

from tf_scheduler.cli.common.options_file import read_bytes
from tf_scheduler.errors import JobError, NotRunningError, SchedulerError
from tf_scheduler.options.environment import to_document
from tf_scheduler.options.load import parse
from tf_scheduler.service.build import SchedulerProcess, build_scheduler
from tf_scheduler.service.options import api_port, load_settings
from tf_scheduler.store.interface import StoreConflictError, StoreUnavailableError

log = logging.getLogger(__name__)

#: HTTP statuses that Marathon takes for healthy; above 299 the standard library calls them errors.
_HEALTHY = range(200, 400)
_HEALTH_TIMEOUT = 10.0  # seconds


@click.group(no_args_is_help=False, context_settings={"help_option_names": ["-h", "--help"]})
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
    document = to_document(os.environ) if file is None else parse(read_bytes(file), str(file))
    settings = load_settings(document, os.environ, reset)
    try:
        process = build_scheduler(settings)
        with _stopped_by_signals(process):
            process.run()
    except (StoreUnavailableError, StoreConflictError) as error:
        raise NotRunningError(str(error)) from error


@contextmanager
def _stopped_by_signals(process: SchedulerProcess) -> Iterator[None]:
    def stop(number: int, _frame: FrameType | None) -> None:
        over = process.runner.state.process.finished
        log.info("%s received%s", signal.Signals(number).name, "" if over else "; tasks keep running")
        process.stop()

    previous = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


@scheduler.command()
@click.option("--port", type=click.IntRange(1, 65535), help="Port of the API. Default: PORT_API, or PORT0.")
def health(port: int | None) -> None:
    """Ask the scheduler on this machine how it is, for what watches containers: exit code 0, or 1 with the answer."""
    scheme = "https" if os.environ.get("API_CERTIFICATE_FILE") else "http"
    url = f"{scheme}://127.0.0.1:{port or api_port(os.environ)}/v1/health"
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


def main() -> None:
    """The whole command of the scheduler's bundle."""
    try:
        scheduler.main(prog_name="tensorflow-scheduler")
    except SchedulerError as error:
        fail(error, error.exit_code)


def fail(error: Exception, code: int = 1) -> NoReturn:
    """Whatever the exit code: Marathon starts us again, later and later."""
    click.echo(f"{error}", err=True)
    sys.exit(code)
