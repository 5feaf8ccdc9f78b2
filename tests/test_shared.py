"""Shared servers are repaired or replaced when a test takes them."""

from __future__ import annotations

from contextlib import contextmanager

from kit.shared import Shared
from mesos_local.host import MesosLocalError


def test_shared_resource_beyond_repair_is_replaced() -> None:
    """One test's damage must not fail the tests after it."""
    numbers, stopped, damaged = iter("abc"), [], []

    @contextmanager
    def serve():
        name = next(numbers)
        yield name
        stopped.append(name)

    def repair(name) -> None:
        if name in damaged:
            raise MesosLocalError("damaged")

    with Shared(serve, repair) as shared:
        assert ["a", "a"] == [shared.take(), shared.take()]
        damaged.append("a")
        assert ["b", "b"] == [shared.take(), shared.take()]
        assert ["a"] == stopped
    assert ["a", "b"] == stopped
