"""Shared servers are repaired or replaced when a test takes them."""

from __future__ import annotations

import signal
from contextlib import contextmanager

import pytest

from kit.freezing import freeze
from kit.shared import Shared, repair_ensemble
from kit.zookeeper_ensemble import ZooKeeperEnsemble
from mesos_local.host.errors import MesosLocalError


def test_shared_resource_beyond_repair_is_replaced() -> None:
    """One test's damage must not fail the tests after it."""
    numbers, stopped, damaged = iter("abc"), [], []

    @contextmanager
    def start():
        name = next(numbers)
        yield name
        stopped.append(name)

    def repair(name) -> None:
        if name in damaged:
            raise MesosLocalError("damaged")

    with Shared(start, repair) as shared:
        assert ["a", "a"] == [shared.take(), shared.take()]
        damaged.append("a")
        assert ["b", "b"] == [shared.take(), shared.take()]
        assert ["a"] == stopped
    assert ["a", "b"] == stopped


@pytest.mark.usefixtures("real_zookeeper")
def test_ensemble_without_quorum_is_repaired_or_replaced() -> None:
    """Killed and frozen servers return; an ensemble with an exited server is replaced."""
    with Shared(lambda: ZooKeeperEnsemble(3), repair_ensemble) as shared:
        first = shared.take()
        leader, follower = first.leader(), first.followers()[0]
        leader.kill()
        freeze(follower)
        assert first is shared.take()
        process = first.leader().process
        process.signal(signal.SIGKILL)
        process.wait()
        assert first is not shared.take()
        shared.take().leader()
