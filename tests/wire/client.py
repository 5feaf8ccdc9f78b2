"""A driver and what it reports, in the words of pymesos' callbacks."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from mesos_client.executor import ExecutorDriver
from mesos_client.scheduler import SchedulerDriver
from wire.peer import EXECUTOR_ID, FRAMEWORK_ID, PATIENCE

ROOT = Path(__file__).resolve().parents[2]
FRAMEWORK = {"name": "f", "user": "u", "roles": ["r"], "capabilities": [{"type": "MULTI_ROLE"}]}
ENVIRON = {
    "MESOS_FRAMEWORK_ID": FRAMEWORK_ID["value"],
    "MESOS_EXECUTOR_ID": EXECUTOR_ID["value"],
    "MESOS_CHECKPOINT": "1",
    "MESOS_RECOVERY_TIMEOUT": "15mins",
    "MESOS_SUBSCRIPTION_BACKOFF_MAX": "200ms",
}
#: Event -> the callback of pymesos with the same meaning.
CALLBACKS = {
    "SUBSCRIBED": "registered",
    "OFFERS": "resourceOffers",
    "UPDATE": "statusUpdate",
    "MESSAGE": "frameworkMessage",
    "ERROR": "error",
    "LAUNCH": "launchTask",
    "SHUTDOWN": "shutdown",
}
C = TypeVar("C", bound="Client")
KILL = {"type": "KILL", "kill": {"task_id": {"value": "task-1"}}}


def acknowledge(status: dict[str, Any]) -> dict[str, Any]:
    """Return the ACKNOWLEDGE call of a status."""
    return {"type": "ACKNOWLEDGE", "acknowledge": {name: status[name] for name in ("agent_id", "task_id", "uuid")}}


class Client:
    """Context manager that starts and stops a driver.

    `raising`: the exception that a callback raises. `killing_on`: the callback that kills a task. Other options are
    those of the driver.
    """

    def __init__(
        self, address: str, raising: Mapping[str, Exception] | None = None, killing_on: str = "", **options: Any
    ) -> None:
        self._changed = threading.Condition()
        self._raising, self._killing_on = raising or {}, killing_on
        self._reports: list[dict[str, Any]] = []
        self._before = set(threading.enumerate())
        self.driver: Any = self.make(address, on_event=self._on_event, on_state=self._on_state, **options)

    def make(self, address: str, **options: Any) -> Any:
        raise NotImplementedError

    def __enter__(self: C) -> C:
        self.driver.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.driver.stop()

    def report(self, **report: Any) -> None:
        with self._changed:
            self._reports.append(report)
            self._changed.notify_all()

    def found(self, **fields: Any) -> list[dict[str, Any]]:
        """Return the reports with these fields, in their order."""
        return [report for report in list(self._reports) if fields.items() <= report.items()]

    def wait(self, count: int = 1, **fields: Any) -> dict[str, Any]:
        """Wait for the report with these fields; the `count`th of them."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.found(**fields)) >= count, PATIENCE), self._reports
        return self.found(**fields)[count - 1]

    def wait_event(self, kind: str, count: int = 1) -> dict[str, Any]:
        event: dict[str, Any] = self.wait(count, kind=kind)["event"]
        return event

    def kill(self) -> str:
        """Kill task-1; return the result as a text."""
        return str(self.driver.send(KILL))

    def new_threads(self) -> set[threading.Thread]:
        """Return the threads that have started since this client was made."""
        return set(threading.enumerate()) - self._before

    def _on_event(self, event: dict[str, Any]) -> None:
        self.report(event=event, kind=event["type"])
        name = CALLBACKS.get(event["type"])
        if name is None:
            return
        self.report(callback=name, arguments=list(event.get(event["type"].lower(), {}).values()))
        if name == self._killing_on:
            self.kill()
        if name in self._raising:
            raise self._raising[name]

    def _on_state(self, state: Any) -> None:
        self.report(state=type(state).__name__, reason=state.reason)


class SchedulerClient(Client):
    """A scheduler's driver."""

    def make(self, address: str, **options: Any) -> SchedulerDriver:
        framework = options.pop("framework", FRAMEWORK)
        return SchedulerDriver(framework, address, **options)


class ExecutorClient(Client):
    """An executor's driver at an agent."""

    def make(self, address: str, **options: Any) -> ExecutorDriver:
        environ = {**options.pop("environ", ENVIRON), "MESOS_AGENT_ENDPOINT": address}
        return ExecutorDriver(environ=environ, **options)

    def update(self, state: str) -> None:
        self.driver.send_update({"task_id": {"value": "task-1"}, "state": state})
