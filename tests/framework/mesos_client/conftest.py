"""Drivers in this process, what they report, and certificates for them."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from mesos_client.scheduler import SchedulerDriver
from wire.certificates import Certificates
from wire.peer import PATIENCE
from wire.process import FRAMEWORK


class Recorder:
    """Collects what a driver reports."""

    def __init__(self) -> None:
        self.reports: queue.Queue[Any] = queue.Queue()

    def next(self) -> Any:
        return self.reports.get(timeout=PATIENCE)

    def wait_event(self, kind: str) -> dict[str, Any]:
        while True:
            report = self.next()
            if isinstance(report, dict) and report["type"] == kind:
                return report


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def driver_of(recorder: Recorder) -> Iterator[Callable[..., SchedulerDriver]]:
    """Make drivers that are stopped with the test."""
    made = []

    def make(address: Any, framework: dict[str, Any] = FRAMEWORK, **options: Any) -> SchedulerDriver:
        driver = SchedulerDriver(
            framework, address, on_event=recorder.reports.put, on_state=recorder.reports.put, **options
        )
        made.append(driver)
        return driver

    yield make
    for driver in made:
        driver.stop()


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates.make(tmp_path_factory.mktemp("certificates"))
