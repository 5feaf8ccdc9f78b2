"""A program for a real agent: one task that runs until there is a file `finish` in its working directory.

    python -m wire.executor

It writes what it sees, a JSON line each, to `seen` in its working directory.
"""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

from mesos_client.executor import ExecutorDriver

LOOK_AGAIN = 0.05  # seconds


class Task:
    """Runs the one task."""

    def __init__(self) -> None:
        self.ended = threading.Event()
        self.task_id: dict[str, Any] = {}
        self.driver = ExecutorDriver(on_event=self.on_event, on_state=self.on_state, environ=os.environ)

    def on_event(self, event: Any) -> None:
        see(event)
        if event["type"] == "LAUNCH":
            self.task_id = event["launch"]["task"]["task_id"]
            self.update("TASK_RUNNING")
            threading.Thread(target=self.work, daemon=True).start()
        elif event["type"] in ("KILL", "SHUTDOWN"):
            self.end("TASK_KILLED")

    def on_state(self, state: Any) -> None:
        see({"type": type(state).__name__, "reason": state.reason})
        if type(state).__name__ == "Aborted":
            self.ended.set()

    def work(self) -> None:
        while not Path("finish").exists():
            self.ended.wait(LOOK_AGAIN)
        self.end("TASK_FINISHED")

    def end(self, state: str) -> None:
        self.update(state)
        see({"type": "sent", "state": state})
        threading.Thread(target=self.leave, daemon=True).start()

    def leave(self) -> None:
        see({"type": "left", "acknowledged": self.driver.wait_acknowledged(60)})
        self.ended.set()

    def update(self, state: str) -> None:
        self.driver.send_update({"task_id": self.task_id, "state": state})


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
