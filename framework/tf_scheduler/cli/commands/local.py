"""`dcos-tensorflow local`: start, show and stop a real Mesos on this machine."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import IO

import click

from dcos_command.command import LazyGroup, declared_in, echo, examples
from dcos_command.output import Table, confirm
from mesos_local.agents import FIRST_PORT, load_agents, port_spans
from mesos_local.cluster import LocalCluster
from mesos_local.host import MesosLocalError, NodeDiedError
from mesos_local.libmesos.download import check_platform
from mesos_local.master_api import AgentStatus, ClusterStatus, MasterUnavailableError
from mesos_local.network import missing_requirements
from mesos_local.ports import claimed_agents
from mesos_local.record import check_unoccupied, read_record
from tf_executor.process.ports import is_free
from tf_scheduler.cli.common.folders import UserPath, named_file_type, state_home
from tf_scheduler.cli.common.output import echo_json, ignore_broken_pipe, json_option, screen
from tf_scheduler.cli.local_run.advertisements import advertisements
from tf_scheduler.errors import NotRunningError
from tf_scheduler.logging_setup import handle_signals

_AMOUNTS = ("cpus", "mem", "gpus")
MASTER_PORT = 5050  # Mesos' default port, used if it is free
_LATER = {
    **declared_in(f"{__package__}.runtime", image="Manage images for local clusters with containers."),
    **declared_in(f"{__package__}.run", run="Run the job of OPTIONS on a Mesos on this machine."),
    **declared_in(
        f"{__package__}.install",
        install="Install a service on the running local cluster.",
        uninstall="Uninstall a service from the local cluster.",
    ),
}
#: Commands that stop when their output is closed.
_READ_ONLY = ("logs", "status")
_TAIL_LINES = 50
_POLL_INTERVAL = 0.2  # seconds, of `logs --follow`


def clean_up_on_signals(code: int | None = None) -> AbstractContextManager[None]:
    """On SIGTERM or Ctrl-C, unwind the stack; exit with `code`, else with 143 or 130."""
    return handle_signals(partial(_leave, code), signal.SIGTERM, signal.SIGINT)


def _leave(code: int | None, number: signal.Signals) -> None:
    # Not click.echo: the signal may have interrupted a write to the same buffer, which raises RuntimeError.
    with suppress(OSError):
        os.write(2, f"{number.name} received: cleaning up and leaving\n".encode())
    raise SystemExit(128 + number if code is None else code)


directory_option = click.option(
    "--dir",
    "directory",
    type=UserPath(file_okay=False),
    default=lambda: state_home() / "local",
    show_default="$XDG_STATE_HOME/dcos-tensorflow/local",
    help="Folder of the cluster's logs and sandboxes.",
)


settings_option = click.option(
    "--set", "settings", multiple=True, metavar="PATH=VALUE", help="Change an option, such as worker.count=4."
)


fit_option = click.option("--fit", is_flag=True, help="Reduce cpus, mem and disk of tasks until the job fits.")


@click.group(cls=LazyGroup, later=_LATER)
@examples("local run options.json", "local up", "local status")
@click.pass_context
def local(context: click.Context) -> None:
    """Run jobs and services on a real Mesos on this machine."""
    prepare(context, reads_only=context.invoked_subcommand in _READ_ONLY)


def prepare(context: click.Context, *, reads_only: bool = False) -> None:
    """Set up this process for a local cluster."""
    if not reads_only:  # other commands finish even if their output is closed
        context.with_resource(ignore_broken_pipe())
    # Tasks must not write files that other users can change; agents that are system services have this umask, too.
    os.umask(os.umask(0o022) | 0o022)


@local.command()
@examples("local up", "local up --agents agents.json --zookeeper", "local up --containers")
@click.option(
    "--agents",
    "agents_file",
    type=named_file_type,
    help='Agents: JSON list of {"hostname", "resources", "attributes"}. Default: 3 agents, one of them with GPUs.',
)
@directory_option
@click.option("--zookeeper", is_flag=True, help="Also start ZooKeeper.")
@click.option("--foreground", is_flag=True, help="Wait for Ctrl-C or SIGTERM, then stop the cluster.")
@click.option("--containers", is_flag=True, help="Enforce limits, run images, and give tasks addresses of their own.")
def up(agents_file: Path | None, directory: Path, zookeeper: bool, foreground: bool, containers: bool) -> None:
    """Start a master and agents, and wait for their registration.

    The first start downloads Mesos from pip's package index: $PIP_INDEX_URL, else the index-url of pip's configuration,
    else the public index. $PIP_EXTRA_INDEX_URL is tried last. The download uses $HTTPS_PROXY, $NO_PROXY and
    $REQUESTS_CA_BUNDLE. Mesos is stored in $XDG_CACHE_HOME/dcos-tensorflow.

    --containers needs root, cgroups version 1 and some Debian packages (docs/how-to/containers.md). If one of these is
    missing, the cluster starts without containers, and the command prints a notice.
    """
    check_platform()
    if containers and (missing := missing_requirements()):
        containers = False
        echo(f"notice: no containers, because this machine lacks {', '.join(missing)}", err=True)
    check_unoccupied(directory, containers)
    configured = load_agents(agents_file) if agents_file else None
    with clean_up_on_signals(), claimed_agents(configured, persistent=True) as (agents, claims):
        first = port_spans(agents[0].fields())[0][0]
        is_default = configured is not None or first == FIRST_PORT
        notice = "" if is_default else f"the default ports are in use; this cluster's ports start at {first}"
        cluster = LocalCluster(
            agents,
            directory,
            None,
            None,
            zookeeper,
            die_with_parent=foreground,
            master_port=MASTER_PORT if claims.add(MASTER_PORT, MASTER_PORT) and is_free(MASTER_PORT) else None,
            containers=containers,
            claims=claims,
        )
        if foreground:
            with cluster:
                print_status(cluster.state(), notice)
                echo("Ctrl-C stops the local cluster")
                signal.pause()
        else:
            cluster.start()
            print_status(cluster.state(), notice)


@local.command()
@examples("local down", "local down --yes")
@directory_option
@click.option("-y", "--yes", is_flag=True, help="Skip the confirmation.")
def down(directory: Path, yes: bool) -> None:
    """Stop the local cluster and its tasks.

    Asks first if runs of `local run` or services of `local install` use the cluster, because these runs fail and these
    services end. Works even if the record of the cluster is damaged.
    """
    if not yes and (names := _users(directory)):
        echo(f"runs and services on this cluster, which end with it: {', '.join(names)}", err=True)
        confirm("Stop the local cluster?", sys.stdin, sys.stderr)
    if not LocalCluster.end(directory):
        echo(f"no local cluster is up in {directory}")
        return
    remains = f"; its logs, sandboxes and checkpoints remain in {directory}" if directory.exists() else ""
    echo(f"the local cluster has stopped{remains}")


def _users(directory: Path) -> list[str]:
    """Return the runs and installed services on the cluster."""
    try:
        cluster = LocalCluster.running(directory)
        frameworks = cluster.state().frameworks if cluster else ()
    except MesosLocalError:
        return []
    names = {note.name for note in advertisements() if note.run or note.folder}
    return sorted(names & {item.name for item in frameworks})


@local.command()
@examples("local status", "local status --json")
@directory_option
@json_option
def status(directory: Path, as_json: bool) -> None:
    """Show agents, their resources, and tasks.

    Exit code: 3 no cluster is up.
    """
    cluster = find_cluster(directory)
    try:
        snapshot = cluster.state()
    except MasterUnavailableError as error:
        raise NotRunningError(str(error)) from error
    if as_json:
        echo_json(asdict(snapshot))
    else:
        print_status(snapshot)


@local.command()
@examples("local logs", "local logs agent-1 --follow")
@click.argument("name", default="master")
@directory_option
@click.option("-f", "--follow", is_flag=True, help="Print new lines until Ctrl-C, or until the cluster stops.")
def logs(name: str, directory: Path, follow: bool) -> None:
    """Print the last lines of a log.

    NAME is master (the default), the hostname of an agent, or zookeeper.
    """
    folder = directory / "logs"
    names = sorted(path.stem for path in folder.glob("*.log"))
    if not names:
        raise NotRunningError(f"no local cluster was ever started in {directory}")
    if name not in names:
        raise MesosLocalError(f"unknown log: {name!r}; expected one of {', '.join(names)}")
    with (folder / f"{name}.log").open(errors="replace") as log:
        echo("".join(log.readlines()[-_TAIL_LINES:]), nl=False)
        if follow:
            _follow(log, directory)


def _follow(log: IO[str], directory: Path) -> None:
    while True:
        record = read_record(directory)
        alive = record is not None and record.any_alive()  # checked first, so that the last lines are printed
        echo(log.read(), nl=False)
        if not alive:
            return
        time.sleep(_POLL_INTERVAL)  # the standard library cannot await a file


def find_cluster(directory: Path) -> LocalCluster:
    """Return the running cluster. Raises NotRunningError, also for a dead master."""
    try:
        cluster = LocalCluster.running(directory)
    except NodeDiedError as error:
        raise NotRunningError(str(error)) from error
    if cluster is None:
        raise NotRunningError(f"no local cluster is up in {directory}; start one with `dcos-tensorflow local up`")
    return cluster


# --- status


def print_status(snapshot: ClusterStatus, notice: str = "") -> None:
    """Print the cluster's status, with resources of disconnected schedulers."""
    addresses = (("Mesos master  http://", snapshot.master), ("ZooKeeper     ", snapshot.zookeeper))
    columns = ("agent", "cpus", "mem (MB)", "gpus", "ports", "attributes", "tasks", "state")
    tasks = list(_task_rows(snapshot))
    screen().show(
        [
            *(f"{name}{address}" for name, address in addresses if address),
            f"Containers    {'yes' if snapshot.containers else 'no'}",
            Table(columns, [_agent_row(agent, snapshot) for agent in snapshot.agents]),
            "cpus, mem, gpus: used/offered",
            *([Table(("task", "state", "agent", "framework"), tasks)] if tasks else []),
            *_orphans(snapshot),
        ]
    )
    if notice:
        echo(notice, err=True)


