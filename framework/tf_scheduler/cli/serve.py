"""`dcos-tensorflow local serve`: DC/OS' own addresses in front of the local cluster, for the real dcos command."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

import click

from dcos_local.folder import Folder, private
from dcos_local.record import Record
from mesos_local import LocalCluster
from mesos_local.leftovers import MARK
from tf_scheduler.errors import JobError, NotRunningError

from .local import directory_option, find_cluster, terminated_like_interrupted
from .operate.here import noted

_READY = "the local DC/OS serves at "


@click.command()
@directory_option
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Port on loopback. Default: as before, or any.")
@click.option("--where", is_flag=True, help="Only print the address of the one that serves.")
def serve(directory: Path, port: int, where: bool) -> None:
    """Answer as DC/OS does (Cosmos, Marathon, Mesos), in front of the local cluster: until that ends, or Ctrl-C.

    Its package repository holds this package, built for this machine. Then the dcos command works as on a cluster:

        DCOS_URL=http://127.0.0.1:PORT dcos package install tensorflow

    When it ends, so do the schedulers, but not their tasks; started again it takes both up again.
    """
    # Here, not above: a web server and a validator are no part of what other commands have to load.
    from dcos_local.server import choose_port, serving, url_of

    from .local_package import build_local

    cluster = find_cluster(directory)
    folder = Folder(cluster.directory)
    record = Record.read(folder)
    if where:
        click.echo(_address(record))
        return
    if record is not None:
        raise JobError(f"the local DC/OS serves at {record.url} already")
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", level=logging.INFO)
    with terminated_like_interrupted(), private(folder):
        chosen = choose_port(folder, port)
        click.echo("building the package for this machine, then starting what was installed before", err=True)
        build_local(cluster, folder.universe, f"{url_of(chosen)}/universe")
        with serving(cluster, chosen) as record, noted() as note:
            note(record.url)
            click.echo(f"{_READY}{record.url}")
            click.echo(f"export DCOS_URL={record.url}", err=True)
            _wait_for_end(directory)
            click.echo("the local cluster has ended", err=True)


def _wait_for_end(directory: Path) -> None:
    """Until no node of the cluster runs; one that was started again meanwhile is waited for, too."""
    while (cluster := LocalCluster.running(directory)) is not None:
        for node in cluster.nodes:
            if node.process is not None:
                node.process.wait()


def _address(record: Record | None) -> str:
    if record is None:
        raise NotRunningError("the local DC/OS is not up; start it with: dcos-tensorflow local serve")
    return record.url


def ensure_served(cluster: LocalCluster) -> Record:
    """The local DC/OS of the cluster, started in the background when nobody serves yet. It ends with the cluster."""
    folder = Folder(cluster.directory)
    record = Record.read(folder)
    if record is not None:
        return record
    command = [sys.executable, "-m", "tf_scheduler", "local", "serve", "--dir", str(cluster.directory)]
    with folder.log.open("ab") as log:
        process = subprocess.Popen(
            command,
            env=_environment(cluster),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
        )
    assert process.stdout is not None, "a pipe was asked for"
    with process.stdout:
        process.stdout.readline()  # its first line says that it serves; none, that it could not
    record = Record.read(folder)
    if record is None:
        raise JobError(f"the local DC/OS does not start; its log is {folder.log}")
    return record


def _environment(cluster: LocalCluster) -> dict[str, str]:
    """Ours, with the mark by which `local down` finds what belongs to the cluster."""
    return {**os.environ, MARK: str(cluster.directory)}
