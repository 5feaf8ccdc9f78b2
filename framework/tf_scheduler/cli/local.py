"""`dcos-tensorflow local`: a real Mesos on this machine, from start to end."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import IO, TYPE_CHECKING

import click

from mesos_local import AgentSpec, LocalCluster, MesosLocalError, NodeDiedError, default_agents, load_agents, with_ports
from mesos_local.agent_rules import port_spans
from mesos_local.artefact import check_platform
from mesos_local.operator_api import MasterUnavailableError
from mesos_local.ports import is_free
from mesos_local.record import read_record
from tf_scheduler.errors import NotRunningError

from .as_json import json_option
from .folders import state_home
from .ports import ports_to_stay
from .root import Later
from .unread import may_be_unread

if TYPE_CHECKING:
    from mesos_local.status import ClusterStatus

MASTER_PORT = 5050  # Mesos' own, preferred while it is free
#: Command -> its module.
_LATER = {"chaos": "chaos.command", "install": "install", "run": "run", "serve": "serve", "uninstall": "install"}
#: Of these whoever reads has enough when they close the pipe.
_READ = ("logs", "status")
_TAIL_LINES = 50
_LOOK_AGAIN = 0.2  # seconds, of `logs --follow`


def default_directory() -> Path:
    """`$XDG_STATE_HOME/dcos-tensorflow/local`, by default `~/.local/state/dcos-tensorflow/local`."""
    return state_home() / "local"


def preferred_master_port() -> int | None:
    """5050 if it is free, else None: any free port."""
    return MASTER_PORT if is_free(MASTER_PORT) else None


@contextmanager
def terminated_like_interrupted() -> Iterator[None]:
    """Within, SIGTERM unwinds the stack as Ctrl-C does, so that `with` blocks clean up; exit codes 143 and 130."""

    def leave(number: int, _frame: FrameType | None) -> None:
        click.echo(f"{signal.Signals(number).name} received: cleaning up and leaving", err=True)
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, leave) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


directory_option = click.option(
    "--dir",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    default=default_directory,
    show_default="$XDG_STATE_HOME/dcos-tensorflow/local",
    help="Where the cluster keeps its logs and sandboxes.",
)
agents_option = click.option(
    "--agents",
    "agents_file",
    type=click.Path(dir_okay=False, path_type=Path),
    help='JSON list of {"hostname", "resources", "attributes"}. Default: three agents, one with 2 GPUs as a resource.',
)


@click.group(cls=Later, later=_LATER)
@click.pass_context
def local(context: click.Context) -> None:
    """A real Apache Mesos on this machine."""
    if context.invoked_subcommand not in _READ:  # what is done does not depend on who listens
        context.with_resource(may_be_unread())
    # Nobody else writes what is run here. Tasks have this umask on a cluster, too, where agents are system services.
    os.umask(os.umask(0o022) | 0o022)


@local.command()
@agents_option
@directory_option
@click.option("--zookeeper", is_flag=True, help="Start a ZooKeeper, too.")
@click.option("--foreground", is_flag=True, help="Stay, and end the cluster on Ctrl-C or SIGTERM.")
def up(agents_file: Path | None, directory: Path, zookeeper: bool, foreground: bool) -> None:
    """Start a master and agents, and wait until all have registered.

    The first time Mesos is downloaded from the package index that pip uses: $PIP_INDEX_URL, else the index-url of
    pip's configuration, else the public one, and then $PIP_EXTRA_INDEX_URL. $HTTPS_PROXY, $NO_PROXY and
    $REQUESTS_CA_BUNDLE are honoured. It is kept in $XDG_CACHE_HOME/dcos-tensorflow.
    """
    check_platform()
    agents, notice = _agents_to_stay(agents_file, directory)
    with terminated_like_interrupted():
        cluster = LocalCluster(
            agents,
            directory,
            zookeeper=zookeeper,
            die_with_parent=foreground,
            master_port=preferred_master_port(),
        )
        if foreground:
            _stay(cluster, notice)
        else:
            cluster.start()
            _print(cluster.state(), notice)


def _agents_to_stay(file: Path | None, directory: Path) -> tuple[Sequence[AgentSpec], str]:
    """Those of the file, or the usual ones, with ports that no other cluster offers; and what to say of that."""
    given = load_agents(file) if file else None
    if given is not None and all(port_spans(spec.fields()) for spec in given):
        return given, ""
    first, other = ports_to_stay(directory)
    notice = other and f"the usual ports are those of the cluster in {other}: here they begin with {first}"
    return default_agents(first) if given is None else with_ports(given, first), notice or ""


def _stay(cluster: LocalCluster, notice: str) -> None:
    with cluster:
        _print(cluster.state(), notice)
        click.echo("Ctrl-C ends the local cluster.")
        signal.pause()


@local.command()
@directory_option
def down(directory: Path) -> None:
    """End the cluster: all of its processes, and whatever its tasks have left; also one whose record is damaged."""
    if not LocalCluster.end(directory):
        click.echo(f"No local cluster is up in {directory}.")
        return
    stay = f"; its logs and sandboxes stay in {directory}" if directory.exists() else ""
    click.echo(f"The local cluster has ended{stay}.")


@local.command()
@directory_option
@json_option
def status(directory: Path, as_json: bool) -> None:
    """Show agents, resources, used, tasks. Exit code 3 if no cluster is up."""
    cluster = find_cluster(directory)
    try:
        snapshot = cluster.state()
    except MasterUnavailableError as error:
        raise NotRunningError(str(error)) from error
    if as_json:
        click.echo(json.dumps(asdict(snapshot), indent=2))
    else:
        _print(snapshot)


@local.command()
@click.argument("name", default="master")
@directory_option
@click.option("-f", "--follow", is_flag=True, help="Go on until Ctrl-C, or until the cluster ends.")
def logs(name: str, directory: Path, follow: bool) -> None:
    """Print the end of the log of NAME: master (the default), an agent's hostname, or zookeeper."""
    folder = directory / "logs"
    names = sorted(path.stem for path in folder.glob("*.log"))
    if not names:
        raise NotRunningError(f"No local cluster has been up in {directory}.")
    if name not in names:
        raise MesosLocalError(f"There is no log of {name!r}; there are: {', '.join(names)}.")
    with (folder / f"{name}.log").open(errors="replace") as log:
        click.echo("".join(log.readlines()[-_TAIL_LINES:]), nl=False)
        if follow:
            _follow(log, directory)


def _print(snapshot: ClusterStatus, notice: str = "") -> None:
    from .cluster_status import print_status  # tables, which a run need not load

    print_status(snapshot)
    if notice:
        click.echo(notice, err=True)


def _follow(log: IO[str], directory: Path) -> None:
    while True:
        record = read_record(directory)
        up_before = record is not None and record.any_alive()  # asked first: what it wrote last is still printed
        click.echo(log.read(), nl=False)
        if not up_before:
            return
        time.sleep(_LOOK_AGAIN)  # a file cannot be awaited with what the standard library has


def find_cluster(directory: Path) -> LocalCluster:
    """The cluster that is up in `directory`. Raises NotRunningError, also if its master has ended."""
    try:
        cluster = LocalCluster.running(directory)
    except NodeDiedError as error:
        raise NotRunningError(str(error)) from error
    if cluster is None:
        raise NotRunningError(f"No local cluster is up in {directory}. Start one with: dcos-tensorflow local up")
    return cluster