def _agent_row(agent: AgentStatus, snapshot: ClusterStatus) -> list[str]:
    return [
        agent.hostname,
        *(f"{_amount(agent.used.get(name))}/{_amount(agent.resources.get(name))}" for name in _AMOUNTS),
        str(agent.resources.get("ports", "")).replace(",", " "),
        " ".join(f"{name}:{value}" for name, value in agent.attributes.items()),
        str(sum(task.hostname == agent.hostname for task in snapshot.tasks)),
        "registered" if agent.active else "not reachable",
    ]


def _task_rows(snapshot: ClusterStatus) -> Iterator[list[str]]:
    frameworks = {framework.framework_id: framework for framework in snapshot.frameworks}
    for task in snapshot.tasks:
        framework = frameworks.get(task.framework_id)
        state = task.state.removeprefix("TASK_").lower()
        yield [
            task.name,
            state if framework is None or framework.connected else f"{state}, orphan",
            task.hostname,
            task.framework_id if framework is None else framework.name,
        ]


def _orphans(snapshot: ClusterStatus) -> Iterator[str]:
    for framework in snapshot.frameworks:
        if not framework.connected:
            tasks = sum(task.framework_id == framework.framework_id for task in snapshot.tasks)
            amounts = [f"{name} {_amount(framework.used[name])}" for name in _AMOUNTS if name in framework.used]
            held = ", ".join(amounts) or "nothing"
            yield (
                f"The scheduler of {framework.name} is disconnected. It holds {held} in {tasks} "
                f"{'task' if tasks == 1 else 'tasks'}; unless it reconnects, Mesos releases the resources "
                f"{framework.failover_timeout:g} s after the disconnect."
            )


def _amount(value: float | str | None) -> str:
    return f"{value or 0:g}" if not isinstance(value, str) else value
