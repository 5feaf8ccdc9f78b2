"""Start, find and stop a local Mesos master, agents and optional ZooKeeper."""

from __future__ import annotations

import signal
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from .agents import AgentSpec, default_agents, with_ports
from .helper_main import start_guard
from .host.errors import DamagedRecordError, MesosLocalError, NodeDiedError, explain_os_errors
from .host.orphans import end_orphans, find_orphans, is_marked
from .host.process import ProcessId, free_ports, locked, uninterrupted
from .launcher_dir import helper_folder, write_helpers
from .libmesos.download import ensure_library
from .master_api import ClusterStatus, check_flags, read_status, wait_registered
from .node import (
    ZOOKEEPER_ENVIRONMENT,
    AgentNode,
    Node,
    ZooKeeperNode,
    agent_directory,
    agent_flags,
    environment,
    is_listening,
    node_command,
    normal_flags,
    write_executor_key,
    zookeeper_command,
)
from .record import (
    LOCK,
    NAME,
    ClusterRecord,
    ClusterSettings,
    NodeRecord,
    belongs_to,
    clear_directory,
    has_been_used,
    is_temporary,
    make_directory,
    read_record,
    release_directory,
)


def end_nodes(directory: Path, nodes: Iterable[Node], node_grace: float, grace: float, guard: ProcessId | None) -> None:
    """End the nodes, then all other processes of the cluster except its guard.

    `node_grace`, `grace`: seconds from SIGTERM to SIGKILL. Raises MesosLocalError if a process or port remains.
    """
    started = {node.address: node.process for node in nodes if node.process is not None}
    for process in started.values():
        process.signal(signal.SIGTERM)
    for process in started.values():
        process.end(node_grace)
    end_orphans(directory, grace, spare=guard)
    if left := [address for address in started if is_listening(address)]:
        raise MesosLocalError(f"ports of the local cluster are still in use: {', '.join(left)}")


def end_unrecorded_cluster(directory: Path, grace: float) -> bool:
    """End a cluster without a readable record; return whether processes existed.

    `grace`: seconds between SIGTERM and SIGKILL. Does nothing in a folder that no local cluster has used and no process
    is marked with: it may contain sandboxes of other programs.
    """
    with uninterrupted():
        recorded = (directory / NAME).exists()
        if not recorded and not has_been_used(directory) and not is_marked(directory):
            return False
        if not recorded and not find_orphans(directory):
            return False
        end_orphans(directory, grace)
        release_directory(directory, is_temporary(directory))
        return True


_NODE_GRACE = 5.0  # seconds between SIGTERM and SIGKILL
_CONTAINER_GRACE = 3.0  # the same for processes that agents leave behind


