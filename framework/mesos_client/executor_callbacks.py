"""Optional.

Calls an object with pymesos' Executor methods, so that code written for pymesos runs on the hardened driver.
"""

from __future__ import annotations

from typing import Any, Mapping

Json = Mapping[str, Any]


class ExecutorCallbacks:
    """Does nothing without such an object."""

    #: pymesos' name for it.
    executor: Any
    _was_registered = False

    def _callback(self, event: Json) -> None:
        if self.executor is None:
            return
        kind = event.get("type", "")
        body = event.get(kind.lower(), {})
        if kind == "SUBSCRIBED":
            self._callback_subscribed(body)
        elif kind == "LAUNCH":
            self.executor.launchTask(self, body["task"])
        elif kind == "LAUNCH_GROUP":
            self.executor.launchTaskGroup(self, body["task_group"]["tasks"])
        elif kind == "KILL":
            self.executor.killTask(self, body["task_id"])
        elif kind == "MESSAGE":
            self.executor.frameworkMessage(self, body["data"])
        elif kind == "SHUTDOWN":
            self.executor.shutdown(self)
        elif kind == "ERROR":
            self.executor.error(self, body.get("message", ""))

    def _callback_subscribed(self, info: Json) -> None:
        if self._was_registered:
            self.executor.reregistered(self, info["agent_info"])
        else:
            self._was_registered = True
            self.executor.registered(self, info["executor_info"], info["framework_info"], info["agent_info"])

    def _callback_disconnected(self) -> None:
        if self.executor is not None:
            self.executor.disconnected(self)
