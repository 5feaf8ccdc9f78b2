"""Clusters with containers: partitions of agents, and what may be left behind."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from mesos_local.cluster import LocalCluster
from mesos_local.host import PROC, ProcessId, find_orphans
from mesos_local.network import SYSTEM_PATH, cgroups_root, inside

from .commands import run_program

#: Retransmissions of a packet before its connection fails; those that Linux allows take about 15 minutes.
_FEW, _USUAL = 4, 15
_GROUPS = Path("/sys/fs/cgroup")
_NAMESPACES = ("net", "mnt", "pid", "ipc")


@contextmanager
def dropped(cluster: LocalCluster, agent: str, *rules: str) -> Iterator[None]:
    """Drop packets that match rules of iptables, such as "INPUT -s 10.88.0.1".

    The rules apply to the network of the agent, within the block.
    """
    try:
        for rule in rules:
            run_inside(cluster, agent, f"iptables -I {rule} -j DROP")
        yield
    finally:
        run_inside(cluster, agent, "iptables -F")


@contextmanager
def impatient(cluster: LocalCluster) -> Iterator[None]:
    """Let connections of tasks fail after seconds without an answer, within the block.

    Otherwise they fail after about 15 minutes.
    """

    def allow(retries: int) -> None:
        for agent in cluster.agents:
            run_inside(cluster, agent, f"sysctl -qw net.ipv4.tcp_retries2={retries}")  # Linux: ip-sysctl.rst

    allow(_FEW)
    try:
        yield
    finally:
        allow(_USUAL)


@contextmanager
def delayed(cluster: LocalCluster, agent: str, delay: str) -> Iterator[None]:
    """Delay each packet that leaves the network of an agent, within the block."""
    run_inside(cluster, agent, f"tc qdisc add dev eth0 root netem delay {delay}")
    try:
        yield
    finally:
        run_inside(cluster, agent, "tc qdisc del dev eth0 root")


def missing_netem() -> str:
    """Return why this machine cannot delay packets; empty if it can."""
    command = ["unshare", "--net", "tc", "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms"]
    try:
        done = run_program(*command)
    except FileNotFoundError as error:
        return str(error)
    return f"the kernel has no netem: {done.stderr.strip().rstrip('.')}" if done.returncode else ""


def run_inside(cluster: LocalCluster, agent: str, command: str) -> str:
    """Run a command in the network of an agent; return its output."""
    words = [*inside(cluster.network.pid, agent), *command.split()]
    done = subprocess.run(words, check=True, env={"PATH": SYSTEM_PATH}, stdout=subprocess.PIPE, text=True)
    return done.stdout


def mounts(cluster: LocalCluster) -> frozenset[str]:
    """The mounts in the namespace of a cluster with containers; empty without."""
    if not cluster.has_containers:
        return frozenset()
    return frozenset((PROC / str(cluster.network.pid) / "mounts").read_text().splitlines())


def interfaces() -> frozenset[str]:
    """Network interfaces of this machine."""
    return frozenset(path.name for path in Path("/sys/class/net").iterdir())


def control_groups(directory: Path, under: str = "") -> list[str]:
    """Control groups of a cluster; with `under` "agent-*/*/", those of containers."""
    return [str(path) for path in _GROUPS.glob(f"*/{cgroups_root(directory)}/{under}")]


def inhabitants(directory: Path) -> frozenset[ProcessId]:
    """All processes in namespaces of a cluster, which would keep these alive."""
    own = _namespaces("self")
    spaces = {space for process in find_orphans(directory) for space in _namespaces(str(process.pid))} - own
    pids = (entry.name for entry in PROC.iterdir() if entry.name.isdecimal())
    found = (ProcessId.of(int(pid)) for pid in pids if _namespaces(pid) & spaces)
    return frozenset(process for process in found if process is not None)


def _namespaces(pid: str) -> set[str]:
    """Ids of the namespaces of a process; empty if it has exited."""
    with suppress(OSError):
        return {str((PROC / pid / "ns" / kind).readlink()) for kind in _NAMESPACES}
    return set()
