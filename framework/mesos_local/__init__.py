"""A real Apache Mesos (and ZooKeeper) on this machine.

Names are imported on first use: the agent runs our helpers for every container, and they pay for this file each time.
"""

from __future__ import annotations

TYPE_CHECKING = False  # type checkers know the name; the module typing is slow to import
if TYPE_CHECKING:
    from .agents import AgentSpec, default_agents, with_ports
    from .agents_file import load_agents
    from .cluster import LocalCluster
    from .ensemble import ServerTls, ZooKeeperEnsemble
    from .errors import DamagedRecordError, MesosLocalError, NodeDiedError

__all__ = [
    "AgentSpec",
    "DamagedRecordError",
    "LocalCluster",
    "MesosLocalError",
    "NodeDiedError",
    "ServerTls",
    "ZooKeeperEnsemble",
    "default_agents",
    "load_agents",
    "with_ports",
]

_HOMES = {
    "AgentSpec": "agents",
    "DamagedRecordError": "errors",
    "LocalCluster": "cluster",
    "MesosLocalError": "errors",
    "NodeDiedError": "errors",
    "ServerTls": "ensemble",
    "ZooKeeperEnsemble": "ensemble",
    "default_agents": "agents",
    "load_agents": "agents_file",
    "with_ports": "agents",
}


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOMES[name]}", __name__), name)
