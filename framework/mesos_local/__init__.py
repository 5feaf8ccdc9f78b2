"""Run a real Apache Mesos (and ZooKeeper) on this machine.

Names load on first use, because agents run helpers of this package for every container.
"""

from __future__ import annotations

TYPE_CHECKING = False  # type checkers know the name; the module typing is slow to import
if TYPE_CHECKING:
    from .agents import AgentSpec, default_agents, load_agents, with_ports
    from .cluster import LocalCluster
    from .host.errors import DamagedRecordError, MesosLocalError, NodeDiedError

__all__ = [
    "AgentSpec",
    "DamagedRecordError",
    "LocalCluster",
    "MesosLocalError",
    "NodeDiedError",
    "default_agents",
    "load_agents",
    "with_ports",
]

_HOMES = {
    "AgentSpec": "agents",
    "DamagedRecordError": "host.errors",
    "LocalCluster": "cluster",
    "MesosLocalError": "host.errors",
    "NodeDiedError": "host.errors",
    "default_agents": "agents",
    "load_agents": "agents",
    "with_ports": "agents",
}


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOMES[name]}", __name__), name)
