"""What a local cluster offers and does, as the master sees it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from . import operator_api


@dataclass(frozen=True, slots=True)
class AgentStatus:
    """`active`: the master can reach it. Resources: name to amount, mem and disk in MB; ports as "31000-31099"."""

    hostname: str
    agent_id: str
    address: str
    active: bool
    attributes: Mapping[str, str]
    resources: Mapping[str, float | str]
    used: Mapping[str, float | str]


@dataclass(frozen=True, slots=True)
class TaskStatus:
    """A task that has not ended; `state` as Mesos names it, "TASK_RUNNING"."""

    task_id: str
    name: str
    state: str
    hostname: str
    framework_id: str


@dataclass(frozen=True, slots=True)
class FrameworkStatus:
    """A framework that is registered.

    `connected`: its scheduler is there now. If it does not come back `failover_timeout` seconds after it left, the
    master ends all its tasks. `used`: what these hold.
    """

    framework_id: str
    name: str
    connected: bool
    failover_timeout: float
    used: Mapping[str, float | str]


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """Everything at one moment. Agents by hostname; addresses are "IP:PORT"."""

    master: str
    zookeeper: str | None
    agents: tuple[AgentStatus, ...]
    tasks: tuple[TaskStatus, ...]
    frameworks: tuple[FrameworkStatus, ...]


def read_status(master: str, zookeeper: str | None = None) -> ClusterStatus:
    """Ask the master at "IP:PORT". Raises MasterUnavailableError."""
    state = operator_api.call(master, "GET_STATE")
    agents = sorted(map(_agent, state["get_agents"].get("agents", ())), key=lambda agent: agent.hostname)
    hostnames = {agent.agent_id: agent.hostname for agent in agents}
    tasks = state["get_tasks"]
    live = (*tasks.get("tasks", ()), *tasks.get("unreachable_tasks", ()))
    frameworks = map(_framework, state["get_frameworks"].get("frameworks", ()))
    return ClusterStatus(master, zookeeper, tuple(agents), tuple(_task(t, hostnames) for t in live), tuple(frameworks))


def _agent(content: Mapping[str, Any]) -> AgentStatus:
    info = content["agent_info"]
    return AgentStatus(
        hostname=info["hostname"],
        agent_id=info["id"]["value"],
        address=content["pid"].partition("@")[2],
        active=content["active"],
        attributes={a["name"]: str(_value(a)) for a in info.get("attributes", ())},
        resources=_total(content.get("total_resources", ())),
        used=_total(content.get("allocated_resources", ())),
    )


def _task(content: Mapping[str, Any], hostnames: Mapping[str, str]) -> TaskStatus:
    agent_id = content["agent_id"]["value"]
    return TaskStatus(
        task_id=content["task_id"]["value"],
        name=content["name"],
        state=content["state"],
        hostname=hostnames.get(agent_id, agent_id),
        framework_id=content["framework_id"]["value"],
    )


def _framework(content: Mapping[str, Any]) -> FrameworkStatus:
    info = content["framework_info"]
    return FrameworkStatus(
        framework_id=info["id"]["value"],
        name=info["name"],
        connected=content["connected"],
        failover_timeout=float(info.get("failover_timeout", 0)),
        used=_total(content.get("allocated_resources", ())),
    )


def _total(resources: Iterable[Mapping[str, Any]]) -> dict[str, float | str]:
    """Summed by name: one resource may come in parts, by role and by framework."""
    total: dict[str, float | str] = {}
    for resource in resources:
        name, value = resource["name"], _value(resource)
        before = total.get(name)
        if isinstance(value, str):
            total[name] = f"{before},{value}" if before else value
        else:
            total[name] = value + (before if isinstance(before, float) else 0.0)
    return total


def _value(content: Mapping[str, Any]) -> float | str:
    """Of a resource or an attribute in Mesos' JSON."""
    match content["type"]:
        case "SCALAR":
            return float(content["scalar"]["value"])
        case "RANGES":
            return ",".join(f"{r['begin']}-{r['end']}" for r in content["ranges"].get("range", ()))
        case "SET":
            return ",".join(content["set"].get("item", ()))
        case _:
            return str(content["text"]["value"])
