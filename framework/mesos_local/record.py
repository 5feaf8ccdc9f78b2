"""Folder and cluster.json of a local cluster: create, write, read and remove."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .agents import AgentSpec, check_agents
from .host import DamagedRecordError, MesosLocalError, NodeDiedError, ProcessId, explain_os_errors, os_error_text
from .network import remove_cgroups
from .node import remove_helpers

NAME = "cluster.json"
_VERSION = 1


def down_command(directory: Path) -> str:
    """Return the command that ends the cluster in `directory`."""
    return f"dcos-tensorflow local down --dir {shlex.quote(str(directory))}"


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """Recorded settings of a cluster. `library`: path of libmesos.

    `temporary`: the folder is removed with the cluster. `containers`: see LocalCluster.
    """

    library: str
    agents: tuple[AgentSpec, ...]
    master_flags: Mapping[str, str]
    agent_flags: Mapping[str, str]
    zookeeper: bool
    temporary: bool
    containers: bool = False


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """A node's "IP:PORT" and process; None before its start and after its stop."""

    address: str
    process: ProcessId | None

    def alive(self) -> bool:
        return self.process is not None and self.process.alive()


@dataclass(frozen=True, slots=True)
class ClusterRecord:
    """Settings and processes of a cluster. `guard`: see guard.py.

    `identity` distinguishes this cluster from earlier and later clusters in the same directory.
    """

    settings: ClusterSettings
    nodes: Mapping[str, NodeRecord]
    guard: ProcessId | None = None
    identity: str = ""

    def any_alive(self) -> bool:
        return any(node.alive() for node in self.nodes.values())

    def ended(self) -> list[str]:
        """Return the names of nodes that exited unexpectedly."""
        return [name for name, node in self.nodes.items() if node.process is not None and not node.process.alive()]

    def broken(self, directory: Path) -> str:
        """Return the error message for a cluster some of whose nodes have `ended`."""
        alive = [name for name, node in self.nodes.items() if node.alive()]
        return (
            f"local cluster in {directory} is incomplete: exited: {', '.join(self.ended())}; "
            f"running: {', '.join(alive)}; stop it first: {down_command(directory)}"
        )

    def write(self, directory: Path) -> None:
        """Write the record atomically."""
        temporary = directory / f".{NAME}.new"
        temporary.write_text(json.dumps({"version": _VERSION, **asdict(self)}, indent=1))
        temporary.replace(directory / NAME)


def read_record(directory: Path) -> ClusterRecord | None:
    """Return the record; None without one. Raises DamagedRecordError if invalid."""
    path = directory / NAME
    try:
        content = json.loads(path.read_bytes())
        if content["version"] != _VERSION:
            raise ValueError(content["version"])
        settings = _parse_settings(content["settings"])
        nodes = {name: _parse_node(node) for name, node in content["nodes"].items()}
        optional = [*(["zookeeper"] if settings.zookeeper else []), *(["network"] if settings.containers else [])]
        if set(nodes) != {"master", *optional, *(agent.hostname for agent in settings.agents)}:
            raise ValueError(f"nodes {sorted(nodes)}")
        return ClusterRecord(settings, nodes, _process(content["guard"]), _text(content.get("identity", "")))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise MesosLocalError(f"{path} cannot be read: {os_error_text(error, path)}") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, MesosLocalError) as error:
        raise DamagedRecordError(
            f"{path} is damaged, or another version of this program wrote it ({type(error).__name__}); "
            f"stop that cluster with: {down_command(directory)}"
        ) from error


def belongs_to(directory: Path, identity: str) -> bool:
    """Whether the record is this cluster's; also True without a valid record."""
    try:
        record = read_record(directory)
    except MesosLocalError:
        return True
    return record is None or record.identity == identity


