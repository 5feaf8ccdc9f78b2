"""The executor's status updates, kept until the agent acknowledges them."""

from __future__ import annotations

import math
import threading
import time
import uuid
from typing import Any, Callable, Mapping

from mesos_client.base64_data import decode_data, encode_data
from mesos_client.results import Rejected, SendResult

#: Seconds after which an update that was taken but not acknowledged is sent again. The agent knows duplicates by
#: their uuid.
RESEND_SECONDS = 10.0
#: Seconds before a failed update is tried again.
RETRY_SECONDS = 1.0
_BAD_REQUEST = 400


class Updates:
    """Updates in the order they were made, and the tasks that the agent must be told of. Safe for all threads.

    Sources: docs/executor-http-api.md of Apache Mesos, "SUBSCRIBE" (unacknowledged_updates, unacknowledged_tasks)
    and "UPDATE".
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._updates: dict[uuid.UUID, Mapping[str, Any]] = {}
        #: When each was last taken by the agent, on the monotonic clock.
        self._sent: dict[uuid.UUID, float] = {}
        self._announced: set[uuid.UUID] = set()
        self._tasks: dict[str, Mapping[str, Any]] = {}
        self._online = self._closed = False

    # What happens to updates and tasks

    def launched(self, task: Mapping[str, Any]) -> None:
        """The agent gave us this TaskInfo."""
        with self._changed:
            self._tasks[task["task_id"]["value"]] = task

    def add(self, status: Mapping[str, Any]) -> uuid.UUID:
        """Keep `status`, completed with uuid, timestamp and source; wake the sender.

        Raise ValueError without task_id or state.
        """
        for name in ("task_id", "state"):
            if name not in status:
                raise ValueError(f"a status update needs {name}")
        identity = uuid.UUID(bytes=decode_data(status["uuid"])) if "uuid" in status else uuid.uuid4()
        defaults = {"timestamp": time.time(), "source": "SOURCE_EXECUTOR"}
        with self._changed:
            self._updates[identity] = {**defaults, **status, "uuid": encode_data(identity.bytes)}
            self._changed.notify_all()
        return identity

    def acknowledged(self, task_id: str, identity: uuid.UUID) -> None:
        """The agent has stored the update, so it knows the task too."""
        with self._changed:
            self._updates.pop(identity, None)
            self._sent.pop(identity, None)
            self._tasks.pop(task_id, None)
            self._changed.notify_all()

    def wait_empty(self, timeout: float | None) -> bool:
        """Wait until all are acknowledged; return whether they are."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._updates, timeout)

    # The stream comes and goes

    def announce(self) -> tuple[list[Mapping[str, Any]], list[Mapping[str, Any]]]:
        """Return the updates and tasks for SUBSCRIBE."""
        with self._changed:
            self._announced = set(self._updates)
            return list(self._updates.values()), list(self._tasks.values())

    def online(self) -> None:
        """SUBSCRIBE succeeded: what it announced need not be sent once more."""
        with self._changed:
            self._sent, self._online = dict.fromkeys(self._announced, time.monotonic()), True
            self._changed.notify_all()

    def offline(self) -> None:
        """The stream is lost: what was sent may be lost with it."""
        with self._changed:
            self._sent, self._online = {}, False

    def close(self) -> None:
        """End `deliver`."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    # The sender's thread

    def deliver(self, send: Callable[[Mapping[str, Any]], SendResult]) -> None:
        """Send what is due, one after the other, until closed."""
        while True:
            identity = self._next_due()
            if identity is None:
                return
            status = self._updates.get(identity)
            if status is not None:
                self._settle(identity, send(status))

    def _next_due(self) -> uuid.UUID | None:
        with self._changed:
            while not self._closed:
                if self._online and self._updates:
                    identity, wait = self._oldest_due(time.monotonic())
                    if wait <= 0:
                        return identity
                    self._changed.wait(wait)
                else:
                    self._changed.wait()
            return None

    def _oldest_due(self, now: float) -> tuple[uuid.UUID, float]:
        """The update that is due first, in the order they were made, and in how many seconds."""
        for identity in self._updates:
            if self._sent.get(identity, -math.inf) + RESEND_SECONDS <= now:
                return identity, 0.0
        identity = min(self._updates, key=self._sent.__getitem__)
        return identity, self._sent[identity] + RESEND_SECONDS - now

    def _settle(self, identity: uuid.UUID, result: SendResult) -> None:
        with self._changed:
            if result.ok:
                self._sent[identity] = time.monotonic()
            elif isinstance(result, Rejected) and result.status == _BAD_REQUEST:
                # The agent will never take it; kept, it would hold up every later update.
                self._updates.pop(identity, None)
                self._changed.notify_all()
            else:
                self._changed.wait_for(lambda: self._closed, RETRY_SECONDS)
