"""`ExecutorDriver`: Mesos executor driver, configured by the agent's environment.

Standard library and pymesos only. Sources: Apache Mesos, docs/executor-http-api.md, docs/ssl.md, src/slave/slave.cpp
and src/executor/executor.cpp.
"""

from __future__ import annotations

import logging
import os
import random
import re
import threading
import uuid
from dataclasses import dataclass, field
from typing import Any, Mapping
from urllib.parse import quote

from ._pymesos import MesosExecutorDriver
from .backoff import Clock
from .credentials import Credentials, Tls, Verify
from .http import HttpRequest, Subscription, decode_data, encode_data
from .results import DriverDisconnected, Rejected, SendResult
from .stream import OnEvent, OnState, RecordError, StreamLoss, StreamProcess, reading
from .transport import UNIX_SCHEME, Stream, Transport
from .updates import StatusUpdates

_SECONDS = {
    "ns": 1e-9,
    "us": 1e-6,
    "ms": 1e-3,
    "secs": 1.0,
    "mins": 60.0,
    "hrs": 3600.0,
    "days": 86400.0,
    "weeks": 604800.0,
}
_DURATION = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-z]+)\s*")


def parse_duration(text: str) -> float:
    """Convert a Mesos duration such as `1.5hrs` to seconds. Raises ValueError."""
    match = _DURATION.fullmatch(text)
    if match is None or match.group(2) not in _SECONDS:
        raise ValueError(f"invalid duration {text!r}; expected a number with one of the units {', '.join(_SECONDS)}")
    return float(match.group(1)) * _SECONDS[match.group(2)]


_PATH = "/api/v1/executor"
#: Answers with status 400 of an agent that does not know the executor (src/slave/http.cpp, `Http::executor`). They are
#: final: an agent answers 404 or 503 until it has recovered, so this one has lost its work directory, or was replaced.
_UNKNOWN_EXECUTOR = ("Framework cannot be found", "Executor cannot be found")
_ENDPOINT = "MESOS_AGENT_ENDPOINT"


@dataclass(frozen=True)
class AgentEnvironment:
    """Variables that an agent sets for its executor; durations in seconds."""

    #: Base URL of the agent.
    agent: str
    framework_id: str
    executor_id: str
    #: Whether the framework checkpoints: only then an executor may outlive its agent's process.
    checkpoint: bool = False
    #: Maximum wait for a lost agent.
    recovery_timeout: float = 900.0
    #: Maximum delay between attempts to subscribe.
    backoff_max: float = 2.0
    shutdown_grace: float = 5.0
    #: Authentication token; None if the agent does not require one.
    token: str | None = field(default=None, repr=False)
    #: None for plain HTTP.
    tls: Tls | None = None

    @property
    def max_reconnect_delay(self) -> float:
        """Maximum delay between attempts while the agent is away.

        A recovered agent waits `--executor_reregistration_timeout` for its executors, by default as long as
        `backoff_max`. A delay of `backoff_max` that starts just before the recovery could end too late; half cannot.
        """
        return self.backoff_max / 2

    @classmethod
    def read(cls, environ: Mapping[str, str]) -> AgentEnvironment:
        """Parse the variables. Raises ValueError naming an invalid one."""
        tls = _tls(environ)
        return cls(
            agent=_domain_socket(environ) or f"{'https' if tls else 'http'}://{_required(environ, _ENDPOINT)}",
            framework_id=_required(environ, "MESOS_FRAMEWORK_ID"),
            executor_id=_required(environ, "MESOS_EXECUTOR_ID"),
            # Agents always set it, to "1" or "0".
            checkpoint=environ.get("MESOS_CHECKPOINT") == "1",
            recovery_timeout=_duration(environ, "MESOS_RECOVERY_TIMEOUT", cls.recovery_timeout),
            backoff_max=_duration(environ, "MESOS_SUBSCRIPTION_BACKOFF_MAX", cls.backoff_max),
            shutdown_grace=_duration(environ, "MESOS_EXECUTOR_SHUTDOWN_GRACE_PERIOD", cls.shutdown_grace),
            token=environ.get("MESOS_EXECUTOR_AUTHENTICATION_TOKEN"),
            tls=tls,
        )


