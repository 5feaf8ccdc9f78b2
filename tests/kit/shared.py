"""Servers shared by many tests: checked when taken, replaced when damaged."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, Generic, TypeVar

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.handlers.threading import KazooTimeoutError

from kit.freezing import is_frozen, thaw
from mesos_local.agents import AgentSpec, port_spans, with_ports
from mesos_local.cluster import LocalCluster
from mesos_local.host import MesosLocalError
from mesos_local.node import Node
from mesos_local.ports import claimed_agents

from .zookeeper_ensemble import ZooKeeperEnsemble

#: Seconds for a repaired server to serve before it is replaced.
_PATIENCE = 20.0

T = TypeVar("T")


class Shared(Generic[T]):
    """Start a resource when it is first taken; stop it at the end of the `with` block.

    `repair` gets the resource before each further use and raises MesosLocalError if it is damaged beyond repair: then
    a new one replaces it.
    """

    def __init__(self, start: Callable[[], AbstractContextManager[T]], repair: Callable[[T], None]) -> None:
        self._start, self._repair = start, repair
        self._stack = ExitStack()
        self._current: T | None = None

    def __enter__(self) -> Shared[T]:
        return self

    def __exit__(self, *error: object) -> None:
        self._current = None
        self._stack.close()

    def take(self) -> T:
        """Return the resource, healthy."""
        if self._current is not None:
            try:
                self._repair(self._current)
                return self._current
            except MesosLocalError as error:
                print(f"shared {type(self._current).__name__} replaced: {error}")
            self.__exit__()
        self._current = self._stack.enter_context(self._start())
        return self._current


@contextmanager
def port_block() -> Iterator[int]:
    """Claim the ports of three agents, and yield the first."""
    with claimed_agents(None) as (agents, _):
        yield port_spans(agents[0].fields())[0][0]


@contextmanager
def start_cluster(agents: Sequence[AgentSpec], **options: Any) -> Iterator[LocalCluster]:
    """Run a cluster that ends with this process; port ranges do not overlap."""
    with port_block() as first, LocalCluster(with_ports(agents, first), die_with_parent=True, **options) as cluster:
        yield cluster


class SharedServers(ExitStack):
    """Start servers on first use; stop all at the end. `name` distinguishes them."""

    def __init__(self) -> None:
        super().__init__()
        self._servers: dict[str, Shared[Any]] = {}

    def cluster(self, agents: Sequence[AgentSpec], name: str = "cluster", **options: Any) -> LocalCluster:
        """Return a cluster whose nodes run."""
        return self.take(name, lambda: start_cluster(agents, **options), repair_cluster)

    def ensemble(self, servers: int = 1, **options: Any) -> ZooKeeperEnsemble:
        """Return an ensemble whose servers run and serve."""
        return self.take("ensemble", lambda: ZooKeeperEnsemble(servers, **options), repair_ensemble)

    def take(self, name: str, start: Callable[[], AbstractContextManager[T]], repair: Callable[[T], None]) -> T:
        """Return any resource, as in Shared."""
        if name not in self._servers:
            self._servers[name] = self.enter_context(Shared(start, repair))
        server: T = self._servers[name].take()
        return server


def repair_ensemble(ensemble: ZooKeeperEnsemble) -> None:
    """Start, thaw and write through each server. Raises MesosLocalError on failure."""
    _start_and_thaw(ensemble.servers)
    ensemble.wait_serving(_PATIENCE)
    for server in ensemble.servers if len(ensemble.servers) > 1 else ():
        _write(server.address)


def _write(address: str) -> None:
    """Prove a quorum: a thawed server reports its former role for a moment."""
    client = KazooClient(address, connection_retry={"max_tries": -1, "max_delay": 0.2})
    try:
        client.start(timeout=_PATIENCE)
        client.retry(client.create, f"/shared-{address}", ephemeral=True)
    except (KazooException, KazooTimeoutError) as error:
        raise MesosLocalError(f"ZooKeeper {address} cannot write: {error!r}") from error
    finally:
        client.stop()
        client.close()


def repair_cluster(cluster: LocalCluster) -> None:
    """Start and thaw nodes. Raises MesosLocalError if an agent does not register."""
    _start_and_thaw(cluster.nodes)
    cluster.wait_registered(_PATIENCE)


def _start_and_thaw(nodes: Iterable[Node]) -> None:
    for node in nodes:
        node.check_alive()
        if node.process is None:
            node.launch()
        elif is_frozen(node):
            thaw(node)
