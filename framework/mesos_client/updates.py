"""Queue of an executor's status updates, resent until the agent acknowledges them."""

from __future__ import annotations

import logging
import math
import threading
import time
import uuid
from typing import Any, Callable, Mapping

from mesos_client.results import Rejected, SendResult

from .http import decode_data, encode_data

#: Seconds until an accepted but unacknowledged update is resent. Agents detect duplicates by uuid.
RESEND_SECONDS = 10.0
#: Seconds between retries of a failed update, and maximum seconds while sending it raises.
RETRY_SECONDS, MAX_RETRY_SECONDS = 1.0, 30.0
_BAD_REQUEST = 400

logger = logging.getLogger(__name__)


class StatusUpdates:
    """Updates in order, and tasks, that the agent has not acknowledged. Thread-safe.

    Apache Mesos, docs/executor-http-api.md: "SUBSCRIBE" (unacknowledged_updates, unacknowledged_tasks) and "UPDATE".
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._updates: dict[uuid.UUID, Mapping[str, Any]] = {}
        #: Monotonic time at which the agent last accepted each update.
        self._sent: dict[uuid.UUID, float] = {}
        self._announced: set[uuid.UUID] = set()
        self._tasks: dict[str, Mapping[str, Any]] = {}
        self._online = self._closed = False

    def launched(self, task: Mapping[str, Any]) -> None:
        """Record the TaskInfo of a launch."""
        with self._changed:
            self._tasks[task["task_id"]["value"]] = task

    def add(self, status: Mapping[str, Any]) -> uuid.UUID:
        """Add a status and missing metadata. Raises ValueError without task_id or state."""
        for name in ("task_id", "state"):
            if name not in status:
                raise ValueError(f"status update: {name} is required")
        identity = uuid.UUID(bytes=decode_data(status["uuid"])) if "uuid" in status else uuid.uuid4()
        defaults = {"timestamp": time.time(), "source": "SOURCE_EXECUTOR"}
        with self._changed:
            self._updates[identity] = {**defaults, **status, "uuid": encode_data(identity.bytes)}
            self._changed.notify_all()
        return identity

    def acknowledged(self, task_id: str, identity: uuid.UUID) -> None:
        """Forget an acknowledged update, and its task, because the agent now has both."""
        with self._changed:
            self._updates.pop(identity, None)
            self._sent.pop(identity, None)
            self._tasks.pop(task_id, None)
            self._changed.notify_all()

    def announce(self) -> tuple[list[Mapping[str, Any]], list[Mapping[str, Any]]]:
        """Return the unacknowledged updates and tasks for SUBSCRIBE."""
        with self._changed:
            self._announced = set(self._updates)
            return list(self._updates.values()), list(self._tasks.values())

    def online(self) -> None:
        """Record a successful SUBSCRIBE; the announced updates count as sent."""
        with self._changed:
            self._sent, self._online = dict.fromkeys(self._announced, time.monotonic()), True
            self._changed.notify_all()

    def offline(self) -> None:
        """Record the loss of the stream; all updates count as unsent."""
        with self._changed:
            self._sent, self._online = {}, False

    def close(self) -> None:
        """Make `deliver` return."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def deliver(self, send: Callable[[Mapping[str, Any]], SendResult]) -> None:
        """Send due updates in order until closed; runs in the sender's thread."""
        delay = RETRY_SECONDS
        while True:
            identity = self._next_due()
            if identity is None:
                return
            status = self._updates.get(identity)
            if status is None:
                continue
            try:
                result, delay = send(status), RETRY_SECONDS
            except Exception:  # this thread must survive: it sends how the task ends
                logger.exception("status update not sent; retrying in %g s", delay)
                self._pause(delay)
                delay = min(2 * delay, MAX_RETRY_SECONDS)
            else:
                self._settle(identity, result)

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
        """Return the update that is due first, and the seconds until then."""
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
                # The agent will never accept this update, which would block all later ones.
                self._updates.pop(identity, None)
                self._changed.notify_all()
            else:
                self._pause(RETRY_SECONDS)

    def _pause(self, seconds: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._closed, seconds)
