"""Run a driver in a process of its own.

    python -m wire.client {scheduler|executor} ADDRESS OPTIONS

Each callback is a JSON line on stdout, commands are JSON lines on stdin, and each one's result is a line too.
"""

from __future__ import annotations

import copy
import json
import os
import sys
import threading
from typing import Any

_output = threading.Lock()


def say(**line: Any) -> None:
    with _output:
        print(json.dumps(line, default=str), flush=True)


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
KILL = {"type": "KILL", "kill": {"task_id": {"value": "task-1"}}}


def acknowledge(status: dict[str, Any]) -> dict[str, Any]:
    """Return the ACKNOWLEDGE call of a status."""
    return {"type": "ACKNOWLEDGE", "acknowledge": {name: status[name] for name in ("agent_id", "task_id", "uuid")}}


def kill(driver: Any) -> Any:
    """Kill task-1 with the driver's method."""
    return driver.send(KILL)


class Callbacks:
    """All callbacks of pymesos: each prints itself, and raises if `raising` names it."""

    def __init__(self, raising: dict[str, str], killing_on: str) -> None:
        self._raising, self._killing_on = raising, killing_on

    def __getattr__(self, name: str) -> Any:
        def callback(driver: Any, *arguments: Any) -> None:
            say(callback=name, arguments=arguments)
            if name == self._killing_on:
                kill(driver)
            if name in self._raising:
                raise {"OSError": OSError, "ValueError": ValueError}[self._raising[name]]("raised on purpose")

        return callback


def make(role: str, address: str, options: dict[str, Any]) -> Any:
    callbacks = Callbacks(options.get("raising", {}), options.get("killing_on", ""))
    credentials = options.get("credentials", {})
    if role == "executor":
        os.environ.update(options.get("environ", {}), MESOS_AGENT_ENDPOINT=address)
    from mesos_client.credentials import BasicCredentials
    from mesos_client.executor import ExecutorDriver
    from mesos_client.scheduler import SchedulerDriver

    def on_event(event: dict[str, Any]) -> None:
        say(event=event)
        if event["type"] in CALLBACKS:
            getattr(callbacks, CALLBACKS[event["type"]])(driver, *event.get(event["type"].lower(), {}).values())

    reports = {
        "on_event": on_event,
        "on_state": lambda state: say(state=type(state).__name__, reason=state.reason),
    }
    if role == "executor":
        driver = ExecutorDriver(environ=os.environ, **reports)
        return driver
    extra = {name: options[name] for name in ("call_timeout",) if name in options}
    if credentials:
        extra["credentials"] = BasicCredentials(**credentials)
    driver = SchedulerDriver(options["framework"], address, **reports, **extra)
    return driver


class Client:
    """The commands."""

    def __init__(self, role: str, address: str, options: dict[str, Any]) -> None:
        self.role, self.options = role, options
        self.driver = make(role, address, options)

    def start(self) -> None:
        self.driver.start()

    def abort(self) -> dict[str, Any]:
        self.driver.abort()
        self.driver.join()
        framework: dict[str, Any] = self.options.get("framework", {})
        return framework

    def stop(self) -> None:
        self.driver.stop()

    def join(self) -> None:
        self.driver.join()

    def connected(self) -> bool:
        say(asking="connected")
        return bool(self.driver.connected)

    def kill(self) -> str:
        return str(kill(self.driver))

    def kill_in_background(self) -> None:
        threading.Thread(target=self.run, args=("kill",), daemon=True).start()

    def reconcile(self) -> None:
        tasks = [{"task_id": {"value": "task-1"}, "agent_id": {"value": "agent-1"}}]
        self.driver.send({"type": "RECONCILE", "reconcile": {"tasks": tasks}})

    def longest_call(self) -> float:
        return float(self.driver._timeout)

    def update(self, state: str) -> None:
        self.driver.send_update({"task_id": {"value": "task-1"}, "state": state})

    def second(self, address: str) -> None:
        """Start another driver in this process, without credentials."""
        options = copy.deepcopy({**self.options, "credentials": {}})
        other = Client(self.role, address, options)
        other.start()
        self.other = other

    def second_kill(self) -> None:
        self.other.kill()

    def run(self, command: str, *arguments: Any) -> None:
        try:
            say(did=command, result=getattr(self, command)(*arguments))
        except Exception as error:
            say(did=command, raised=f"{type(error).__name__}: {error}")


def main() -> None:
    role, address, options = sys.argv[1:]
    client = Client(role, address, json.loads(options))
    client.start()
    for line in sys.stdin:
        command, *arguments = json.loads(line)
        client.run(command, *arguments)
    client.stop()
    say(left=[thread.name for thread in threading.enumerate() if thread is not threading.main_thread()])


if __name__ == "__main__":
    main()
