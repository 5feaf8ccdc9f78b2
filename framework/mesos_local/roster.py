"""Builds the nodes of a cluster from its settings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from . import commands
from .agents import AgentSpec
from .helpers import launcher_dir
from .members import AgentNode, Node
from .ports import free_ports
from .record import Settings
from .zookeeper import ENVIRONMENT, ZooKeeperNode, zookeeper_command

AnyNode = TypeVar("AnyNode", bound=Node)


def choose_addresses(settings: Settings, master_port: int | None) -> dict[str, str]:
    """A free "IP:PORT" for each node, by name. `master_port`: None for any."""
    names = ["master", *(["zookeeper"] if settings.zookeeper else []), *(spec.hostname for spec in settings.agents)]
    ports = free_ports(len(names))
    ports[0] = master_port or ports[0]
    return {name: f"127.0.0.1:{port}" for name, port in zip(names, ports, strict=True)}


class Roster:
    """The nodes of one cluster, none started; `addresses` gives each its "IP:PORT" by name."""

    def __init__(
        self, directory: Path, settings: Settings, addresses: Mapping[str, str], changed: Callable[[], None]
    ) -> None:
        self._directory, self._settings, self._addresses, self._changed = directory, settings, addresses, changed
        self.zookeeper = self._zookeeper() if settings.zookeeper else None
        self.master = self._master()
        self.agents = {spec.hostname: self._agent(spec) for spec in settings.agents}

    def __iter__(self) -> Iterator[Node]:
        """ZooKeeper, master, agents."""
        if self.zookeeper:
            yield self.zookeeper
        yield self.master
        yield from self.agents.values()

    def _zookeeper(self) -> Node:
        command = partial(zookeeper_command, self._directory / "zookeeper", self._addresses["zookeeper"])
        environment = commands.environment(self._directory) | ENVIRONMENT
        return self._node(ZooKeeperNode, "zookeeper", command, environment)

    def _master(self) -> Node:
        command = partial(commands.node_command, "master", self._settings.library)
        flags = commands.master_flags(self._directory, self._settings.master_flags)
        return self._mesos(Node, "master", command, flags)

    def _agent(self, spec: AgentSpec) -> AgentNode:
        command = partial(commands.node_command, "agent", self._settings.library, self._addresses["master"])
        flags = commands.agent_flags(self._directory, launcher_dir(self._directory), spec, self._settings.agent_flags)
        return self._mesos(AgentNode, spec.hostname, command, flags)

    def _mesos(
        self, kind: type[AnyNode], name: str, command: Callable[[], Sequence[str]], flags: Mapping[str, str]
    ) -> AnyNode:
        return self._node(kind, name, command, commands.environment(self._directory, self._addresses[name], flags))

    def _node(
        self, kind: type[AnyNode], name: str, command: Callable[[], Sequence[str]], environment: Mapping[str, str]
    ) -> AnyNode:
        log = self._directory / "logs" / f"{name}.log"
        return kind(name, self._addresses[name], log, command, environment, self._changed)
