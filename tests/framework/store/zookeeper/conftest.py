"""Real ensembles to break, and stores that are closed afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from itertools import count
from typing import Any

import pytest
from kazoo.client import KazooClient

from mesos_local import ZooKeeperEnsemble
from tf_scheduler.store.zookeeper import ZooKeeperPlace, ZooKeeperStore

_chroots = count(1)


@pytest.fixture(scope="session")
def three_servers() -> Iterator[ZooKeeperEnsemble]:
    """Three servers for all tests; use `ensemble`, which puts them together again."""
    with ZooKeeperEnsemble(3) as started:
        yield started


@pytest.fixture
def ensemble(three_servers: ZooKeeperEnsemble) -> Iterator[ZooKeeperEnsemble]:
    """Three servers that the test may kill and freeze."""
    three_servers.wait_serving()
    yield three_servers
    for server in three_servers.servers:
        if server.process is None:
            server.launch()
        elif server.frozen:
            server.thaw()
    three_servers.wait_serving()


@pytest.fixture
def three_places(ensemble: ZooKeeperEnsemble) -> ZooKeeperPlace:
    """A chroot of the test's own on three servers."""
    servers = tuple(ensemble.addresses.split(","))
    return ZooKeeperPlace(servers, chroot=f"/three-{next(_chroots)}", session_timeout=6.0)


@pytest.fixture
def open_at() -> Iterator[Callable[..., ZooKeeperStore]]:
    """Opens a store of `tensorflow` at a place, with options of the place changed."""
    with ExitStack() as stores:

        def open_at(place: ZooKeeperPlace, service: str = "tensorflow", **changes: Any) -> ZooKeeperStore:
            return stores.enter_context(closing(ZooKeeperStore(replace(place, **changes), service)))

        yield open_at


@pytest.fixture
def operator() -> Iterator[Callable[[ZooKeeperPlace], KazooClient]]:
    """An operator with a client of their own, who sees the nodes as they are."""
    clients: list[KazooClient] = []

    def connect(place: ZooKeeperPlace, **options: Any) -> KazooClient:
        client = KazooClient(",".join(place.servers), connection_retry={"max_tries": -1, "max_delay": 0.2}, **options)
        clients.append(client)
        client.start(timeout=30)
        return client

    yield connect
    for client in clients:
        client.stop()
        client.close()
