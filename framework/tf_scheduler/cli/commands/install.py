"""Commands `local install` and `local uninstall`: services on a local cluster."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from dcos_command.client import client_at
from dcos_command.main import DEFAULT_SERVICE, IntRange
from dcos_command.update import TIMEOUT, uninstalled_message, wait_for_end
from tf_scheduler import __version__
from tf_scheduler.cli.common.groups import examples
from tf_scheduler.cli.common.options_file import load_document, load_options
from tf_scheduler.cli.local_run.discovery import PROGRAM
from tf_scheduler.cli.local_run.installed import InstalledService, LocalInstallation, supervise_all
from tf_scheduler.errors import JobError, NotRunningError

from .local import directory_option, find_cluster
from .run import adapt_sizes, notice_of_gpus


@click.command()
@examples("local install --options options.json")
@click.option(
    "--options",
    type=click.Path(readable=False, path_type=Path),
    metavar="FILE",
    help="Options file. Default: a test job.",
)
@click.option("--app-id", metavar="ID", help="Id of the service. Default: the option service.name.")
@directory_option
@click.argument("misplaced", nargs=-1, metavar="")
def install(options: Path | None, app_id: str | None, directory: Path, misplaced: tuple[str, ...]) -> None:
    """Install a service on the running local cluster.

    The service's scheduler runs in the background until `local uninstall`; it is restarted if it exits. A file path
    in job_url is relative to the options file. A service without a checkpoint folder gets one.
    """
    if misplaced:
        raise click.UsageError(f"pass the options file with --options: local install --options {misplaced[0]}")
    cluster = find_cluster(directory)
    document: dict[str, Any] = {}
    if options is not None:
        spec = load_options(options)  # raises OptionsError
        notice_of_gpus(spec, cluster.specs)
        document = dict(adapt_sizes(load_document(options), spec, cluster.specs)[0])
    name = (app_id or document.get("service", {}).get("name", DEFAULT_SERVICE)).strip("/")
    for problem in supervise_all(cluster.directory):
        click.echo(problem, err=True)
    service = InstalledService(cluster.directory, name)
    service.install(service.with_checkpoints(document))
    click.echo(f"installed {DEFAULT_SERVICE} {__version__} as /{name}")
    click.echo(f"page: {service.url}/")


@click.command()
@examples("local uninstall mnist", "local uninstall --all")
@click.argument("app_id", default="")
@click.option("--all", "everything", is_flag=True, help="Uninstall all services.")
@click.option("--no-wait", is_flag=True, help="Do not wait until the service is removed.")
@click.option(
    "--timeout",
    type=IntRange(min=1),
    default=TIMEOUT,
    show_default=True,
    metavar="SECONDS",
    help="Maximum time to wait.",
)
@directory_option
def uninstall(app_id: str, everything: bool, no_wait: bool, timeout: int, directory: Path) -> None:
    """Uninstall a service from the local cluster.

    APP_ID is the name of the service; omit it if only one is installed. The scheduler is restarted to stop the tasks,
    leave Mesos and delete its state.
    """
    cluster = find_cluster(directory)
    for service in _selected(InstalledService.all(cluster.directory), app_id.strip("/"), everything):
        installation = LocalInstallation(service)
        installation.uninstall()
        if no_wait:
            click.echo(f"/{service.id} is being uninstalled")
        else:
            client = client_at(service.url, "", os.environ, PROGRAM)
            client = replace(client, name=service.id, installation=installation)
            click.echo(uninstalled_message(f"/{service.id}", wait_for_end(client, timeout)))


def _selected(services: list[InstalledService], name: str, everything: bool) -> list[InstalledService]:
    selected = [service for service in services if name in ("", service.id)]
    if not selected:
        raise NotRunningError(f"service {name}: not installed" if name else "no service is installed")
    if len(selected) > 1 and not everything:
        names = ", ".join(f"/{service.id}" for service in selected)
        raise JobError(f"several services are installed: {names}; name one of them, or use --all")
    return selected
