"""Executor for a real agent: its task runs until there is a file `finish`.

    python -m wire.executor

It writes what it sees, a JSON line each, to `seen` in its working directory.
"""

from __future__ import annotations

import base64
import json
import os
import queue
import threading
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any

from mesos_client.executor import ExecutorDriver

POLL_INTERVAL = 0.05  # seconds


class Task:
    """Run the task."""

    def __init__(self) -> None:
        self.ended = threading.Event()
        self.task_id: dict[str, Any] = {}
        self.acknowledged: queue.Queue[str] = queue.Queue()
        self.driver = ExecutorDriver(on_event=self.on_event, on_state=self.on_state, environ=os.environ)

    def on_event(self, event: Any) -> None:
        see(event)
        if event["type"] == "LAUNCH":
            self.task_id = event["launch"]["task"]["task_id"]
            self.update("TASK_RUNNING")
            threading.Thread(target=self.work, daemon=True).start()
        elif event["type"] in ("KILL", "SHUTDOWN"):
            self.end("TASK_KILLED")
        elif event["type"] == "ACKNOWLEDGED":
            self.acknowledged.put(event["acknowledged"]["uuid"])

    def on_state(self, state: Any) -> None:
        see({"type": type(state).__name__, "reason": state.reason})
        if type(state).__name__ == "DriverAborted":
            self.ended.set()

    def work(self) -> None:
        while not Path("finish").exists():
            self.ended.wait(POLL_INTERVAL)
        self.end("TASK_FINISHED")

    def end(self, state: str) -> None:
        last = self.update(state)
        see({"type": "sent", "state": state})
        threading.Thread(target=self.leave, args=(last,), daemon=True).start()

    def leave(self, last: uuid.UUID) -> None:
        with suppress(queue.Empty):
            while (identity := self.acknowledged.get(timeout=60)) != base64.b64encode(last.bytes).decode():
                see({"type": "earlier", "uuid": identity})
            see({"type": "left", "acknowledged": True})
        self.ended.set()

    def update(self, state: str) -> uuid.UUID:
        return self.driver.send_update({"task_id": self.task_id, "state": state})


def see(line: dict[str, Any]) -> None:
    with Path("seen").open("a") as seen:
        print(json.dumps(line), file=seen, flush=True)


def main() -> None:
    task = Task()
    task.driver.start()
    task.ended.wait()
    task.driver.stop()


if __name__ == "__main__":
    main()
