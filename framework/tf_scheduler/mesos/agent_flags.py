"""Read the flags of an agent (Mesos documentation, endpoint /flags)."""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from urllib.parse import urlsplit

from mesos_client.credentials import Credentials, Tls
from mesos_client.http import SocketHandle, time_limit
from tf_scheduler.errors import SchedulerError

#: Flag of an agent that requires a login from executors. Without it, any process that can connect to the agent may
#: subscribe as an executor, and gets the tasks with their secret tokens.
EXECUTOR_AUTHENTICATION = "authenticate_http_executors"
#: Seconds for one read from the agent, and for the whole answer.
_SOCKET_TIMEOUT, _ANSWER_TIMEOUT = 2.0, 4.0
#: Maximum size of an answer in bytes; that of Mesos 1.11 has about 10,000.
_MAX_ANSWER = 1 << 20


class AgentFlagsError(SchedulerError):
    """The flags of an agent are unknown."""

    kind = "agent_flags_unknown"
    http_status = 502


def read_flags(agent: str, credentials: Credentials | None = None, tls: Tls | None = None) -> Mapping[str, str]:
    """Return the flags of the agent at `http://10.0.0.1:5051` by name, without dashes.

    Blocks for up to 6 seconds. Credentials are sent over https only: the agent, or a listener on the way, could use
    them. Raises AgentFlagsError.
    """
    try:
        status, content = _get(agent, credentials or Credentials(), tls)
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise AgentFlagsError(f"{agent}/flags does not answer: {error or type(error).__name__}") from error
    if status in (http.client.UNAUTHORIZED, http.client.FORBIDDEN):
        raise AgentFlagsError(f"{agent}/flags returned HTTP {status}: no permission to view the agent's flags")
    if status != http.client.OK:
        raise AgentFlagsError(f"{agent}/flags returned HTTP {status}")
    try:
        flags = json.loads(content)["flags"]
        return {str(name): str(value) for name, value in flags.items()}
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise AgentFlagsError(f"{agent}/flags did not return the flags of an agent") from error


def authenticates_executors(flags: Mapping[str, str]) -> bool:
    """Return whether the agent with these flags requires a login from executors."""
    return flags.get(EXECUTOR_AUTHENTICATION) == "true"


def _get(agent: str, credentials: Credentials, tls: Tls | None) -> tuple[int, bytes]:
    parts = urlsplit(agent)
    headers: dict[str, str] = {}
    if parts.scheme == "https":
        context = (tls or Tls()).context(SocketHandle())
        connection: http.client.HTTPConnection = http.client.HTTPSConnection(
            parts.netloc, timeout=_SOCKET_TIMEOUT, context=context
        )
        if header := credentials.header():
            headers["Authorization"] = header
    else:
        connection = http.client.HTTPConnection(parts.netloc, timeout=_SOCKET_TIMEOUT)
    try:
        connection.request("GET", "/flags", headers=headers)
        handle = SocketHandle()
        handle.opened(connection.sock)
        with time_limit(handle, _ANSWER_TIMEOUT):
            response = connection.getresponse()
            return response.status, response.read(_MAX_ANSWER)
    finally:
        connection.close()
