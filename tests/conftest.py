"""Shared by all tests."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

from mesos_local import LocalCluster, default_agents

# How long an example takes says nothing about it on a machine that is busy with others.
settings.register_profile("patient", deadline=None)
# The same examples each time: a change is judged by itself, and developers' runs go on looking for new ones.
settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.load_profile("repeatable" if os.environ.get("CI") else "patient")

# Not the default: a developer's own local cluster may be up and use those ports. Each process of pytest-xdist has
# its own.
_FIRST_PORT = 31500 + 100 * int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_QUICK_MASTER = {"allocation_interval": "100ms", "agent_ping_timeout": "1secs", "max_agent_ping_timeouts": "3"}


@pytest.fixture(scope="session")
def local_cluster() -> Iterator[LocalCluster]:
    """A real master and three real agents for the whole session: leave them as they were."""
    agents = default_agents(_FIRST_PORT)
    with LocalCluster(agents, master_flags=_QUICK_MASTER, die_with_parent=True) as cluster:
        yield cluster
