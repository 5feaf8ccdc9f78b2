"""Client of the master's v1 operator API: status, teardown, waiting for agents."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from http import HTTPStatus
from typing import Any

from tf_executor.contract.http import HttpClient, NoReplyError

from .host import MesosLocalError
from .node import AgentNode, Node

_CLIENT = HttpClient(limit=20.0, timeout=10.0)
#: Maximum characters of an answer in a message.
_MAX_TEXT = 300
#: What an answer of another form raises.
_MALFORMED = (AttributeError, LookupError, TypeError, ValueError, OverflowError, RecursionError)


class MasterUnavailableError(MesosLocalError):
    """The master does not answer, or answers with an error: it may be starting."""


def call(address: str, kind: str, **content: Any) -> dict[str, Any]:
    """Send a call such as "GET_AGENTS"; return its result, or {}.

    Raises MasterUnavailableError.
    """
    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    try:
        reply = _CLIENT.fetch(f"http://{address}/api/v1", headers, json.dumps({"type": kind, **content}).encode())
    except NoReplyError as error:
        raise MasterUnavailableError(f"the master at {address} does not answer: {str(error)[:_MAX_TEXT]}") from error
    if reply.status not in (HTTPStatus.OK, HTTPStatus.ACCEPTED):
        text = repr(reply.body[:_MAX_TEXT])
        raise MasterUnavailableError(f"the master at {address} returned HTTP {reply.status}: {text}")
    try:
        result: dict[str, Any] = json.loads(reply.body)[kind.lower()] if reply.body else {}
    except _MALFORMED as error:
        raise _invalid(address, kind, error) from error
    return result


def _invalid(address: str, kind: str, error: Exception) -> MasterUnavailableError:
    return MasterUnavailableError(
        f"the master at {address} returned an invalid answer to {kind}: {type(error).__name__}"
    )


def teardown(address: str, framework_id: str) -> None:
    """Remove a framework. Raises MasterUnavailableError, also for an unknown id."""
    call(address, "TEARDOWN", teardown={"framework_id": {"value": framework_id}})


@dataclass(frozen=True, slots=True)
class AgentStatus:
    """An agent; `active` if reachable. Mem and disk in MB, ports as "31000-31099"."""

    hostname: str
    agent_id: str
    address: str
    active: bool
    attributes: Mapping[str, str]
    resources: Mapping[str, float | str]
    used: Mapping[str, float | str]


@dataclass(frozen=True, slots=True)
class LocalTaskStatus:
    """A task that has not ended; `state` as in Mesos, such as "TASK_RUNNING"."""

    task_id: str
    name: str
    state: str
    hostname: str
    framework_id: str


@dataclass(frozen=True, slots=True)
class FrameworkStatus:
    """A registered framework.

    `connected`: whether its scheduler is connected. After `failover_timeout` seconds without its scheduler, the master
    ends all its tasks. `used`: resources of its tasks. `webui_url`: URL of its page; empty without a page.
    """

    framework_id: str
    name: str
    connected: bool
    failover_timeout: float
    used: Mapping[str, float | str]
    webui_url: str = ""


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """Snapshot of a cluster. Agents are sorted by hostname. Addresses are "IP:PORT".

    `containers`: see LocalCluster.
    """

    master: str
    zookeeper: str | None
    agents: tuple[AgentStatus, ...]
    tasks: tuple[LocalTaskStatus, ...]
    frameworks: tuple[FrameworkStatus, ...]
    containers: bool = False


def read_status(master: str, zookeeper: str | None = None) -> ClusterStatus:
    """Return the status from the master at "IP:PORT". Raises MasterUnavailableError."""
    state = call(master, "GET_STATE")
    try:
        agents = sorted(map(_agent, state["get_agents"].get("agents", ())), key=lambda agent: agent.hostname)
        hostnames = {agent.agent_id: agent.hostname for agent in agents}
        tasks = state["get_tasks"]
        live = (*tasks.get("tasks", ()), *tasks.get("unreachable_tasks", ()))
        frameworks = map(_framework, state["get_frameworks"].get("frameworks", ()))
        return ClusterStatus(
            master, zookeeper, tuple(agents), tuple(_task(t, hostnames) for t in live), tuple(frameworks)
        )
    except _MALFORMED as error:
        raise _invalid(master, "GET_STATE", error) from error


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


def _task(content: Mapping[str, Any], hostnames: Mapping[str, str]) -> LocalTaskStatus:
    agent_id = content["agent_id"]["value"]
    return LocalTaskStatus(
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
        webui_url=info.get("webui_url", ""),
    )


def _total(resources: Iterable[Mapping[str, Any]]) -> dict[str, float | str]:
    """Sum resources by name, over roles and frameworks."""
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
    """Decode the value of a resource or attribute in Mesos' JSON."""
    match content["type"]:
        case "SCALAR":
            return float(content["scalar"]["value"])
        case "RANGES":
            return ",".join(f"{r['begin']}-{r['end']}" for r in content["ranges"].get("range", ()))
        case "SET":
            return ",".join(content["set"].get("item", ()))
        case _:
            return str(content["text"]["value"])


_NANOSECONDS = 1e9
_POLL_INTERVAL = 0.05  # seconds; the master does not announce returning agents


def wait_registered(master: str, nodes: Iterable[Node], timeout: float) -> None:
    """Wait until all running agents have registered with the master at "IP:PORT".

    Raises NodeDiedError if a node exits, MesosLocalError after `timeout` seconds.
    """
    nodes = tuple(nodes)
    agents = [node for node in nodes if isinstance(node, AgentNode)]
    deadline = time.monotonic() + timeout
    while missing := unregistered(master, agents):
        for node in nodes:
            node.check_alive()
        if time.monotonic() > deadline:
            raise missing[0].failed(f"has not registered after {timeout:.0f} s")
        time.sleep(_POLL_INTERVAL)


def unregistered(master: str, agents: Iterable[AgentNode]) -> list[AgentNode]:
    """Return the running agents that have not registered; set the others' agent ids."""
    expected = [agent for agent in agents if agent.process is not None]
    try:
        contents = {_name_and_port(content): content for content in call(master, "GET_AGENTS").get("agents", ())}
    except MasterUnavailableError:
        return expected
    missing = []
    for agent in expected:
        content = contents.get((agent.name, agent.address.rpartition(":")[2]))
        if content is None or not content["active"] or _registered_at(content) < agent.started_at:
            missing.append(agent)
        else:
            agent.registered_id = content["agent_info"]["id"]["value"]
    return missing


def _name_and_port(agent: Mapping[str, Any]) -> tuple[str, str]:
    """Return hostname and port, which identify an agent also in its own network."""
    return agent["agent_info"]["hostname"], agent["pid"].rpartition(":")[2]


def _registered_at(agent: Mapping[str, Mapping[str, float]]) -> float:
    """Return the time of the last registration, in seconds since the epoch."""
    times = (agent.get(key, {}).get("nanoseconds", 0) for key in ("registered_time", "reregistered_time"))
    return max(times) / _NANOSECONDS


def check_flags(node: Node, names: Iterable[str]) -> None:
    """Raise MesosLocalError for an unknown flag: Mesos ignores unknown variables."""
    supported = {flag["name"] for flag in call(node.address, "GET_FLAGS")["flags"]}
    for name in sorted(set(names) - supported):
        near = get_close_matches(name, supported, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise MesosLocalError(f"unknown Mesos flag {name!r} for {node.name}{hint}")
