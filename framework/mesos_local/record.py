"""cluster.json: what runs in a directory, so that another process can find it and end it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .agents import AgentSpec, check_agents
from .errors import DamagedRecordError, MesosLocalError
from .process import ProcessId
from .telling import reason

NAME = "cluster.json"
_VERSION = 1


def down_command(directory: Path) -> str:
    """What a person runs to end whatever is left of the cluster there."""
    return f"dcos-tensorflow local down --dir {shlex.quote(str(directory))}"


@dataclass(frozen=True, slots=True)
class Settings:
    """How a cluster is set up. `library`: path of libmesos. `temporary`: the folder goes when the cluster ends."""

    library: str
    agents: tuple[AgentSpec, ...]
    master_flags: Mapping[str, str]
    agent_flags: Mapping[str, str]
    zookeeper: bool
    temporary: bool


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """One node: its "IP:PORT", and its process if it was started and nobody has ended it."""

    address: str
    process: ProcessId | None

    def alive(self) -> bool:
        """Whether it runs."""
        return self.process is not None and self.process.alive()


@dataclass(frozen=True, slots=True)
class Record:
    """A cluster and the processes that are its own. `guard`: see guard.py.

    `identity` tells it from another cluster in the same directory, before it or after it.
    """

    settings: Settings
    nodes: Mapping[str, NodeRecord]
    guard: ProcessId | None = None
    identity: str = ""

    def any_alive(self) -> bool:
        """Whether one of its nodes still runs."""
        return any(node.alive() for node in self.nodes.values())

    def ended(self) -> list[str]:
        """Names of the nodes that have ended though nobody asked for that."""
        return [name for name, node in self.nodes.items() if node.process is not None and not node.process.alive()]

    def broken(self, directory: Path) -> str:
        """What to say of a cluster with `ended` nodes."""
        alive = [name for name, node in self.nodes.items() if node.alive()]
        return (
            f"Of the local cluster in {directory} {_listed(self.ended(), 'has ended', 'have ended')}, and "
            f"{_listed(alive, 'still runs', 'still run')}. End it first: {down_command(directory)}"
        )

    def write(self, directory: Path) -> None:
        """Whole or not at all."""
        temporary = directory / f".{NAME}.new"
        temporary.write_text(json.dumps({"version": _VERSION, **asdict(self)}, indent=1))
        temporary.replace(directory / NAME)


def _listed(names: list[str], one: str, several: str) -> str:
    return f"{', '.join(names)} {one if len(names) == 1 else several}"


def read_record(directory: Path) -> Record | None:
    """None if no cluster is recorded there. Raises DamagedRecordError if the record cannot be understood."""
    path = directory / NAME
    try:
        return _parse(json.loads(path.read_bytes()))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise MesosLocalError(f"{path} cannot be read: {reason(error, path)}") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, MesosLocalError) as error:
        raise DamagedRecordError(
            f"{path} is damaged, or another version of this program wrote it ({type(error).__name__}). "
            f"End whatever is left of that cluster with: {down_command(directory)}"
        ) from error


def belongs_to(directory: Path, identity: str) -> bool:
    """False if what is recorded there is another cluster; with no record, or a damaged one, it may be this one."""
    try:
        record = read_record(directory)
    except MesosLocalError:
        return True
    return record is None or record.identity == identity


def _parse(content: dict[str, Any]) -> Record:
    if content["version"] != _VERSION:
        raise ValueError(content["version"])
    settings = _parse_settings(content["settings"])
    nodes = {name: _parse_node(node) for name, node in content["nodes"].items()}
    expected = {"master", *(agent.hostname for agent in settings.agents)} | (
        {"zookeeper"} if settings.zookeeper else set()
    )
    if expected != set(nodes):
        raise ValueError(f"nodes {sorted(nodes)}")
    return Record(settings, nodes, _process(content["guard"]), _text(content.get("identity", "")))


def _parse_settings(content: dict[str, Any]) -> Settings:
    agents = tuple(AgentSpec(**agent) for agent in content["agents"])
    if errors := check_agents(agents):
        raise ValueError(errors)
    return Settings(
        library=_text(content["library"]),
        agents=agents,
        master_flags={name: _text(value) for name, value in content["master_flags"].items()},
        agent_flags={name: _text(value) for name, value in content["agent_flags"].items()},
        zookeeper=bool(content["zookeeper"]),
        temporary=bool(content["temporary"]),
    )


def _parse_node(content: dict[str, Any]) -> NodeRecord:
    address = _text(content["address"])
    int(address.rpartition(":")[2])  # raises ValueError
    return NodeRecord(address, _process(content["process"]))


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value


def _process(content: Mapping[str, int] | None) -> ProcessId | None:
    return ProcessId(int(content["pid"]), int(content["start_time"])) if content else None
