"""A cluster that tests may break, and schedulers for it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from http_scheduler import EXECUTOR, HttpScheduler
from kit.shared import SharedServers
from mesos_local.agents import AgentSpec
from mesos_local.cluster import LocalCluster


@pytest.fixture
def cluster(real_mesos: None, module_servers: SharedServers) -> LocalCluster:
    """A cluster with one agent and short timers that tests break and repair."""
    flags = {"allocation_interval": "50ms", "agent_ping_timeout": "1secs", "max_agent_ping_timeouts": "2"}
    agents = [AgentSpec("agent-1", "cpus:2;mem:1024;gpus:0;ports:[31900-31909]", "rack:a")]
    return module_servers.cluster(agents, master_flags=flags)


@pytest.fixture
def scheduler(cluster: LocalCluster) -> Iterator[Callable[..., HttpScheduler]]:
    """Make schedulers; tear them down after the test."""
    made: list[HttpScheduler] = []

    def make(**options: Any) -> HttpScheduler:
        made.append(HttpScheduler(cluster.master.address, **options))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def executor_command(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A CommandInfo that fetches EXECUTOR into the sandbox and runs it there."""
    path = tmp_path_factory.mktemp("executor") / "executor.py"
    path.write_text(EXECUTOR)
    return {"value": f"exec {sys.executable} executor.py", "uris": [{"value": str(path)}]}
