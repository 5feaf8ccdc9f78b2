"""Shared by all tests."""

from __future__ import annotations

import signal
from collections.abc import Generator, Iterator
from contextlib import contextmanager

import pytest
from hypothesis import settings
from hypothesis.database import DirectoryBasedExampleDatabase

from kit.certificates import Certificates
from kit.shared import Shared, SharedServers, port_block, repair_cluster
from mesos_local.agents import default_agents
from mesos_local.cluster import LocalCluster
from spotless import FAILED, no_framework_left

# No deadline: the duration of an example depends on the load of the machine. Examples are random in CI too; the folder
# keeps those that fail for the next run.
settings.register_profile(
    "random", deadline=None, derandomize=False, database=DirectoryBasedExampleDatabase(".hypothesis/examples")
)
settings.register_profile("fast", settings.get_profile("random"), max_examples=25)
settings.register_profile("deep", settings.get_profile("random"), max_examples=2000)
settings.load_profile("random")

# A shell ignores SIGINT for background jobs, and nohup ignores SIGHUP; started programs would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

pytest_plugins = ("kit.lanes", "kit.reruns", "kit.results")

_QUICK_MASTER = {"allocation_interval": "100ms", "agent_ping_timeout": "1secs", "max_agent_ping_timeouts": "3"}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Record whether the test, except its clean-up, failed, and whether its file did."""
    report = yield
    if call.when != "teardown":
        item.stash[FAILED] = report.failed
        if report.failed and (file := item.getparent(pytest.Module)):
            file.stash[FAILED] = True
    return report


@contextmanager
def _three_agents() -> Iterator[LocalCluster]:
    # Not the default ports: a developer's own local cluster may run, and each worker of pytest-xdist has a cluster.
    with (
        port_block() as first,
        LocalCluster(default_agents(first), master_flags=_QUICK_MASTER, die_with_parent=True) as cluster,
    ):
        yield cluster


@pytest.fixture(scope="session")
def shared_cluster(real_mesos: None) -> Iterator[Shared[LocalCluster]]:
    """A real master and three real agents for the whole session."""
    with Shared(_three_agents, repair_cluster) as shared:
        yield shared


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates.make(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def module_servers() -> Iterator[SharedServers]:
    """Servers that the tests of a file share."""
    with SharedServers() as servers:
        yield servers


@pytest.fixture
def local_cluster(shared_cluster: Shared[LocalCluster]) -> LocalCluster:
    """Return the shared cluster, all nodes running; tests tear down their frameworks."""
    return shared_cluster.take()


@pytest.fixture(autouse=True)
def _no_framework_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """Of those in the shared cluster, if the test uses it."""
    if "local_cluster" not in request.fixturenames:
        yield
        return
    with no_framework_left(request.getfixturevalue("local_cluster"), request.node):
        yield
