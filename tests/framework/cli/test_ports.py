"""Ports of local clusters: concurrent clusters of all users get different ones."""

from __future__ import annotations

import socket
import subprocess
import sys
from contextlib import ExitStack

import pytest

from kit.commands import ENVIRONMENT, processes
from mesos_local.agents import AgentSpec, port_spans
from mesos_local.host import MesosLocalError, PortClaims, free_ports
from mesos_local.ports import claimed_agents

# Ports from 61000 on: no cluster uses them, also not one that runs on this machine meanwhile.

#: Claims a range, as another user if possible, and prints whether it could.
CLAIM = """
import os
from mesos_local.host import PortClaims
os.geteuid() or os.setuid(65534)
claims = PortClaims()
print(claims.add({}, {}), flush=True)
input()
"""


def ports_of(agents) -> set[int]:
    return {port for agent in agents for begin, end in port_spans(agent.fields()) for port in range(begin, end + 1)}


def test_concurrent_clusters_get_different_ports() -> None:
    """At random. More than three agents have more ports, which no other cluster gets."""
    many = [AgentSpec(f"agent-{number}", "cpus:1") for number in range(8)]
    with ExitStack() as stack:
        taken = [ports_of(stack.enter_context(claimed_agents(agents))[0]) for agents in [None] * 8 + [many, None]]

    firsts = [min(one) for one in taken]
    assert sum(map(len, taken)) == len(set().union(*taken)) == 3500
    assert firsts != sorted(firsts)


@pytest.mark.parametrize(("first", "last", "is_claimed"), [(61_350, 61_350, False), (61_400, 61_499, True)])
def test_claim_holds_for_all_users_until_the_process_ends(first: int, last: int, is_claimed: bool) -> None:
    """Whatever TMPDIR is; also while nothing listens, as when a cluster starts."""
    with processes() as start, PortClaims() as claims:
        assert claims.add(61_310, 61_399)
        command = (sys.executable, "-c", CLAIM.format(first, last))
        process = start(*command, env=ENVIRONMENT | {"TMPDIR": "/nowhere"}, stdin=subprocess.PIPE)

        assert f"{is_claimed}\n" == process.stdout.readline()

        with PortClaims() as others:
            assert others.add(61_400, 61_499) is not is_claimed
        process.kill()
        process.wait()
        assert claims.add(61_400, 61_499)


@pytest.mark.parametrize(("offset", "address"), [(0, "127.0.0.1"), (150, ""), (299, "::1")])
def test_block_with_a_used_port_is_skipped(offset: int, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of its ports, at any address."""
    monkeypatch.setattr("random.sample", lambda population, _: list(population))
    with claimed_agents(None) as (agents, _):
        first = min(ports_of(agents))
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.create_server((address, first + offset), family=family), claimed_agents(None) as (agents, _):
        assert first not in ports_of(agents)


def test_configured_ports_of_another_cluster_are_refused() -> None:
    mine, other = (claimed_agents([AgentSpec("a", f"ports:[{span}]")]) for span in ("61800-61809", "61805-61900"))
    with mine, pytest.raises(MesosLocalError, match="ports 61805-61900: used by another local cluster"), other:
        pass


def test_nodes_avoid_claimed_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    """But not those of the cluster's own agents, which may offer all ports."""
    monkeypatch.setattr("mesos_local.host._CANDIDATES", range(61_000, 61_010))
    with PortClaims() as claims:
        assert claims.add(61_000, 61_010)
        assert {*range(61_000, 61_010)} > {*free_ports(3, claims)}
        with pytest.raises(MesosLocalError, match="not enough free ports"):
            free_ports(3)
