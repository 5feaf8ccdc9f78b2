"""What an agent tells its executor in environment variables.

Sources: docs/executor-http-api.md, docs/ssl.md, src/slave/slave.cpp and src/executor/executor.cpp of Apache Mesos.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Mapping
from urllib.parse import quote

from mesos_client.durations import parse_duration
from mesos_client.stdlib_transport import UNIX_SCHEME
from mesos_client.tls import Tls, Verify

_PATH = "/api/v1/executor"
_ENDPOINT = "MESOS_AGENT_ENDPOINT"


@dataclass(frozen=True)
class AgentEnvironment:
    """Durations are in seconds."""

    #: Base URL of the agent.
    agent: str
    framework_id: str
    executor_id: str
    #: Whether the framework checkpoints: only then may an executor outlive its agent's process.
    checkpoint: bool = False
    #: How long it waits for a lost agent.
    recovery_timeout: float = 900.0
    #: Longest pause between attempts to subscribe again.
    backoff_max: float = 2.0
    shutdown_grace: float = 5.0
    #: Proves to the agent who we are; None where it does not ask.
    token: str | None = field(default=None, repr=False)
    #: None where the agent speaks plain HTTP.
    tls: Tls | None = None

    @property
    def endpoint(self) -> str:
        """URL of the executor API."""
        return self.agent + _PATH

    @classmethod
    def read(cls, environ: Mapping[str, str]) -> AgentEnvironment:
        """Raise ValueError that names the variable."""
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
    """Where agents run with --http_executor_domain_sockets; its routes are those of the agent's own actor."""
    path = environ.get("MESOS_DOMAIN_SOCKET")
    if not path:
        return None
    actor = _required(environ, "MESOS_SLAVE_PID").partition("@")[0]
    return f"{UNIX_SCHEME}://{quote(path, safe='')}/{actor}"


def _tls(environ: Mapping[str, str]) -> Tls | None:
    """As libprocess reads it: the agent is verified only where that is asked for, its name only by scheme `openssl`.

    The executor's own certificate is shown when this user may read it.
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
        raise ValueError(f"{name} is not set: an agent sets it for each executor that it starts")
    return value


def _duration(environ: Mapping[str, str], name: str, default: float) -> float:
    text = environ.get(name)
    if not text:
        return default
    try:
        return parse_duration(text)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error
