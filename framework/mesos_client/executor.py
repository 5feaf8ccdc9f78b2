"""`ExecutorDriver`: a pymesos executor driver with its connection handling replaced.

Standard library and pymesos only.
"""

from __future__ import annotations

import logging
import random
import threading
import uuid
from typing import Any, Mapping

from mesos_client._pymesos import MesosExecutorDriver
from mesos_client.agent_environment import AgentEnvironment
from mesos_client.backoff import Recovery
from mesos_client.base64_data import decode_data, encode_data
from mesos_client.calls import JSON_HEADERS, Session, encode
from mesos_client.clock import Clock
from mesos_client.credentials import Credentials
from mesos_client.executor_callbacks import ExecutorCallbacks
from mesos_client.process import OnEvent, OnState, StreamProcess, authorization
from mesos_client.results import Disconnected, Rejected, SendResult
from mesos_client.stdlib_transport import StdlibTransport
from mesos_client.subscriber import Loss
from mesos_client.transport import Request, Stream
from mesos_client.updates import Updates

logger = logging.getLogger(__name__)


# pymesos has no annotations, so that mypy takes the base class for Any.
class ExecutorDriver(ExecutorCallbacks, StreamProcess, MesosExecutorDriver):  # type: ignore[misc]
    """Serves the agent that `environ` names, through its restarts; keeps each update until the agent has stored it.

    `on_event` gets each event but HEARTBEAT whole, as a plain dict, `on_state` gets Disconnected and Aborted; both
    are called in the driver's thread and should only enqueue. Tasks may be launched twice after the agent's restart.
    Aborted comes when the agent stays away for MESOS_RECOVERY_TIMEOUT, at once when the framework does not
    checkpoint, and on an ERROR event. SHUTDOWN is only reported: the driver ends no process, and stays subscribed so
    that last updates are acknowledged. `executor` is an object with pymesos' Executor callbacks, called besides
    `on_event`. Raises ValueError for an environment that no agent makes.
    """

    def __init__(
        self,
        *,
        on_event: OnEvent,
        on_state: OnState,
        environ: Mapping[str, str],
        call_timeout: float = 10.0,
        executor: Any = None,
        clock: Clock = Clock(),  # noqa: B008 - it has no state
    ) -> None:
        # pymesos' own constructor reads os.environ, and MESOS_CHECKPOINT=0 as true: only its names are kept.
        self.environment = AgentEnvironment.read(environ)
        self.framework_id = {"value": self.environment.framework_id}
        self.executor_id = {"value": self.environment.executor_id}
        self.checkpoint = self.environment.checkpoint
        self.grace_shutdown_period = self.environment.shutdown_grace
        self.executor = executor
        self._updates = Updates()
        self._recovery = Recovery(self.environment.backoff_max)
        self._away_since = clock.now()
        self._ever_subscribed = False
        self._sender = threading.Thread(
            target=self._updates.deliver, args=(self._send_status,), name="mesos-executor-updates", daemon=True
        )
        token = self.environment.token
        credentials = Credentials(f"Bearer {token}" if token else None)
        transport = StdlibTransport(self.environment.tls)
        self._prepare(transport, credentials, on_event, on_state, "mesos-executor-events", call_timeout, clock)

    @property
    def master(self) -> str:
        """Base URL of the agent; pymesos' name."""
        return self.environment.agent

    def start(self) -> None:
        super().start()
        self._away_since = self._clock.now()
        self._sender.start()

    def stop(self, failover: bool = True) -> None:
        super().stop(failover)
        if self._sender.ident is not None and self._sender is not threading.current_thread():
            self._sender.join()

    def send_update(self, status: Mapping[str, Any]) -> uuid.UUID:
        """Keep and send a TaskStatus with at least task_id and state; never waits for the agent.

        Raise ValueError without those.
        """
        return self._updates.add({"executor_id": self.executor_id, **status})

    def wait_acknowledged(self, timeout: float | None = None) -> bool:
        """Wait, at most `timeout` seconds, until the agent has stored every update; return whether it has."""
        return self._updates.wait_empty(timeout)

    def send_message(self, data: bytes) -> SendResult:
        """To the scheduler, best effort."""
        return self._call("MESSAGE", {"message": {"data": encode_data(data)}})

    def sendStatusUpdate(self, status: Mapping[str, Any]) -> uuid.UUID:  # noqa: N802
        """pymesos' name of `send_update`."""
        return self.send_update(status)

    def sendFrameworkMessage(self, data: str) -> SendResult:  # noqa: N802
        """pymesos' name of `send_message`; `data` is base64 text."""
        return self.send_message(decode_data(data))

    # Calls

    def _identified(self, kind: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"type": kind, "framework_id": self.framework_id, "executor_id": self.executor_id, **body}

    def _call(self, kind: str, body: Mapping[str, Any]) -> SendResult:
        return self._post(self._identified(kind, body))

    def _send_status(self, status: Mapping[str, Any]) -> SendResult:
        result = self._call("UPDATE", {"update": {"status": status}})
        if isinstance(result, Rejected):
            logger.error("%s for %s: %s", status["state"], status["task_id"]["value"], result)
        return result

    def _halt(self) -> bool:
        self._updates.close()
        return super()._halt()

    # For the subscriber's thread

    def _subscription(self) -> Request:
        updates, tasks = self._updates.announce()
        subscribe = {
            "unacknowledged_updates": [{"status": status} for status in updates],
            "unacknowledged_tasks": tasks,
        }
        body = encode(self._identified("SUBSCRIBE", {"subscribe": subscribe}))
        headers = {**JSON_HEADERS, **authorization(self._credential()), "Connection": "close"}
        return Request(self.environment.endpoint, headers, body, self._call_timeout)

    def _received(self, event: dict[str, Any], session: Session, stream: Stream) -> None:
        kind = event.get("type")
        if kind == "HEARTBEAT":
            return
        if kind == "SUBSCRIBED":
            self._subscribed(session, stream)
        self._contained(self._note, event)
        self.process_event(event)
        self._contained(self._callback, event)
        if kind == "ERROR":
            self._give_up(str(event.get("error", {}).get("message", "")))

    def _subscribed(self, session: Session, stream: Stream) -> None:
        # An agent's heartbeats come every 30 minutes; it is on this host, so that its end closes the connection.
        stream.set_silence_limit(None)
        self._ever_subscribed = True
        self._establish(session)
        self._updates.online()

    def _note(self, event: Mapping[str, Any]) -> None:
        kind = event.get("type")
        if kind == "LAUNCH":
            self._updates.launched(event["launch"]["task"])
        elif kind == "LAUNCH_GROUP":
            for task in event["launch_group"]["task_group"]["tasks"]:
                self._updates.launched(task)
        elif kind == "ACKNOWLEDGED":
            body = event["acknowledged"]
            self._updates.acknowledged(body["task_id"]["value"], uuid.UUID(bytes=decode_data(body["uuid"])))

    def _lost(self, loss: Loss) -> float | None:
        self._updates.offline()
        if self._drop_session(loss.reason):
            self._away_since = self._clock.now()
            self._report(Disconnected(loss.reason))
            self._contained(self._callback_disconnected)
        if self._ever_subscribed and not self.checkpoint:
            self._give_up(f"the agent is lost ({loss.reason}) and the framework does not checkpoint")
            return None
        left = self._away_since + self.environment.recovery_timeout - self._clock.now()
        if left <= 0:
            self._give_up(f"agent did not come back within MESOS_RECOVERY_TIMEOUT ({loss.reason})")
            return None
        return min(left, self._recovery.delay(random.uniform))
