"""A program that runs a stock or a hardened driver, so that one scenario can be tried on both.

    python -m wire.client {stock|hardened} {scheduler|executor} ADDRESS OPTIONS

Each callback is a JSON line on stdout, commands are JSON lines on stdin, and each one's result is a line too. It is a
process of its own because a stock driver interrupts its main thread, and because that thread may never come back.
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


class Callbacks:
    """Every callback of pymesos: tells of itself, and raises when `raising` says so."""

    def __init__(self, raising: dict[str, str], killing_on: str) -> None:
        self._raising, self._killing_on = raising, killing_on

    def __getattr__(self, name: str) -> Any:
        def callback(driver: Any, *arguments: Any) -> None:
            say(callback=name, arguments=arguments)
            if name == self._killing_on:
                driver.killTask({"value": "task-1"})
            if name in self._raising:
                raise {"OSError": OSError, "ValueError": ValueError}[self._raising[name]]("raised on purpose")

        return callback


def make(kind: str, role: str, address: str, options: dict[str, Any]) -> Any:
    callbacks = Callbacks(options.get("raising", {}), options.get("killing_on", ""))
    credentials = options.get("credentials", {})
    if role == "executor":
        os.environ.update(options.get("environ", {}), MESOS_AGENT_ENDPOINT=address)
    if kind == "stock":
        import pymesos

        if role == "executor":
            return pymesos.MesosExecutorDriver(callbacks)
        return pymesos.MesosSchedulerDriver(
            callbacks, options["framework"], address, implicit_acknowledgements=False, **credentials
        )
    import mesos_client

    reports = {
        "on_event": lambda event: say(event=event),
        "on_state": lambda state: say(state=type(state).__name__, reason=state.reason),
    }
    if role == "executor":
        return mesos_client.ExecutorDriver(environ=os.environ, executor=callbacks, **reports)
    extra = {name: options[name] for name in ("call_timeout",) if name in options}
    if credentials:
        extra["credentials"] = mesos_client.Basic(**credentials)
    return mesos_client.SchedulerDriver(options["framework"], address, scheduler=callbacks, **reports, **extra)


class Client:
    """The commands."""

    def __init__(self, kind: str, role: str, address: str, options: dict[str, Any]) -> None:
        self.kind, self.role, self.options = kind, role, options
        self.driver = make(kind, role, address, options)

    def start(self) -> None:
        self.driver.start()

    def abort(self) -> dict[str, Any]:
        self.driver.abort()
        self.driver.join()
        return self.options.get("framework", {})

    def stop(self) -> None:
        self.driver.stop()

    def join(self) -> None:
        self.driver.join()

    def connected(self) -> bool:
        say(asking="connected")
        return bool(self.driver.connected)

    def kill(self) -> str:
        return str(self.driver.killTask({"value": "task-1"}))

    def kill_in_background(self) -> None:
        threading.Thread(target=self.run, args=("kill",), daemon=True).start()

    def reconcile(self) -> None:
        self.driver.reconcileTasks([{"task_id": {"value": "task-1"}, "agent_id": {"value": "agent-1"}}])

    def longest_call(self) -> float:
        return float(self.driver._timeout)

    def update(self, state: str) -> None:
        self.driver.sendStatusUpdate({"task_id": {"value": "task-1"}, "state": state})

    def wait_acknowledged(self) -> bool:
        return bool(self.driver.wait_acknowledged(30))

    def second(self, address: str) -> None:
        """Another driver in this process, without credentials."""
        options = copy.deepcopy({**self.options, "credentials": {}})
        options["framework"].pop("id", None)  # a stock driver writes it into its caller's dict
        other = Client(self.kind, self.role, address, options)
        other.start()
        self.other = other

    def second_kill(self) -> None:
        self.other.kill()

    def backoffs(self) -> list[float]:
        return [self.driver._backoff(attempt) for attempt in range(4)]

    def run(self, command: str, *arguments: Any) -> None:
        try:
            say(did=command, result=getattr(self, command)(*arguments))
        except Exception as error:
            say(did=command, raised=f"{type(error).__name__}: {error}")


def main() -> None:
    kind, role, address, options = sys.argv[1:]
    client = Client(kind, role, address, json.loads(options))
    client.start()
    for line in sys.stdin:
        command, *arguments = json.loads(line)
        client.run(command, *arguments)
    if kind == "hardened":
        client.stop()
    say(left=[thread.name for thread in threading.enumerate() if thread is not threading.main_thread()])
    if kind == "stock":
        os._exit(0)  # its thread would interrupt the interpreter's end, or send TEARDOWN


if __name__ == "__main__":
    main()
