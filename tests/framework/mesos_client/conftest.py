"""Drivers in this process, what they report, and certificates for them."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from mesos_client.results import DriverAborted
from mesos_client.scheduler import SchedulerDriver
from wire.client import FRAMEWORK, acknowledge
from wire.peer import PATIENCE


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


class Scheduler(Recorder):
    """A started driver and what it reports."""

    def __init__(self, master: str, info: dict[str, Any], **options: Any) -> None:
        super().__init__()
        self.driver = SchedulerDriver(info, master, on_event=self.reports.put, on_state=self.reports.put, **options)
        self.driver.start()

    def wait(self, kind: str) -> Any:
        """Return the next event or state of that kind; fail if the driver aborts first."""
        while True:
            report = self.next()
            if isinstance(report, dict) and report["type"] == kind:
                return report.get(kind.lower())
            if type(report).__name__ == kind:
                return report
            assert not isinstance(report, DriverAborted), report

    def state_after(self, known: str) -> str:
        """Return the next state other than `known`; acknowledge every update."""
        while True:
            status = self.wait("UPDATE")["status"]
            self.driver.send(acknowledge(status))
            if status["state"] != known:
                return str(status["state"])


@pytest.fixture
def scheduler_of() -> Iterator[Callable[..., Scheduler]]:
    """Make schedulers on real masters; their frameworks are removed after the test."""
    made: list[Scheduler] = []

    def make(master: str, info: dict[str, Any] | None = None, **options: Any) -> Scheduler:
        made.append(Scheduler(master, info or {**FRAMEWORK, "failover_timeout": 60.0}, **options))
        return made[-1]

    yield make
    for one in made:
        one.driver.teardown()
        one.driver.stop()


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
