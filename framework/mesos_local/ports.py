"""Claim ports for local clusters, which share one machine with all users."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tf_executor.process.ports import is_free

from .agents import FIRST_PORT, AgentSpec, default_agents, port_spans, with_ports
from .host import MesosLocalError, PortClaims

#: First ports of clusters of `local up`: Mesos' default, then those between it and the ports of nodes (to 29999).
_PERSISTENT = (FIRST_PORT, *range(30_000, 30_601, 300))
#: First ports of runs, at random: below the ports that nodes listen on (from 20000).
_RUNS = range(10_000, 19_701, 300)
#: Above the ports of `local up`, and below those that Linux uses for outgoing connections (from 32768).
_LAST = range(31_300, 32_401, 300)


@contextmanager
def claimed_agents(
    agents: Sequence[AgentSpec] | None, *, persistent: bool = False
) -> Iterator[tuple[Sequence[AgentSpec], PortClaims]]:
    """Yield agents with ports that no other local cluster has, and the claims to them.

    `agents`: None for the default. `persistent`: prefer the default ports. Assigned ports are also free. Raises
    MesosLocalError if a configured port is claimed, or if none are left.
    """
    configured = _spans(agents or ())
    firsts = (*(_PERSISTENT if persistent else ()), *random.sample(_RUNS, len(_RUNS)), *_LAST)
    for first in firsts:
        specs = default_agents(first) if agents is None else with_ports(agents, first)
        with PortClaims() as claims:
            for begin, end in configured:
                if not claims.add(begin, end):
                    raise MesosLocalError(
                        f"agents file: ports {begin}-{end}: used by another local cluster; choose others"
                    )
            assigned = [span for span in _spans(specs) if span not in configured]
            if all(claims.add(*span) and all(map(is_free, range(span[0], span[1] + 1))) for span in assigned):
                yield specs, claims
                return
    raise MesosLocalError(f"cannot start another local cluster: all {len(firsts)} port blocks are in use")


def _spans(agents: Sequence[AgentSpec]) -> list[tuple[int, int]]:
    return [span for spec in agents for span in port_spans(spec.fields())]
