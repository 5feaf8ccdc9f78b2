"""Stores of every kind, opened and closed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from itertools import count
from pathlib import Path

import pytest

from kit import lanes
from kit.memory_store import MemoryDisk, MemoryStore
from kit.shared import Shared, repair_ensemble
from kit.zookeeper_ensemble import ZooKeeperEnsemble
from tf_scheduler.store.interface import StateStore
from tf_scheduler.store.sqlite import SqliteStore
from tf_scheduler.store.zookeeper import ZooKeeperAddress, ZooKeeperStore

OpenStore = Callable[..., StateStore]

_chroots = count(1)


def _opener(kind: str, folder: Path, request: pytest.FixtureRequest) -> OpenStore:
    if kind == "zookeeper":
        place: ZooKeeperAddress = request.getfixturevalue("zookeeper")
        return lambda service="tensorflow": ZooKeeperStore(place, service)
    if kind == "memory":
        disk = MemoryDisk()
        return lambda service="tensorflow": MemoryStore(service, disk)
    return lambda service="tensorflow": SqliteStore(folder / "state.db", service)


@pytest.fixture(scope="session")
def shared_zookeeper(real_zookeeper: None) -> Iterator[Shared[ZooKeeperEnsemble]]:
    """One real server for all tests that do not stop it."""
    with Shared(ZooKeeperEnsemble, repair_ensemble) as shared:
        yield shared


@pytest.fixture
def zookeeper(shared_zookeeper: Shared[ZooKeeperEnsemble]) -> ZooKeeperAddress:
    """A chroot of the test's own on that server."""
    address = shared_zookeeper.take().addresses
    return ZooKeeperAddress((address,), chroot=f"/test-{next(_chroots)}", session_timeout=5.0)


@pytest.fixture(params=["memory", "sqlite", lanes.parameter("zookeeper", "zookeeper")])
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[OpenStore]:
    """Return a function that opens a store; stores of a test share their values."""
    opener = _opener(request.param, tmp_path, request)
    with ExitStack() as stores:
        yield lambda *service: stores.enter_context(closing(opener(*service)))


@pytest.fixture
def open_sqlite(tmp_path: Path) -> Iterator[Callable[..., SqliteStore]]:
    """Return a function that opens a SQLite store, by default the test's `state.db`."""
    with ExitStack() as stores:

        def open_at(path: Path = tmp_path / "state.db", **options: float) -> SqliteStore:
            return stores.enter_context(closing(SqliteStore(path, "tensorflow", **options)))

        yield open_at
