"""LocalCluster: one real master, real agents and, if wanted, a real ZooKeeper, on loopback."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from . import commands
from .agents import AgentSpec, default_agents, with_ports
from .artefact import ensure_library
from .ending import end_nodes, end_unrecorded
from .errors import DamagedRecordError, MesosLocalError, NodeDiedError
from .folder import LOCK, clear_directory, make_directory, release_directory
from .guard import start_guard
from .helpers import write_helpers
from .lock import locked
from .members import AgentNode, Node
from .process import ProcessId
from .record import NodeRecord, Record, Settings, belongs_to, read_record
from .registration import check_flags, wait_registered
from .roster import Roster, choose_addresses
from .signals import uninterrupted
from .status import ClusterStatus, read_status
from .telling import telling

_NODE_GRACE = 5.0  # seconds between SIGTERM and SIGKILL
_CONTAINER_GRACE = 3.0  # seconds between SIGTERM and SIGKILL for what agents leave behind


class LocalCluster:
    """A context manager: all agents have registered inside, nothing is left afterwards.

    `agents`: default, see default_agents(). `directory`: where everything is kept, also afterwards (logs and sandboxes
    may be wanted); what an earlier cluster left there is replaced. Default: a temporary one, removed at the end.
    `master_flags`, `agent_flags`: Mesos flags by name, e.g. {"allocation_interval": "100ms"}. `zookeeper`: start one
    too. `die_with_parent`: everything ends when this process does, even by SIGKILL. `master_port`: default, any free.
    What goes wrong raises MesosLocalError.
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
        self._settings = Settings(
            library="",
            agents=default_agents() if agents is None else with_ports(agents),
            master_flags=commands.normal_flags(master_flags),
            agent_flags=commands.normal_flags(agent_flags),
            zookeeper=zookeeper,
            temporary=directory is None,
        )
        self._die_with_parent = die_with_parent
        self._master_port = master_port
        self._given = directory
        self._directory: Path | None = None
        self._roster: Roster | None = None
        self._guard: ProcessId | None = None
        self._identity = uuid.uuid4().hex

    @classmethod
    def attach(cls, directory: Path) -> LocalCluster | None:
        """The cluster that another process started in `directory`; None if none is recorded there.

        Raises DamagedRecordError.
        """
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
        """The same, but None as well if none of its nodes is alive. Raises NodeDiedError if its agents are alone."""
        record = read_record(directory)
        if record is None or not record.any_alive():
            return None
        if not {"master", "zookeeper"}.isdisjoint(record.ended()):
            raise NodeDiedError(record.broken(directory))
        return cls.attach(directory)

    @classmethod
    def end(cls, directory: Path) -> bool:
        """End whatever is left of a cluster in `directory`, with a record or without; False if nothing was there."""
        try:
            cluster = cls.attach(directory)
        except DamagedRecordError:
            cluster = None
        if cluster is None:
            return end_unrecorded(directory, _CONTAINER_GRACE)
        cluster.stop()
        return True

    @property
    def directory(self) -> Path:
        """Where everything is kept."""
        if self._directory is None:
            raise MesosLocalError("The local cluster has not been started.")
        return self._directory

    @property
    def specs(self) -> tuple[AgentSpec, ...]:
        """What the agents offer, ports filled in."""
        return self._settings.agents

    @property
    def nodes(self) -> Roster:
        """ZooKeeper if there is one, master, agents."""
        if self._roster is None:
            raise MesosLocalError("The local cluster has not been started.")
        return self._roster

    @property
    def master(self) -> Node:
        """The master."""
        return self.nodes.master

    @property
    def agents(self) -> Mapping[str, AgentNode]:
        """The agents by hostname."""
        return self.nodes.agents

    @property
    def zookeeper(self) -> Node:
        """The ZooKeeper server, if the cluster was made with `zookeeper=True`."""
        if self.nodes.zookeeper is None:
            raise MesosLocalError("This local cluster has no ZooKeeper: it was not asked for.")
        return self.nodes.zookeeper

    def __enter__(self) -> LocalCluster:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start all and wait until the agents have registered. If that fails, or is interrupted, nothing is left."""
        library = ensure_library()
        directory = make_directory(self._given)
        with telling("The folder", directory), locked(directory / LOCK):
            clear_directory(directory)
            self._directory = directory
            self._start_in_directory(library)

    def _start_in_directory(self, library: Path) -> None:
        try:
            write_helpers(self.directory, library)
            self._settings = replace(self._settings, library=str(library))
            self._make_nodes(choose_addresses(self._settings, self._master_port))
            self._start_nodes()
        except BaseException:
            self.stop()
            raise

    def _make_nodes(self, addresses: Mapping[str, str]) -> None:
        self._roster = Roster(self.directory, self._settings, addresses, self._write_record)

    def _write_record(self) -> None:
        nodes = {node.name: NodeRecord(node.address, node.process) for node in self.nodes}
        Record(self._settings, nodes, self._guard, self._identity).write(self.directory)

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
        """Wait until every agent that runs has registered since it, or the master, was last started.

        Raises MesosLocalError with the end of a log if a node ends meanwhile, or after `timeout` seconds.
        """
        wait_registered(self.master.address, self.nodes, timeout)

    def state(self) -> ClusterStatus:
        """What the agents offer, what is used, which tasks run. Raises MasterUnavailableError."""
        zookeeper = self.nodes.zookeeper
        return read_status(self.master.address, zookeeper.address if zookeeper else None)

    def sandbox(self, agent_id: str, framework_id: str, executor_id: str) -> Path:
        """The folder of an executor's latest run, where its stdout and stderr are."""
        for run in self._runs(f"{agent_id}/frameworks/{framework_id}/executors/{executor_id}"):
            return run
        raise MesosLocalError(f"Agent {agent_id} has no sandbox of executor {executor_id} of framework {framework_id}.")

    def sandboxes(self, framework_id: str) -> Mapping[str, Path]:
        """Those of every executor of a framework that agents still keep, by its id; the oldest is first."""
        found = sorted(self._runs(f"*/frameworks/{framework_id}/executors/*"), key=lambda run: run.lstat().st_mtime_ns)
        return {run.parents[1].name: run for run in found}

    def _runs(self, pattern: str) -> Iterator[Path]:
        for name in self.agents:
            work = commands.agent_directory(self.directory, name) / "agents" / "0" / "work"
            yield from (run for run in work.glob(f"slaves/{pattern}/runs/latest") if run.exists())

    def stop(self) -> None:
        """End every process of this cluster, a temporary folder too, and prove it. May be called again.

        Ctrl-C and SIGTERM wait until it is through. Raises MesosLocalError if a process, a port or the folder is left.
        """
        with uninterrupted():
            if self._directory is None:
                return
            if belongs_to(self._directory, self._identity):
                end_nodes(self._directory, self._roster or (), _NODE_GRACE, _CONTAINER_GRACE, self._guard)
                release_directory(self._directory, self._settings.temporary)
            # Last: whatever ends us before, the guard does the rest.
            if self._guard is not None:
                self._guard.end(0)
            self._directory, self._roster, self._guard = None, None, None