def _parse_settings(content: dict[str, Any]) -> ClusterSettings:
    agents = tuple(AgentSpec(**agent) for agent in content["agents"])
    if errors := check_agents(agents):
        raise ValueError(errors)
    return ClusterSettings(
        library=_text(content["library"]),
        agents=agents,
        master_flags={name: _text(value) for name, value in content["master_flags"].items()},
        agent_flags={name: _text(value) for name, value in content["agent_flags"].items()},
        zookeeper=bool(content["zookeeper"]),
        temporary=bool(content["temporary"]),
        containers=bool(content.get("containers", False)),
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


LOCK = "lock"
_LAST = "last-cluster"  # marks a folder of an ended cluster, whose files may be replaced
_FOLDERS = ("agents", "libexec", "logs", "master", "network", "services", "zookeeper")
_PREFIX = "mesos-local-"


def make_directory(requested: Path | None) -> Path:
    """Create and return the real path of a folder. Raises MesosLocalError."""
    where = requested or Path(tempfile.gettempdir())
    if not str(where.absolute()).isprintable():  # ZooKeeper's configuration is line-based
        raise MesosLocalError(f"{str(where)!r} cannot be used: the path contains unprintable characters")
    with explain_os_errors("folder", where):
        if where.is_file():
            raise MesosLocalError(f"folder {where} cannot be used: it is a file")
        if requested is not None:
            requested.mkdir(parents=True, exist_ok=True)
            return requested.resolve()
        directory = Path(tempfile.mkdtemp(prefix=_PREFIX)).resolve()
        directory.chmod(0o755)  # tasks may run as another user
        return directory


def is_temporary(directory: Path) -> bool:
    """Whether the name is that of a temporary folder; for folders without a record."""
    home = Path(tempfile.gettempdir()).resolve()
    return directory.name.startswith(_PREFIX) and directory.resolve().parent == home


def has_been_used(directory: Path) -> bool:
    """Whether a local cluster is, or was, in this directory."""
    return (directory / _LAST).exists() or (directory / NAME).exists()


def clear_directory(directory: Path, containers: bool = False) -> None:
    """Remove an earlier cluster's files; create `logs`. The caller must hold LOCK.

    `containers`: whether the new cluster has containers. Raises MesosLocalError if a cluster is running in the folder,
    or if the folder contains files of another program.
    """
    with explain_os_errors("folder", directory):
        if not has_been_used(directory) and any(entry.name != LOCK for entry in directory.iterdir()):
            raise MesosLocalError(f"{directory} is not empty, and its files are not from a local cluster")
        check_unoccupied(directory, containers)
        remove_helpers(directory)
        for name in _FOLDERS:
            shutil.rmtree(directory / name, ignore_errors=True)
        (directory / "logs").mkdir(mode=0o700)


def check_unoccupied(directory: Path, containers: bool = False) -> None:
    """Raise MesosLocalError if a cluster is running in the folder."""
    record = read_record(directory)
    if record is None or not record.any_alive():
        return
    if record.ended():
        raise NodeDiedError(record.broken(directory))
    master = record.nodes["master"].address
    lacks = containers and not record.settings.containers
    remedy = f"; it has no containers; stop it first: {down_command(directory)}" if lacks else ""
    raise MesosLocalError(f"a local cluster already runs in {directory} (master {master}){remedy}")


def release_directory(directory: Path, temporary: bool) -> None:
    """Remove a temporary directory; of any other directory, remove only the record."""
    if not directory.exists():
        return
    remove_helpers(directory)
    remove_cgroups(directory)
    if temporary:
        shutil.rmtree(directory, ignore_errors=True)
        if directory.exists():  # a task has closed a folder to its owner
            for at, folders, _ in os.walk(directory):
                for path in (Path(at, name) for name in folders):
                    if not path.is_symlink():
                        path.chmod(0o700)
            shutil.rmtree(directory, ignore_errors=True)
        if directory.exists():
            raise MesosLocalError(f"folder {directory} cannot be removed")
    else:
        with explain_os_errors("folder", directory):
            (directory / _LAST).touch()
            (directory / NAME).unlink(missing_ok=True)
