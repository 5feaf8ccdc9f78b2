"""What `dcos-tensorflow local status` prints: as wide as the terminal, and nothing in it cut."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import IO

import click
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from mesos_local.agents import AgentSpec, default_agents, load_agents, port_spans, with_ports
from mesos_local.cluster import LocalCluster
from mesos_local.host.errors import MesosLocalError, NodeDiedError
from mesos_local.host.process import is_free
from mesos_local.libmesos.download import check_platform
from mesos_local.master_api import AgentStatus, ClusterStatus, FrameworkStatus, MasterUnavailableError
from mesos_local.record import read_record
from tf_scheduler.cli.common.folders import state_home
from tf_scheduler.cli.common.output import ignore_broken_pipe, json_option
from tf_scheduler.cli.local_run.ports import claim_ports
from tf_scheduler.cli.main import LazyGroup
from tf_scheduler.errors import NotRunningError

_UNLIMITED_WIDTH = 10_000  # columns: for a file or a pipe, where every line may be as long as it is
_AMOUNTS = ("cpus", "mem", "gpus")
#: What a narrow terminal can do without, the least needed first; --json has it all.
_OPTIONAL_COLUMNS = ("attributes", "ports", "framework", "tasks")

Rows = Sequence[Mapping[str, str]]


def print_status(snapshot: ClusterStatus) -> None:
    """Addresses, a table of agents, one of tasks if there are any, and what schedulers that are gone have left."""
    console = Console()
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console = Console(width=_UNLIMITED_WIDTH)
    for name, address in (("Mesos master  http://", snapshot.master), ("ZooKeeper     ", snapshot.zookeeper)):
        if address:
            console.print(Text(f"{name}{address}"), overflow="fold")
    _print_table(console, [_agent_row(agent, snapshot) for agent in snapshot.agents], "cpus, mem, gpus: used/offered")
    _print_table(console, list(_task_rows(snapshot)))
    for line in _orphans(snapshot):
        console.print(Text(line), overflow="fold")


def _agent_row(agent: AgentStatus, snapshot: ClusterStatus) -> dict[str, str]:
    amounts = {name: f"{_amount(agent.used.get(name))}/{_amount(agent.resources.get(name))}" for name in _AMOUNTS}
    return {
        "agent": agent.hostname,
        "cpus": amounts["cpus"],
        "mem (MB)": amounts["mem"],
        "gpus": amounts["gpus"],
        "ports": str(agent.resources.get("ports", "")).replace(",", " "),
        "attributes": " ".join(f"{name}:{value}" for name, value in agent.attributes.items()),
        "tasks": str(sum(task.hostname == agent.hostname for task in snapshot.tasks)),
        "state": "registered" if agent.active else "not reachable",
    }


def _task_rows(snapshot: ClusterStatus) -> Iterator[dict[str, str]]:
    frameworks = {framework.framework_id: framework for framework in snapshot.frameworks}
    for task in snapshot.tasks:
        framework = frameworks.get(task.framework_id)
        state = task.state.removeprefix("TASK_").lower()
        yield {
            "task": task.name,
            "state": state if framework is None or framework.connected else f"{state}, orphan",
            "agent": task.hostname,
            "framework": task.framework_id if framework is None else framework.name,
        }


def _orphans(snapshot: ClusterStatus) -> Iterator[str]:
    for framework in snapshot.frameworks:
        if not framework.connected:
            tasks = sum(task.framework_id == framework.framework_id for task in snapshot.tasks)
            yield (
                f"The scheduler of {framework.name} is gone. It holds {_held_resources(framework)} in {tasks} "
                f"{'task' if tasks == 1 else 'tasks'}; unless it comes back, Mesos ends all of that "
                f"{framework.failover_timeout:g} s after it left."
            )


def _held_resources(framework: FrameworkStatus) -> str:
    held = [f"{name} {_amount(framework.used[name])}" for name in _AMOUNTS if name in framework.used]
    return ", ".join(held) or "nothing"


def _print_table(console: Console, rows: Rows, caption: str = "") -> None:
    if not rows:
        return
    columns, left_out = list(rows[0]), []
    for name in (name for name in _OPTIONAL_COLUMNS if name in columns):
        if _width(console, _table(rows, columns)) <= console.width:
            break
        columns.remove(name)
        left_out.append(name)
    console.print(_table(rows, columns))
    if caption:
        console.print(Text(caption, style="italic dim"), overflow="fold")
    if left_out:
        console.print(Text(f"left out for want of width: {', '.join(left_out)}", style="italic dim"), overflow="fold")


def _table(rows: Rows, columns: Iterable[str]) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in columns:
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*(Text(row[name]) for name in columns))
    return table


def _width(console: Console, table: Table) -> int:
    return Measurement.get(console, console.options.update(width=_UNLIMITED_WIDTH), table).maximum


def _amount(value: float | str | None) -> str:
    return f"{value or 0:g}" if not isinstance(value, str) else value


# --- local
# `dcos-tensorflow local`: a real Mesos on this machine, from start to end.


MASTER_PORT = 5050  # Mesos' own, preferred while it is free
#: Command -> its module.
_LAZY_COMMANDS = {"install": "install", "run": "run", "uninstall": "install"}
#: Of these whoever reads has enough when they close the pipe.
_READ_ONLY = ("logs", "status")
_TAIL_LINES = 50
_POLL_INTERVAL = 0.2  # seconds, of `logs --follow`


def default_directory() -> Path:
    """`$XDG_STATE_HOME/dcos-tensorflow/local`, by default `~/.local/state/dcos-tensorflow/local`."""
    return state_home() / "local"


def preferred_master_port() -> int | None:
    """5050 if it is free, else None: any free port."""
    return MASTER_PORT if is_free(MASTER_PORT) else None


@contextmanager
def clean_up_on_signals() -> Iterator[None]:
    """Within, SIGTERM unwinds the stack as Ctrl-C does, so that `with` blocks clean up; exit codes 143 and 130."""

    def leave(number: int, _frame: FrameType | None) -> None:
        # Not click.echo: the signal may have interrupted a write to the same buffer, which raises RuntimeError.
        with suppress(OSError):
            os.write(2, f"{signal.Signals(number).name} received: cleaning up and leaving\n".encode())
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


@click.group(cls=LazyGroup, later=_LAZY_COMMANDS)
@click.pass_context
def local(context: click.Context) -> None:
    """A real Apache Mesos on this machine."""
    if context.invoked_subcommand not in _READ_ONLY:  # what is done does not depend on who listens
        context.with_resource(ignore_broken_pipe())
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
    agents, notice = _persistent_agents(agents_file, directory)
    with clean_up_on_signals():
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


def _persistent_agents(file: Path | None, directory: Path) -> tuple[Sequence[AgentSpec], str]:
    """Those of the file, or the usual ones, with ports that no other cluster offers; and what to say of that."""
    given = load_agents(file) if file else None
    if given is not None and all(port_spans(spec.fields()) for spec in given):
        return given, ""
    first, other = claim_ports(directory)
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
        time.sleep(_POLL_INTERVAL)  # a file cannot be awaited with what the standard library has


def find_cluster(directory: Path) -> LocalCluster:
    """The cluster that is up in `directory`. Raises NotRunningError, also if its master has ended."""
    try:
        cluster = LocalCluster.running(directory)
    except NodeDiedError as error:
        raise NotRunningError(str(error)) from error
    if cluster is None:
        raise NotRunningError(f"No local cluster is up in {directory}. Start one with: dcos-tensorflow local up")
    return cluster
