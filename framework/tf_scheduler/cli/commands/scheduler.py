"""`dcos-tensorflow scheduler`: run the scheduler, and check its health.

Imports only what the scheduler's bundle contains: no local Mesos, no tables.
"""

from __future__ import annotations

import logging
import os
import signal
import ssl
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tf_executor.contract.http import HttpClient, NoReplyError
from tf_scheduler import __version__
from tf_scheduler.cli.common.folders import named_file_type, read_bytes
from tf_scheduler.errors import JobError, SchedulerError
from tf_scheduler.logging_setup import handle_signals_in_thread
from tf_scheduler.mesos.registration import LostFrameworks
from tf_scheduler.options.environment import to_document
from tf_scheduler.options.load import parse
from tf_scheduler.service.build import SchedulerProcess, build_scheduler
from tf_scheduler.service.options import api_port, load_settings

if TYPE_CHECKING:
    from tf_scheduler.queue_service.build import QueueProcess

log = logging.getLogger(__name__)

#: HTTP statuses that Marathon accepts as healthy.
_HEALTHY = range(200, 400)
_HEALTH_TIMEOUT = 10.0  # seconds


@click.group(no_args_is_help=False, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="tensorflow-scheduler")
def scheduler() -> None:
    """Run the scheduler, as Marathon does.

    \b
    Examples:
      dcos-tensorflow scheduler run --options options.json
      dcos-tensorflow scheduler health --port 8080
    """


@scheduler.command()
@click.option(
    "--options", "file", type=named_file_type, metavar="FILE", help="Options file, instead of environment variables."
)
@click.option(
    "--reset",
    envvar="RESET_FRAMEWORK",
    default="",
    metavar="FRAMEWORK_ID",
    help="Stop this framework, and register a new one.",
    show_envvar=True,
)
@click.option(
    "--adopt",
    envvar="ADOPT_FRAMEWORK",
    default="",
    metavar="FRAMEWORK_ID",
    help="Continue this framework if the stored state is lost.",
    show_envvar=True,
)
@click.option(
    "--force-registration",
    "force",
    is_flag=True,
    envvar="FORCE_REGISTRATION",
    help="Register next to a live framework of this name; with --adopt, replace its scheduler.",
    show_envvar=True,
)
def run(file: Path | None, reset: str, adopt: str, force: bool) -> None:
    """Run the scheduler until SIGTERM; tasks keep running.

    Environment variables configure the scheduler. The package's Marathon app sets them: one for each option
    (docs/reference/options.md), PORT_API for the HTTP API, EXECUTOR_URI for the executor's bundle, and
    SDK_UNINSTALL=true to uninstall the service.

    \b
    Examples:
      export PORT_API=8080 EXECUTOR_URI=file://$(dcos-tensorflow executor build)
      dcos-tensorflow scheduler run --options options.json
    """
    if adopt and adopt == reset:
        raise click.UsageError(f"--adopt {adopt}: invalid with --reset")
    document = to_document(os.environ) if file is None else parse(read_bytes(file), str(file))
    settings = load_settings(document, os.environ, LostFrameworks(adopt, reset, force))
    process: SchedulerProcess | QueueProcess
    if settings.is_queue:
        from tf_scheduler.queue_service.build import build_queue  # most services have one job

        process = build_queue(settings)
    else:
        process = build_scheduler(settings)
    # `stop` sets an event that the main thread may just be waiting for, with its lock held.
    with handle_signals_in_thread(partial(_stop, process), signal.SIGTERM, signal.SIGINT):
        process.run()


def _stop(process: SchedulerProcess | QueueProcess, number: signal.Signals) -> None:
    has_ended = isinstance(process, SchedulerProcess) and process.runner.state.process.finished
    log.info("%s received: the scheduler exits%s", number.name, "" if has_ended else "; its tasks keep running")
    process.stop()


class _Port(click.IntRange):
    def _describe_range(self) -> str:
        return f"{self.min} to {self.max}"


@scheduler.command()
@click.option("--port", type=_Port(1, 65535), metavar="PORT", help="Port of the API. Default: $PORT_API, else $PORT0.")
def health(port: int | None) -> None:
    """Check the scheduler on this machine.

    Use the command for health checks of containers.

    Exit code: 0 healthy, 1 not healthy.

    \b
    Examples:
      dcos-tensorflow scheduler health --port 8080
    """
    scheme = "https" if os.environ.get("API_CERTIFICATE_FILE") else "http"
    url = f"{scheme}://127.0.0.1:{port or api_port(os.environ)}/v1/health"
    # On loopback no other machine can answer, and the certificate has another name.
    context = ssl._create_unverified_context()  # noqa: S323
    try:
        reply = HttpClient(_HEALTH_TIMEOUT, _HEALTH_TIMEOUT, context).fetch(url)
    except NoReplyError as error:
        raise JobError(f"{url} does not answer: {error}") from error
    click.echo(reply.body.decode() or f"HTTP {reply.status}")
    sys.exit(0 if reply.status in _HEALTHY else 1)


def main() -> None:
    """Run the bundled scheduler; Marathon restarts it after any exit code."""
    try:
        scheduler.main(prog_name="tensorflow-scheduler")
    except SchedulerError as error:
        click.echo(f"{error}", err=True)
        sys.exit(error.exit_code)
