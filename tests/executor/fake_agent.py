"""Executor without an agent: `TaskRunner` with JSON lines on two pipes.

Arguments: descriptor to read agent events from, descriptor to write status updates and messages to, and times to change
as MODULE.NAME=SECONDS. Two events are not Mesos': GONE, the driver has given up; SLOW, from now on no message gets
through. A process of its own, because it becomes a subreaper and waits for all its children.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import threading
import uuid
from collections.abc import Mapping
from typing import Any

from mesos_client.results import DriverAborted
from tf_executor.process.tree import become_subreaper, close_descriptors_on_exec, reset_signals
from tf_executor.process.watchdog import start_watchdog
from tf_executor.runner import TaskRunner

events, updates = open(int(sys.argv[1])), open(int(sys.argv[2]), "w", buffering=1)  # noqa: PTH123, SIM115
is_slow = False
for change in sys.argv[3:]:
    name, _, seconds = change.partition("=")
    module, _, constant = name.rpartition(".")
    assert hasattr(importlib.import_module(f"tf_executor.{module}"), constant), change
    setattr(sys.modules[f"tf_executor.{module}"], constant, float(seconds))


def send(status: Mapping[str, Any]) -> uuid.UUID:
    updates.write(json.dumps(status) + "\n")
    return uuid.uuid5(uuid.NAMESPACE_OID, status["state"])


def tell(data: bytes) -> bool:
    if is_slow:
        threading.Event().wait()
    updates.write(json.dumps({"message": data.decode()}) + "\n")
    return True


def read() -> None:
    global is_slow
    for line in events:
        body = json.loads(line)
        if body["type"] == "SLOW":
            is_slow = True
        else:
            runner.put(DriverAborted(body["gone"]["reason"]) if body["type"] == "GONE" else body)


reset_signals()
close_descriptors_on_exec()
guard = start_watchdog(os.environ)
become_subreaper()
runner = TaskRunner(send, tell, os.environ, str(os.getcwd()), guard)  # noqa: PTH109
runner.stop_on_signals()
threading.Thread(target=read, daemon=True).start()
sys.exit(runner.run())
