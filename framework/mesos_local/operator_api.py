"""The master's v1 operator API: calls, and a stream that wakes whoever waits for a change."""

from __future__ import annotations

import http.client
import json
import select
from typing import Any

from .errors import MesosLocalError

_TIMEOUT = 10.0  # seconds for one call


class MasterUnavailableError(MesosLocalError):
    """The master does not answer, or not yet: it is starting, ended or frozen."""


def call(address: str, kind: str) -> dict[str, Any]:
    """One call without arguments, such as "GET_AGENTS"; returns what it answers under its own name.

    Raises MasterUnavailableError.
    """
    connection = http.client.HTTPConnection(address, timeout=_TIMEOUT)
    try:
        answer = _post(connection, kind).read()
    except (OSError, http.client.HTTPException) as error:
        raise MasterUnavailableError(f"The master at {address} does not answer: {error!r}") from error
    finally:
        connection.close()
    content: dict[str, Any] = json.loads(answer)
    result: dict[str, Any] = content[kind.lower()]
    return result


def teardown(address: str, framework_id: str) -> None:
    """End a framework and its tasks. Raises MasterUnavailableError, also when the master knows no such framework."""
    connection = http.client.HTTPConnection(address, timeout=_TIMEOUT)
    try:
        _post(connection, "TEARDOWN", teardown={"framework_id": {"value": framework_id}}).read()
    except (OSError, http.client.HTTPException) as error:
        raise MasterUnavailableError(f"The master at {address} does not answer: {error!r}") from error
    finally:
        connection.close()


def _post(connection: http.client.HTTPConnection, kind: str, **content: Any) -> http.client.HTTPResponse:
    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    connection.request("POST", "/api/v1", json.dumps({"type": kind, **content}), headers)
    response = connection.getresponse()
    if response.status not in (http.client.OK, http.client.ACCEPTED):
        raise MasterUnavailableError(f"The master at {connection.host} answers {response.status}: {response.read()!r}")
    return response


class Changes:
    """The master's SUBSCRIBE stream. What it says is not read: a change is the moment to look again."""

    def __init__(self, address: str) -> None:
        self._connection = http.client.HTTPConnection(address, timeout=_TIMEOUT)
        self._subscribed = False

    def wait(self, timeout: float) -> None:
        """Return at the next event, at the latest after `timeout` seconds, or at once on having subscribed."""
        try:
            if not self._subscribed:
                _post(self._connection, "SUBSCRIBE")
                self._subscribed = True
                return
            self._drain(timeout)
        except (OSError, http.client.HTTPException, MasterUnavailableError):
            self.close()
            select.select([], [], [], timeout)  # nothing to wait for but the master

    def _drain(self, timeout: float) -> None:
        stream = self._connection.sock
        if select.select([stream], [], [], timeout)[0] and not stream.recv(1 << 16):
            self.close()

    def close(self) -> None:
        """Unsubscribe; waiting again subscribes again."""
        self._connection.close()
        self._subscribed = False
