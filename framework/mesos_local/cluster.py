"""Start, find and stop a local Mesos master, agents and optional ZooKeeper."""

from __future__ import annotations

import signal
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from .agents import AgentSpec, default_agents, with_ports
from .guard import start_guard
from .host import (
    DamagedRecordError,
    MesosLocalError,
    NodeDiedError,
    PortClaims,
    ProcessId,
    end_orphans,
    explain_os_errors,
    find_orphans,
    free_ports,
    is_marked,
    locked,
    uninterrupted,
)
from .images import forget_old_images, image_folder
from .libmesos.download import ensure_library
from .master_api import ClusterStatus, check_flags, read_status, wait_registered
from .network import GATEWAY, MAX_AGENTS, agent_address, inside, write_network_configuration
from .node import (
    ZOOKEEPER_ENVIRONMENT,
    AgentNode,
    MesosNode,
    Node,
    ZooKeeperNode,
    agent_directory,
    agent_flags,
    assign_gpus,
    container_flags,
    environment,
    helper_folder,
    is_listening,
    layers_folder,
    master_acls,
    node_command,
    normal_flags,
    write_executor_key,
    write_helpers,
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
    """End a cluster without a readable record; return whether there was one.

    `grace`: seconds between SIGTERM and SIGKILL. The folder may contain sandboxes of other programs. This function
    therefore does nothing if no local cluster has used the folder, and no process is marked with it.
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
    """Mesos cluster that runs during the block; none of its processes outlives it.

    Args:
        agents: Default: `default_agents()`.
        directory: Folder of logs and sandboxes, kept at the end; files of an earlier cluster are replaced. Default: a
            temporary folder, removed at the end.
        master_flags, agent_flags: Mesos flags by name, such as {"allocation_interval": "100ms"}.
        zookeeper: Whether to start a ZooKeeper.
        die_with_parent: End the cluster when this process exits, even by SIGKILL.
        master_port: Default: any free port.
        containers: Whether agents enforce limits, run images and have the network `dcos` (see `network`). Requires
            root rights, and an empty result of `network.missing_requirements`.
        claims: Ports that the cluster claims while it runs. The cluster adds its nodes' own.

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
        containers: bool = False,
        claims: PortClaims | None = None,
    ) -> None:
        self._settings = ClusterSettings(
            library="",
            agents=default_agents() if agents is None else with_ports(agents),
            master_flags=normal_flags(master_flags),
            agent_flags=normal_flags(agent_flags),
            zookeeper=zookeeper,
            temporary=directory is None,
            containers=containers,
        )
        if containers and len(self._settings.agents) > MAX_AGENTS:
            raise MesosLocalError(f"{len(self._settings.agents)} agents with containers; maximum: {MAX_AGENTS}")
        self._die_with_parent = die_with_parent
        self._master_port = master_port
        self._claims = claims or PortClaims()
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
        """Return the cluster; None if no node is running.

        Raises NodeDiedError if other nodes are running, but the master, ZooKeeper or the network process has exited.
        """
        record = read_record(directory)
        if record is None or not record.any_alive():
            return None
        if not {"master", "network", "zookeeper"}.isdisjoint(record.ended()):
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
    def identity(self) -> str:
        """Text that distinguishes this cluster from others in its folder."""
        return self._identity

    @property
    def specs(self) -> tuple[AgentSpec, ...]:
        return self._settings.agents

    @property
    def has_containers(self) -> bool:
        """Whether agents run tasks in containers with images, limits and addresses."""
        return self._settings.containers

    @property
    def scheduler_master(self) -> str:
        """The master's "IP:PORT" for schedulers in the network of `network_process`."""
        return self._inner_address("master", self.master.address)

    @property
    def network_process(self) -> int:
        """Id of the process whose network schedulers use; 0: this machine's network."""
        return self.network.pid if self.has_containers else 0

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
    def network(self) -> Node:
        """The process that holds the namespaces of a cluster with containers."""
        return self._nodes["network"]

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
            clear_directory(directory, self._settings.containers)
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
        network = ["network"] if self._settings.containers else []
        names = ["master", *zookeeper, *network, *(spec.hostname for spec in self._settings.agents)]
        ports = free_ports(len(names), self._claims)
        ports[0] = self._master_port or ports[0]
        return {name: f"127.0.0.1:{port}" for name, port in zip(names, ports, strict=True)}

    def _make_nodes(self, addresses: Mapping[str, str]) -> None:
        directory, settings = self.directory, self._settings

        def add(kind: type[Node], name: str, command: Callable[[], list[str]], variables: Mapping[str, str]) -> None:
            log = directory / "logs" / f"{name}.log"
            self._nodes[name] = kind(name, addresses[name], log, command, variables, self._write_record, self._claims)

        def add_mesos(kind: type[Node], name: str, flags: Mapping[str, str], *arguments: str) -> None:
            listen = self._inner_address(name, addresses[name])
            command = partial(self._inside, "" if name == "master" else name, partial(node_command, *arguments))
            add(kind, name, command, environment(directory, listen, flags))

        if settings.zookeeper:
            address = self._inner_address("zookeeper", addresses["zookeeper"])
            command = partial(self._inside, "", partial(zookeeper_command, directory / "zookeeper", address))
            add(ZooKeeperNode, "zookeeper", command, environment(directory) | ZOOKEEPER_ENVIRONMENT)
        if settings.containers:
            ports = [f"{name}={addresses[name].rpartition(':')[2]}" for name in self._inner_hosts()]
            ready = addresses["network"].rpartition(":")[2]
            command = partial(node_command, "network", str(directory), ready, *ports)
            add(Node, "network", command, environment(directory))
        own = {"hostname": "127.0.0.1"} if settings.containers else {}
        defaults = {"cluster": "local", "acls": master_acls(), **own}
        flags = {**defaults, **settings.master_flags, "work_dir": str(directory / "master")}
        add_mesos(MesosNode, "master", flags, "master", settings.library)
        master, gpus = self._inner_address("master", addresses["master"]), assign_gpus(settings.agents)
        for spec in settings.agents:
            devices = gpus.get(spec.hostname)
            own = container_flags(directory, spec.hostname, image_folder(), devices) if settings.containers else {}
            flags = agent_flags(directory, helper_folder(directory), spec, {**own, **settings.agent_flags})
            add_mesos(AgentNode, spec.hostname, flags, "agent", settings.library, master)

    def _inner_hosts(self) -> dict[str, str]:
        """Return the IP address of each node in the namespaces, by name."""
        agents = enumerate((spec.hostname for spec in self._settings.agents), 1)
        gateway = ("master", "zookeeper") if self._settings.zookeeper else ("master",)
        return {**dict.fromkeys(gateway, GATEWAY), **{name: agent_address(number) for number, name in agents}}

    def _inner_address(self, name: str, address: str) -> str:
        """Return the "IP:PORT" at which a node listens, if possible in the namespaces."""
        return f"{self._inner_hosts()[name]}:{address.rpartition(':')[2]}" if self.has_containers else address

    def _inside(self, name: str, command: Callable[[], list[str]]) -> list[str]:
        """Prefix a node's command to run in the namespaces, if any. `name`: of an agent."""
        return [*inside(self.network.pid, name), *command()] if self.has_containers else command()

    def _write_record(self) -> None:
        nodes = {node.name: NodeRecord(node.address, node.process) for node in self.nodes}
        ClusterRecord(self._settings, nodes, self._guard, self._identity).write(self.directory)

    def _start_nodes(self) -> None:
        self._write_record()
        if self._die_with_parent:
            self._guard = start_guard(self.directory, self._identity, self._settings.temporary)
            self._write_record()
        if self.has_containers:
            for number, spec in enumerate(self._settings.agents, 1):
                write_network_configuration(agent_directory(self.directory, spec.hostname), number)
                forget_old_images(layers_folder(self.directory, spec.hostname))
            self.network.start()
        for node in self.nodes:
            if node.process is None:
                node.launch()
        for node in self.nodes:
            node.wait_ready()
        self.wait_registered()
        check_flags(self.master, self._settings.master_flags)
        for agent in self.agents.values():
            check_flags(agent, self._settings.agent_flags)

    def wait_registered(self, timeout: float = 60.0) -> None:
        """Wait until all running agents have registered with the present master process.

        A registration from before an agent's last start does not count. Raises MesosLocalError with the end of a log
        if a node exits, or after `timeout` seconds.
        """
        wait_registered(self.master.address, self.nodes, timeout)

    def state(self) -> ClusterStatus:
        """Return the cluster's state from the master. Raises MasterUnavailableError."""
        zookeeper = self.zookeeper.address if self._settings.zookeeper else None
        return replace(read_status(self.master.address, zookeeper), containers=self.has_containers)

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
            self._claims.close()
            self._directory, self._nodes, self._guard = None, {}, None
