"""One health check: its schedule, the meaning of its results, and its execution.

A failure before the first success counts only when the grace period is over (mesosphere/marathon, health checks).
"""

from __future__ import annotations

import http.client
import socket
from collections.abc import Sequence
from dataclasses import dataclass, replace

from .app import HealthCheck
from .connecting import connection_to

_HEALTHY = range(200, 400)


@dataclass(frozen=True, slots=True)
class Health:
    """State of one check of one task."""

    check: HealthCheck
    #: Seconds since the epoch, as all times here.
    started: float
    due: float
    #: None: not known yet.
    alive: bool | None = None
    failures: int = 0

    @classmethod
    def new(cls, check: HealthCheck, now: float) -> Health:
        """The state of a task that starts now."""
        return cls(check, now, now + check.delay)

    def after(self, success: bool, now: float) -> Health:
        """The state after one more result."""
        due = now + self.check.interval
        if success:
            return replace(self, due=due, alive=True, failures=0)
        if self.alive is None and now < self.started + self.check.grace_period:
            return replace(self, due=due)
        return replace(self, due=due, alive=False, failures=self.failures + 1)

    @property
    def fatal(self) -> bool:
        """Whether the task must be killed."""
        return 0 < self.check.max_failures <= self.failures


def probe(check: HealthCheck, host: str, ports: Sequence[int]) -> bool:
    """Execute the check once."""
    port, protocol = ports[check.port_index], check.protocol.removeprefix("MESOS_")
    try:
        if protocol == "TCP":
            socket.create_connection((host, port), check.timeout).close()
            return True
        return _status(protocol, host, port, check) in _HEALTHY
    except (OSError, http.client.HTTPException):
        return False


def _status(protocol: str, host: str, port: int, check: HealthCheck) -> int:
    connection = connection_to(protocol.lower(), f"{host}:{port}", check.timeout)
    try:
        connection.request("GET", check.path)
        return connection.getresponse().status
    finally:
        connection.close()
