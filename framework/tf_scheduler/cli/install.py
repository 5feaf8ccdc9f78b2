"""`dcos-tensorflow local install` and `local uninstall`: what `dcos package` does, against the local DC/OS."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from dcos_command.cluster import Cluster
from dcos_command.service import Service
from dcos_command.uninstalling import LIMIT, told, wait_for_end
from dcos_local.folder import Folder
from dcos_local.record import Record
from tf_scheduler.errors import NotRunningError

from .document import load_document
from .files import load_options
from .local import directory_option, find_cluster
from .serve import ensure_served

NAME = "tensorflow"
#: What the check of the cluster needs, which is what runs without options: less than the package's defaults.
_SMALL = {"cpus": 0.1, "mem": 64, "disk": 0}
_CHECK = {"parameter_server": _SMALL, "worker": _SMALL}
_TIMEOUT = 60.0  # seconds for one answer


@click.command()
@click.option("--options", type=click.Path(path_type=Path), help="Options file. Default: a check of the cluster.")
@click.option("--app-id", help="Id of the Marathon app. Default: the service's name.")
@directory_option
@click.argument("misplaced", nargs=-1, metavar="")
def install(options: Path | None, app_id: str | None, directory: Path, misplaced: tuple[str, ...]) -> None:
    """Install the package on the local cluster that is up, as DC/OS would.

    Its Marathon app is rendered and started: a scheduler of its own, which is started again when it ends. A job_url
    that names a file is relative to the options file. Without a folder for checkpoints the service gets one of its own.
    """
    if misplaced:
        raise click.UsageError(f"the options file is named with --options: local install --options {misplaced[0]}")
    cluster = find_cluster(directory)
    given = _CHECK if options is None else _options(options, Folder(cluster.directory))
    record = ensure_served(cluster)
    body = {"packageName": NAME, "options": given, **({"appId": app_id} if app_id else {})}
    answer = _packages(record).cosmos("package.install", "package/install", body, "v2")
    click.echo(f"installed {answer['packageName']} {answer['packageVersion']} as {answer['appId']}")
    click.echo(f"its API: {record.url}/service{answer['appId']}/v1/plans/deploy")


@click.command()
@click.argument("app_id", default="")
@click.option("--all", "everything", is_flag=True, help="All that are installed.")
@click.option("--no-wait", is_flag=True, help="Do not wait until nothing is left.")
@click.option(
    "--timeout",
    type=click.IntRange(min=1),
    default=LIMIT,
    show_default=True,
    metavar="SECONDS",
    help="Wait so many seconds at most.",
)
@directory_option
def uninstall(app_id: str, everything: bool, no_wait: bool, timeout: int, directory: Path) -> None:
    """Uninstall the service APP_ID (its name; not needed when there is only one) from the local cluster.

    Its scheduler is started anew to take it down: it ends the tasks, leaves Mesos and forgets its state.
    """
    cluster = find_cluster(directory)
    record = Record.read(Folder(cluster.directory))
    if record is None:
        raise NotRunningError("Nothing is installed: the local DC/OS is not up.")
    body = {"packageName": NAME, "all": everything, **({"appId": app_id} if app_id else {})}
    answer = _packages(record).cosmos("package.uninstall", "package/uninstall", body)
    for result in answer["results"]:
        app_id = result["appId"]
        if no_wait:
            click.echo(f"{app_id} is being uninstalled")
        else:
            click.echo(told(app_id, wait_for_end(Service(Cluster(record.url), app_id, timeout=_TIMEOUT), timeout)))


def _options(path: Path, folder: Folder) -> dict[str, Any]:
    load_options(path)  # for its checks
    return _with_checkpoints(load_document(path), folder)


def _with_checkpoints(document: dict[str, Any], folder: Folder) -> dict[str, Any]:
    """As `local run` does it: on one machine a folder is shared by all tasks."""
    service = document.get("service", {})
    if service.get("checkpoint_dir") or service.get("shared_filesystem"):
        return document
    checkpoints = folder.checkpoints(service.get("name", NAME))
    checkpoints.mkdir(parents=True, exist_ok=True)
    return {**document, "service": {**service, "checkpoint_dir": str(checkpoints)}}


def _packages(record: Record) -> Service:
    return Service(Cluster(record.url), NAME, timeout=_TIMEOUT)
