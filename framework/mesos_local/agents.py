"""The agents of a local cluster: what each offers."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from .agent_rules import errors_of, pairs, port_spans
from .errors import MesosLocalError

FIRST_PORT = 31000  # as Mesos' own default range; it ends below 32768, where Linux takes ports for outgoing connections
PORTS_PER_AGENT = 100
_MEGABYTE = 1 << 20
_RESERVE_MB = 1024  # of memory, for the master, the agents and the system
_LEAST_MB = 3072  # two TensorFlow tasks of 1 GB and their executors; only a counter, so it may exceed the machine
_LEAST_CPUS = 2  # a counter too: the posix isolators do not limit


@dataclass(frozen=True, slots=True)
class AgentSpec:
    """One agent.

    `hostname`: letters, digits, "." and "-"; also its name in the cluster, so unique there.
    `resources`: "cpus:2;mem:4096;gpus:2;ports:[31000-31099]", or the same as a mapping of name to number or text.
    mem and disk are in MB. What is left out the agent detects, but for ports: those it gets from the cluster, as all
    agents share the machine's ports. `attributes`: "rack:a;zone:b", or a mapping; default none.
    """

    hostname: str
    resources: str | Mapping[str, object]
    attributes: str | Mapping[str, object] = field(default_factory=dict)

    def fields(self) -> dict[str, object]:
        """By name, as `agent_rules` takes them."""
        return {"hostname": self.hostname, "resources": self.resources, "attributes": self.attributes}

    def resource_pairs(self) -> dict[str, str]:
        """Name to value, as Mesos writes values."""
        return dict(pairs(self.resources))

    def resources_flag(self) -> str:
        """For the agent's --resources."""
        return ";".join(f"{name}:{value}" for name, value in pairs(self.resources))

    def attribute_pairs(self) -> dict[str, str]:
        """Name to value, as text."""
        return dict(pairs(self.attributes))

    def attributes_flag(self) -> str:
        """For the agent's --attributes."""
        return ";".join(f"{name}:{value}" for name, value in pairs(self.attributes))


def default_agents(first_port: int = FIRST_PORT) -> tuple[AgentSpec, ...]:
    """Three agents that share the machine's memory, each with all its CPUs (at least 2); the third has 2 GPUs.

    The GPUs are resources to place by, not devices. Ports: 100 each, from `first_port`.
    """
    total_mb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // _MEGABYTE
    common = {"cpus": max(_LEAST_CPUS, os.cpu_count() or 1), "mem": max(_LEAST_MB, (total_mb - _RESERVE_MB) // 3)}
    own: tuple[dict[str, object], ...] = ({}, {}, {"gpus": 2})
    specs = [AgentSpec(f"agent-{n}", common | more, {"rack": f"rack-{n}"}) for n, more in enumerate(own, 1)]
    return with_ports(specs, first_port)


def check_agents(specs: Sequence[AgentSpec]) -> list[str]:
    """Every error in these agents, one sentence each; empty if they are valid."""
    return errors_of([spec.fields() for spec in specs])


def with_ports(specs: Sequence[AgentSpec], first_port: int = FIRST_PORT) -> tuple[AgentSpec, ...]:
    """The same agents; those without ports get 100 that no other agent offers. Raises MesosLocalError on bad specs."""
    if errors := check_agents(specs):
        raise MesosLocalError("The agents are not valid:\n" + "\n".join(f"  {error}" for error in errors))
    taken = [span for spec in specs for span in port_spans(spec.fields())]
    given = []
    for spec in specs:
        if not port_spans(spec.fields()):
            first = _free_span(taken, first_port)
            taken.append((first, first + PORTS_PER_AGENT - 1))
            resources = spec.resource_pairs() | {"ports": "[{}-{}]".format(*taken[-1])}
            given.append(replace(spec, resources=resources))
        else:
            given.append(spec)
    return tuple(given)


def _free_span(taken: Iterable[tuple[int, int]], first: int) -> int:
    for begin, end in sorted(taken):
        if begin < first + PORTS_PER_AGENT and first <= end:
            first = end + 1
    return first