class LocalCluster:
    """Mesos cluster whose agents are registered in the block; no process outlives it.

    Args:
        agents: Default: `default_agents()`.
        directory: Folder of logs and sandboxes, kept at the end; files of an earlier cluster are replaced. Default: a
            temporary folder, removed at the end.
        master_flags, agent_flags: Mesos flags by name, such as {"allocation_interval": "100ms"}.
        zookeeper: Whether to start a ZooKeeper.
        die_with_parent: End the cluster when this process exits, even by SIGKILL.
        master_port: Default: any free port.

    Errors are MesosLocalError.
    """

    def __init__(
        self,
        agents: Sequence[AgentSpec] | None = None,
        directory: Path | None = None,
        master_flags: Mapping[str, object] | None = None,
        agent_flags: Mapping[str, object] | None = None,
        zookeeper: bool = False,
        die_with_parent: bool = False,
        master_port: int | None = None,
    ) -> None:
        self._settings = ClusterSettings(
            library="",
            agents=default_agents() if agents is None else with_ports(agents),
            master_flags=normal_flags(master_flags),
            agent_flags=normal_flags(agent_flags),
            zookeeper=zookeeper,
            temporary=directory is None,
        )
        self._die_with_parent = die_with_parent
        self._master_port = master_port
        self._requested_directory = directory
        self._directory: Path | None = None
        self._nodes: dict[str, Node] = {}
        self._guard: ProcessId | None = None
        self._identity = uuid.uuid4().hex

    @classmethod
    def attach(cls, directory: Path) -> LocalCluster | None:
        """Return the recorded cluster; None without one. Raises DamagedRecordError."""
        record = read_record(directory)
        if record is None:
            return None
        cluster = cls(record.settings.agents)
        cluster._directory, cluster._settings, cluster._guard = directory.resolve(), record.settings, record.guard
        cluster._identity = record.identity
        cluster._make_nodes({name: node.address for name, node in record.nodes.items()})
        for node in cluster.nodes:
            node.process = record.nodes[node.name].process
        return cluster

    @classmethod
    def running(cls, directory: Path) -> LocalCluster | None:
        """Return the cluster; None if no node lives. Raises NodeDiedError without master."""
        record = read_record(directory)
        if record is None or not record.any_alive():
            return None
        if not {"master", "zookeeper"}.isdisjoint(record.ended()):
            raise NodeDiedError(record.broken(directory))
        return cls.attach(directory)

    @classmethod
    def end(cls, directory: Path) -> bool:
        """End the cluster, even without a valid record; return whether there was one."""
        try:
            cluster = cls.attach(directory)
        except DamagedRecordError:
            cluster = None
        if cluster is None:
            return end_unrecorded_cluster(directory, _CONTAINER_GRACE)
        cluster.stop()
        return True

    @property
    def directory(self) -> Path:
        """Folder of the running cluster."""
        if self._directory is None:
            raise MesosLocalError("the local cluster has not been started")
        return self._directory

    @property
    def specs(self) -> tuple[AgentSpec, ...]:
        return self._settings.agents

    @property
    def nodes(self) -> tuple[Node, ...]:
        """All nodes: ZooKeeper (if any), master, agents."""
        if not self._nodes:
            raise MesosLocalError("the local cluster has not been started")
        return tuple(self._nodes.values())

    @property
    def master(self) -> Node:
        return {node.name: node for node in self.nodes}["master"]

    @property
    def agents(self) -> Mapping[str, AgentNode]:
        return {node.name: node for node in self.nodes if isinstance(node, AgentNode)}

    @property
    def zookeeper(self) -> Node:
        """The ZooKeeper server, if the cluster was made with `zookeeper=True`."""
        if not self._settings.zookeeper:
            raise MesosLocalError("the local cluster was started without ZooKeeper")
        return self.nodes[0]

    def __enter__(self) -> LocalCluster:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start all nodes and await all agents; end all after an error or interrupt."""
        library = ensure_library()
        directory = make_directory(self._requested_directory)
        with explain_os_errors("folder", directory), locked(directory / LOCK):
            clear_directory(directory)
            self._directory = directory
            try:
                write_helpers(directory, library)
                write_executor_key(directory)
                self._settings = replace(self._settings, library=str(library))
                self._make_nodes(self._choose_addresses())
                self._start_nodes()
            except BaseException:
                self.stop()
                raise

    def _choose_addresses(self) -> dict[str, str]:
        """Return a free "IP:PORT" for each node, by name."""
        zookeeper = ["zookeeper"] if self._settings.zookeeper else []
        names = ["master", *zookeeper, *(spec.hostname for spec in self._settings.agents)]
        ports = free_ports(len(names))
        ports[0] = self._master_port or ports[0]
        return {name: f"127.0.0.1:{port}" for name, port in zip(names, ports, strict=True)}

    def _make_nodes(self, addresses: Mapping[str, str]) -> None:
        directory, settings = self.directory, self._settings

        def add(kind: type[Node], name: str, command: Callable[[], list[str]], variables: Mapping[str, str]) -> None:
            log = directory / "logs" / f"{name}.log"
            self._nodes[name] = kind(name, addresses[name], log, command, variables, self._write_record)

        def add_mesos(kind: type[Node], name: str, flags: Mapping[str, str], *arguments: str) -> None:
            add(kind, name, partial(node_command, *arguments), environment(directory, addresses[name], flags))

        if settings.zookeeper:
            command = partial(zookeeper_command, directory / "zookeeper", addresses["zookeeper"])
            add(ZooKeeperNode, "zookeeper", command, environment(directory) | ZOOKEEPER_ENVIRONMENT)
        flags = {"cluster": "local", **settings.master_flags, "work_dir": str(directory / "master")}
        add_mesos(Node, "master", flags, "master", settings.library)
        for spec in settings.agents:
            flags = agent_flags(directory, helper_folder(directory), spec, settings.agent_flags)
            add_mesos(AgentNode, spec.hostname, flags, "agent", settings.library, addresses["master"])

    def _write_record(self) -> None:
        nodes = {node.name: NodeRecord(node.address, node.process) for node in self.nodes}
        ClusterRecord(self._settings, nodes, self._guard, self._identity).write(self.directory)

    def _start_nodes(self) -> None:
        self._write_record()
        if self._die_with_parent:
            self._guard = start_guard(self.directory, self._identity, self._settings.temporary)
            self._write_record()
        for node in self.nodes:
            node.launch()
        for node in self.nodes:
            node.wait_ready()
        self.wait_registered()
        check_flags(self.master, self._settings.master_flags)
        for agent in self.agents.values():
            check_flags(agent, self._settings.agent_flags)

    def wait_registered(self, timeout: float = 60.0) -> None:
        """Wait until agents have registered since their last start or the master's.

        Raises MesosLocalError with the end of a log if a node exits, or after `timeout` seconds.
        """
        wait_registered(self.master.address, self.nodes, timeout)

    def state(self) -> ClusterStatus:
        """Return the cluster's state from the master. Raises MasterUnavailableError."""
        return read_status(self.master.address, self.zookeeper.address if self._settings.zookeeper else None)

    def sandbox(self, agent_id: str, framework_id: str, executor_id: str) -> Path:
        """Return the folder of an executor's latest run, with its stdout and stderr."""
        for run in self._runs(f"{agent_id}/frameworks/{framework_id}/executors/{executor_id}"):
            return run
        raise MesosLocalError(f"agent {agent_id} has no sandbox of executor {executor_id} (framework {framework_id})")

    def sandboxes(self, framework_id: str) -> Mapping[str, Path]:
        """Return the remaining sandboxes of a framework by executor id, oldest first."""
        runs = sorted(self._runs(f"*/frameworks/{framework_id}/executors/*"), key=lambda run: run.lstat().st_mtime_ns)
        return {run.parents[1].name: run for run in runs}

    def _runs(self, pattern: str) -> Iterator[Path]:
        for name in self.agents:
            work = agent_directory(self.directory, name) / "agents" / "0" / "work"
            yield from (run for run in work.glob(f"slaves/{pattern}/runs/latest") if run.exists())

    def stop(self) -> None:
        """End all processes and remove a temporary folder. May be called again.

        Defers Ctrl-C and SIGTERM. Raises MesosLocalError if a process, a port or the folder remains.
        """
        with uninterrupted():
            if self._directory is None:
                return
            if belongs_to(self._directory, self._identity):
                end_nodes(self._directory, self._nodes.values(), _NODE_GRACE, _CONTAINER_GRACE, self._guard)
                release_directory(self._directory, self._settings.temporary)
            # Last, so that the guard finishes the work if this process is killed.
            if self._guard is not None:
                self._guard.end(0)
            self._directory, self._nodes, self._guard = None, {}, None
