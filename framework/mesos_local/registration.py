"""What the master, and each node, must know before a cluster counts as started."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from contextlib import closing
from difflib import get_close_matches

from .errors import MesosLocalError
from .members import AgentNode, Node
from .operator_api import Changes, MasterUnavailableError, call

_NANOSECONDS = 1e9
_LOOK_AGAIN = 0.1  # seconds; the master announces a new agent, but not one that it knows and that comes back


def wait_registered(master: str, nodes: Iterable[Node], timeout: float) -> None:
    """Wait until every agent of `nodes` that runs has registered with the master at "IP:PORT".

    Raises NodeDiedError if a node ends meanwhile, MesosLocalError after `timeout` seconds.
    """
    nodes = tuple(nodes)
    agents = [node for node in nodes if isinstance(node, AgentNode)]
    deadline = time.monotonic() + timeout
    with closing(Changes(master)) as changes:
        while missing := unregistered(master, agents):
            for node in nodes:
                node.check_alive()
            if time.monotonic() > deadline:
                raise missing[0].failed(f"has not registered after {timeout:.0f} s")
            changes.wait(_LOOK_AGAIN)


def unregistered(master: str, agents: Iterable[AgentNode]) -> list[AgentNode]:
    """Those that run but have not registered with the master at "IP:PORT" since they were started; tells the others
    their agent ids."""
    expected = [agent for agent in agents if agent.process is not None and not agent.frozen]
    try:
        known = {content["pid"]: content for content in call(master, "GET_AGENTS").get("agents", ())}
    except MasterUnavailableError:
        return expected
    missing = []
    for agent in expected:
        content = known.get(f"slave(1)@{agent.address}")
        if content is None or not content["active"] or _registered_at(content) < agent.started_at:
            missing.append(agent)
        else:
            agent.registered_id = content["agent_info"]["id"]["value"]
    return missing


def _registered_at(agent: Mapping[str, Mapping[str, float]]) -> float:
    """Seconds since the epoch, of the last time."""
    times = (agent.get(key, {}).get("nanoseconds", 0) for key in ("registered_time", "reregistered_time"))
    return max(times) / _NANOSECONDS


def check_flags(node: Node, given: Iterable[str]) -> None:
    """Raises MesosLocalError for a flag that the node does not have: Mesos ignores those of its environment."""
    known = {flag["name"] for flag in call(node.address, "GET_FLAGS")["flags"]}
    for name in sorted(set(given) - known):
        near = get_close_matches(name, known, n=1)
        hint = f", did you mean {near[0]!r}?" if near else "."
        raise MesosLocalError(f"Mesos has no flag {name!r} for {node.name}{hint}")
