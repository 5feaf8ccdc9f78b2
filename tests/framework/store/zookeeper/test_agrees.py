"""ZooKeeper store and memory store behave alike for any sequence of calls."""

from __future__ import annotations

from itertools import count

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from kit.stores import StoresAgree
from tf_scheduler.store.zookeeper import ZooKeeperAddress, ZooKeeperStore, layout
from tf_scheduler.store.zookeeper import store as store_module

_chroots = count(1)


class ZooKeeperAgrees(StoresAgree):
    place: ZooKeeperAddress

    def __init__(self) -> None:
        self.here = ZooKeeperAddress(self.place.servers, f"/agree-{next(_chroots)}", session_timeout=5.0)
        super().__init__()

    def open_store(self, service: str) -> ZooKeeperStore:
        return ZooKeeperStore(self.here, service)


@pytest.mark.parametrize("small", [False, True])
def test_stores_agree(zookeeper, monkeypatch: pytest.MonkeyPatch, small) -> None:
    """With usual nodes, and with nodes so small that entries split and merge."""
    if small:
        monkeypatch.setattr(layout, "NODE_LIMIT", 100)
        monkeypatch.setattr(store_module, "_MIN_LOG_COST", 2048)
    monkeypatch.setattr(ZooKeeperAgrees, "place", zookeeper, raising=False)
    run_state_machine_as_test(
        ZooKeeperAgrees,
        settings=settings(
            max_examples=15, stateful_step_count=15, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
