"""Real ensembles to break, and stores that are closed afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from itertools import count
from typing import Any

import pytest
from kazoo.client import KazooClient

from kit.shared import Shared, repair_ensemble
from kit.waiting import PATIENCE
from kit.zookeeper_ensemble import ZooKeeperEnsemble
from mesos_local.node import Node
from tf_scheduler.store.zookeeper import ZooKeeperAddress, ZooKeeperStore

_chroots = count(1)


@pytest.fixture(scope="session")
def three_servers(real_zookeeper: None) -> Iterator[Shared[ZooKeeperEnsemble]]:
    """Three servers for all tests; use `ensemble`, which repairs them."""
    with Shared(lambda: ZooKeeperEnsemble(3), repair_ensemble) as shared:
        yield shared


@pytest.fixture
def ensemble(three_servers: Shared[ZooKeeperEnsemble]) -> ZooKeeperEnsemble:
    """Three servers that the test may kill and freeze."""
    return three_servers.take()


@pytest.fixture
def three_places(ensemble: ZooKeeperEnsemble) -> ZooKeeperAddress:
    """A chroot of the test's own on three servers."""
    servers = tuple(ensemble.addresses.split(","))
    return ZooKeeperAddress(servers, chroot=f"/three-{next(_chroots)}", session_timeout=6.0)


@pytest.fixture
def open_at() -> Iterator[Callable[..., ZooKeeperStore]]:
    """Return a function that opens a store at an address, with changed settings."""
    with ExitStack() as stores:

        def open_at(place: ZooKeeperAddress, service: str = "tensorflow", **changes: Any) -> ZooKeeperStore:
            return stores.enter_context(closing(ZooKeeperStore(replace(place, **changes), service)))

        yield open_at


@pytest.fixture
def operator() -> Iterator[Callable[[ZooKeeperAddress], KazooClient]]:
    """A client of the operator, which sees the nodes."""
    clients: list[KazooClient] = []

    def connect(place: ZooKeeperAddress, **options: Any) -> KazooClient:
        client = KazooClient(",".join(place.servers), connection_retry={"max_tries": -1, "max_delay": 0.2}, **options)
        clients.append(client)
        client.start(timeout=PATIENCE)
        return client

    yield connect
    for client in clients:
        client.stop()
        client.close()


@pytest.fixture
def expire(operator: Callable[..., KazooClient]) -> Callable[[ZooKeeperStore, ZooKeeperAddress], None]:
    """Return a function that expires a store's session: another client closes it."""
    return lambda store, place: operator(place, client_id=store._session._client.client_id).stop()


@pytest.fixture
def server_of(ensemble: ZooKeeperEnsemble) -> Callable[[ZooKeeperStore], Node]:
    """Return a function that finds the server to which a store is connected."""

    def find(store: ZooKeeperStore) -> Node:
        connection = store._session._sockets._current
        assert connection is not None
        host, port = connection.getpeername()
        return next(server for server in ensemble.servers if server.address == f"{host}:{port}")

    return find