def _domain_socket(environ: Mapping[str, str]) -> str | None:
    """Return the domain socket's URL; None without --http_executor_domain_sockets."""
    path = environ.get("MESOS_DOMAIN_SOCKET")
    if not path:
        return None
    actor = _required(environ, "MESOS_SLAVE_PID").partition("@")[0]
    return f"{UNIX_SCHEME}://{quote(path, safe='')}/{actor}"


def _tls(environ: Mapping[str, str]) -> Tls | None:
    """Parse libprocess' TLS settings; None if TLS is off.

    The settings decide whether certificates are verified. Only scheme `openssl` also verifies host names. The client
    certificate is used if this user may read its files.
    """

    def on(name: str) -> bool:
        return environ.get(f"LIBPROCESS_SSL_{name}", "").lower() in ("1", "true")

    if not on("ENABLED"):
        return None
    verify: Verify = False
    if on("VERIFY_SERVER_CERT") or on("VERIFY_CERT"):
        verify = environ.get("LIBPROCESS_SSL_CA_FILE") or environ.get("LIBPROCESS_SSL_CA_DIR") or True
    files = environ.get("LIBPROCESS_SSL_CERT_FILE", ""), environ.get("LIBPROCESS_SSL_KEY_FILE", "")
    readable = all(os.access(path, os.R_OK) for path in files)
    checked = environ.get("LIBPROCESS_SSL_HOSTNAME_VALIDATION_SCHEME") == "openssl"
    return Tls(verify, files if readable else None, checked)


def _required(environ: Mapping[str, str], name: str) -> str:
    value = environ.get(name)
    if not value:
        raise ValueError(f"{name} is not set; agents set it for their executors")
    return value


def _duration(environ: Mapping[str, str], name: str, default: float) -> float:
    text = environ.get(name)
    if not text:
        return default
    try:
        return parse_duration(text)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error


logger = logging.getLogger(__name__)


