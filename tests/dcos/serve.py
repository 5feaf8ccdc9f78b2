"""`scripts/local-dcos`: endpoints of DC/OS in front of the local cluster."""

from __future__ import annotations

import getpass
import logging
import sys
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from mesos_local.cluster import LocalCluster
from mesos_local.host import MesosLocalError
from tf_scheduler.cli.commands.local import clean_up_on_signals, directory_option, find_cluster
from tf_scheduler.cli.common.options_file import can_check_gpus
from tf_scheduler.errors import JobError, NotRunningError, SchedulerError
from tf_scheduler.package import universe
from tf_scheduler.package.artefacts import build_artefacts
from tf_scheduler.package.sources import PACKAGE_FOLDER, PackageSources, read_sources

from .folder import Folder, private
from .record import Record
from .server import choose_port, serving, url_of

_READY = "the local DC/OS serves at "


@click.command()
@directory_option
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, help="Port on loopback. Default: the previous one, or any."
)
@click.option("--where", is_flag=True, help="Print the URL of the running server and exit.")
def serve(directory: Path, port: int, where: bool) -> None:
    """Serve Cosmos, Marathon and Mesos until Ctrl-C or the local cluster stops.

    The package repository contains this package, built for this machine. The dcos command works as on a cluster:

        DCOS_URL=http://127.0.0.1:PORT dcos package install tensorflow

    When it stops, the schedulers stop, too, but not their tasks; the next start continues with both.
    """
    cluster = find_cluster(directory)
    folder = Folder(cluster.directory)
    record = Record.read(folder)
    if where:
        click.echo(_address(record))
        return
    if record is not None:
        raise JobError(f"the local DC/OS already runs at {record.url}")
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", level=logging.INFO)
    with clean_up_on_signals(), private(folder):
        chosen = choose_port(folder, port)
        click.echo("building the package for this machine, then starting what was installed before", err=True)
        build_local(cluster, folder.universe, f"{url_of(chosen)}/universe")
        with serving(cluster, chosen) as record:
            click.echo(f"{_READY}{record.url}")
            click.echo(f"export DCOS_URL={record.url}", err=True)
            _wait_for_end(directory)
            click.echo("the local cluster has ended", err=True)


def _wait_for_end(directory: Path) -> None:
    """Wait until no node of the cluster runs, including restarted ones."""
    while (cluster := LocalCluster.running(directory)) is not None:
        for node in cluster.nodes:
            if node.process is not None:
                node.process.wait()


def _address(record: Record | None) -> str:
    if record is None:
        raise NotRunningError("the local DC/OS is not up; start it with: scripts/local-dcos")
    return record.url


def build_local(cluster: LocalCluster, folder: Path, url: str) -> None:
    """Build repository and artefacts below `folder`, which is served at `url`."""
    sources = read_sources(PACKAGE_FOLDER)
    built = build_artefacts(folder / universe.ARTEFACTS / str(sources.package["version"]), PACKAGE_FOLDER)
    digests = {artefact.path.name: artefact.sha256 for artefact in built}
    state = (cluster.directory / "dcos" / "state.db").as_uri()
    defaults = {**_defaults(sources), "scheduler.state": state, "mesos.master": cluster.master.address}
    universe.build_universe(_with_defaults(sources, defaults), folder, f"{url}/{universe.ARTEFACTS}", digests)


def _defaults(sources: PackageSources) -> dict[str, Any]:
    """Local defaults of options: this user, this Python, no image."""
    sections = () if can_check_gpus() else sources.config["properties"].items()
    return {
        "service.user": getpass.getuser(),
        "service.python": sys.executable,
        "executor.python": sys.executable,
        "scheduler.containerized": False,
        "scheduler.python": sys.executable,
        **{f"{name}.gpu_check": False for name, section in sections if "gpu_check" in section.get("properties", {})},
    }


def _with_defaults(sources: PackageSources, defaults: Mapping[str, Any]) -> PackageSources:
    """The sources with other defaults in config.json."""
    config = deepcopy(sources.config)
    for path, value in defaults.items():
        option = config
        for name in path.split("."):
            option = option["properties"][name]
        option["default"] = value
    return replace(sources, config=config)


def main() -> None:
    """Run the command. Exit code 3 without a cluster or server, 1 for other errors."""
    try:
        serve(prog_name="local-dcos")
    except (SchedulerError, MesosLocalError) as error:
        click.echo(str(error), err=True)
        sys.exit(3 if isinstance(error, NotRunningError) else 1)


if __name__ == "__main__":
    main()