# pymesos has no annotations, so the base class is Any for mypy.
class ExecutorDriver(StreamProcess, MesosExecutorDriver):  # type: ignore[misc]
    """Stay subscribed to the agent in `environ`, and resend unacknowledged updates.

    `on_event` receives each event except HEARTBEAT as a dict, `on_state` DriverDisconnected and DriverAborted. Both run
    in the driver's thread and should only enqueue. A restarted agent may launch a task a second time. The driver aborts
    when the agent is away for MESOS_RECOVERY_TIMEOUT. It aborts immediately on an ERROR event, if the agent does not
    know the executor, or if the agent is away and the framework does not checkpoint. SHUTDOWN is only passed on: the
    driver stays subscribed, so that the last updates are acknowledged. Raises ValueError for an invalid environment.
    """

    def __init__(
        self,
        *,
        on_event: OnEvent,
        on_state: OnState,
        environ: Mapping[str, str],
        call_timeout: float = 10.0,
        clock: Clock = Clock(),  # noqa: B008 - it has no state
    ) -> None:
        # pymesos' constructor reads os.environ, and MESOS_CHECKPOINT=0 as true; only its attribute names are kept.
        self.environment = AgentEnvironment.read(environ)
        self.framework_id = {"value": self.environment.framework_id}
        self.executor_id = {"value": self.environment.executor_id}
        self.checkpoint = self.environment.checkpoint
        self.grace_shutdown_period = self.environment.shutdown_grace
        self._updates = StatusUpdates()
        self._away_since = clock.now()
        self._ever_subscribed = False
        self._sender = threading.Thread(
            target=self._updates.deliver, args=(self._send_status,), name="mesos-executor-updates", daemon=True
        )
        token = self.environment.token
        credentials = Credentials(f"Bearer {token}" if token else None)
        transport = Transport(self.environment.tls, call_timeout)
        self._prepare(transport, credentials, on_event, on_state, "mesos-executor-events", call_timeout, clock)

    @property
    def master(self) -> str:
        """Base URL of the agent; pymesos calls it `master`."""
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
        """Enqueue a TaskStatus; raises ValueError without task_id and state."""
        return self._updates.add({"executor_id": self.executor_id, **status})

    def send_message(self, data: bytes) -> SendResult:
        """Send a message to the scheduler, best effort."""
        return self._post(self._identified("MESSAGE", {"message": {"data": encode_data(data)}}))

    # Calls

    def _identified(self, kind: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"type": kind, "framework_id": self.framework_id, "executor_id": self.executor_id, **body}

    def _send_status(self, status: Mapping[str, Any]) -> SendResult:
        result = self._post(self._identified("UPDATE", {"update": {"status": status}}))
        if isinstance(result, Rejected):
            logger.error("%s for %s: %s", status["state"], status["task_id"]["value"], result)
        return result

    def _halt(self) -> bool:
        self._updates.close()
        return super()._halt()

    # For the reader thread

    def _subscription(self) -> HttpRequest:
        updates, tasks = self._updates.announce()
        statuses = [{"status": status} for status in updates]
        subscribe = {"unacknowledged_updates": statuses, "unacknowledged_tasks": tasks}
        body = self._identified("SUBSCRIBE", {"subscribe": subscribe})
        return self._subscribe_request(self.environment.agent + _PATH, body)

    def process_event(self, event: dict[str, Any]) -> None:
        """Pass on one event."""
        try:
            self._note(event)
        except RecordError as error:
            logger.warning("%s", error)
        except Exception:
            logger.exception("%s event not recorded after an internal error", event.get("type"))
        super().process_event(event)

    def _subscribed(self, event: Mapping[str, Any], session: Subscription, stream: Stream) -> None:  # noqa: ARG002
        # Agents send heartbeats only every 30 minutes, but their exit closes this local connection.
        stream.set_silence_limit(None)
        self._ever_subscribed = True
        self._establish(session)
        self._updates.online()

    def _note(self, event: Mapping[str, Any]) -> None:
        kind, tasks, acknowledged = event.get("type"), [], []
        with reading(event):
            if kind == "LAUNCH":
                tasks = [event["launch"]["task"]]
            elif kind == "LAUNCH_GROUP":
                tasks = event["launch_group"]["task_group"]["tasks"]
            elif kind == "ACKNOWLEDGED":
                body = event["acknowledged"]
                acknowledged = [(str(body["task_id"]["value"]), uuid.UUID(bytes=decode_data(body["uuid"])))]
            tasks = list({task["task_id"]["value"]: task for task in tasks}.values())
        for task in tasks:
            self._updates.launched(task)
        for task_id, identity in acknowledged:
            self._updates.acknowledged(task_id, identity)

    def _lost(self, loss: StreamLoss) -> float | None:
        self._updates.offline()
        if self._drop_session(loss.reason):
            self._away_since = self._clock.now()
            self._contained(self._on_state, DriverDisconnected(loss.reason))
        if self._ever_subscribed and not self.checkpoint:
            self._give_up(f"the agent is lost ({loss.reason}) and the framework does not checkpoint")
            return None
        if loss.status == 400 and any(text in loss.reason for text in _UNKNOWN_EXECUTOR):
            self._give_up(f"the agent does not know this executor ({loss.reason})")
            return None
        left = self._away_since + self.environment.recovery_timeout - self._clock.now()
        if left <= 0:
            self._give_up(f"agent did not come back within MESOS_RECOVERY_TIMEOUT ({loss.reason})")
            return None
        return min(left, random.uniform(0.0, self.environment.max_reconnect_delay))  # noqa: S311 - no secret
