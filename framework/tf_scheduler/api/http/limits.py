"""Enforce limits of the HTTP server: sizes, timeouts, connections, event streams."""

from __future__ import annotations

import asyncio
import fcntl
import resource
import termios
from array import array
from collections.abc import AsyncIterator, Callable
from typing import Any

import h11
from starlette.exceptions import HTTPException
from starlette.responses import StreamingResponse
from starlette.types import Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from tf_scheduler.api.views.base import ApiProblem

from .endpoint import SECURITY_HEADERS, UNAVAILABLE, respond

#: Maximum bytes of a request's head (the default of h11) and body.
HEAD_LIMIT, BODY_LIMIT = 16 * 1024, 64 * 1024
#: Seconds until the head of a request is complete, and its body.
HEAD_TIMEOUT, BODY_TIMEOUT = 20.0, 30.0
#: Seconds for a TLS handshake, for an idle connection, and for a client to accept a chunk of an answer.
HANDSHAKE_TIMEOUT, IDLE_TIMEOUT, SEND_TIMEOUT = 20.0, 5, 30.0
#: Maximum number of connections and of event streams among them.
MAX_CONNECTIONS, MAX_STREAMS = 1000, 400
#: File descriptors reserved for the rest of the process.
_RESERVED = 256


class Quota:
    """Limit of concurrent uses of a resource. Not thread-safe."""

    def __init__(self, limit: int, name: str) -> None:
        self._free, self._name = limit, name

    def acquire(self) -> ApiProblem | None:
        """Return None on success; `release` must follow."""
        if self._free > 0:
            self._free -= 1
            return None
        return ApiProblem(UNAVAILABLE, f"too many {self._name}; try again later")

    def release(self) -> None:
        self._free += 1


class LimitedStream(StreamingResponse):
    """Streaming response that calls `on_end` when it ends, even before the first part."""

    def __init__(self, content: AsyncIterator[bytes | str], on_end: Callable[[], None], **options: Any) -> None:
        super().__init__(content, **options)
        self._on_end = on_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._on_end()


def connection_limit() -> int:
    """Return the connection limit; may raise the soft limit of file descriptors."""
    wanted = MAX_CONNECTIONS + _RESERVED
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    available = wanted if soft == resource.RLIM_INFINITY else min(soft, wanted)
    return max(available - _RESERVED, available // 2)


def limit_body(receive: Receive) -> Receive:
    """Limit bodies of undeclared length. Raises HTTPException 413 above BODY_LIMIT."""
    received = 0

    async def counted() -> Message:
        nonlocal received
        message = await receive()
        received += len(message.get("body", b""))
        if received > BODY_LIMIT:
            raise HTTPException(413, f"request body too large: the limit is {BODY_LIMIT} bytes")
        return message

    return counted


class _StrictHttp(h11.Connection):
    """Parser that rejects large heads, and requests of ambiguous length.

    The second against request smuggling (RFC 9112, 6.1): a length together with a transfer coding, or a transfer coding
    in HTTP/1.0. h11 itself limits only heads that arrive in parts.
    """

    #: Status for the rejected request.
    error_status = 400
    #: Whether its answer has no body (RFC 9110, 9.3.2).
    is_head = False

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        """Return the next event; uvicorn calls `send_400_response` for an error."""
        try:
            event = super().next_event()
        except h11.RemoteProtocolError as error:
            self.error_status = error.error_status_hint
            raise
        if isinstance(event, h11.Request):
            names = {name for name, _ in event.headers}
            if len(event.target) + sum(len(name) + len(value) for name, value in event.headers) > HEAD_LIMIT:
                self.error_status, problem = 431, f"request head too large: the limit is {HEAD_LIMIT} bytes"
            elif b"transfer-encoding" in names and (b"content-length" in names or event.http_version < b"1.1"):
                problem = "ambiguous request length"
            else:
                return event
            self.is_head = event.method == b"HEAD"
            raise h11.RemoteProtocolError(problem)
        return event


#: Answer to clients over the limit on connections.
TOO_MANY = ApiProblem(UNAVAILABLE, "too many open connections; try again later")


class LimitedConnection(H11Protocol):
    """Connection with a timeout for request heads and a limit on open connections.

    Sets two keys of the ASGI scope's state: `peer`, the common name of the verified client certificate, and
    `overloaded`: all connections are busy, so only the health check is answered. At the limit, the oldest idle
    connections close; a client that has had no answer yet gets status 503 first.
    """

    def __init__(self, others: dict[LimitedConnection, None], limit: int, **options: Any) -> None:
        super().__init__(**options)
        self.conn: _StrictHttp = _StrictHttp(h11.SERVER, HEAD_LIMIT)
        #: Open connections, oldest first.
        self._others, self._limit = others, limit

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        while full := len(self._others) >= self._limit:
            if not any(connection._make_room() for connection in tuple(self._others)):
                break
        self._others[self] = None
        self.app_state = {**self.app_state, "peer": _common_name(transport), "overloaded": full}
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._others.pop(self, None)
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        self._expect_head()
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        """Reject an invalid request, in place of uvicorn."""
        self._send(ApiProblem(self.conn.error_status, msg))
        self.transport.close()

    def _send(self, problem: ApiProblem) -> None:
        """Send an answer that needs no request, as JSON because the path is unknown."""
        answer = respond(problem, as_json=True, headers={"connection": "close"})
        head = h11.Response(status_code=problem.code, headers=[*SECURITY_HEADERS.items(), *answer.raw_headers])
        body = b"" if self.conn.is_head else bytes(answer.body)
        for event in (head, h11.Data(data=body), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")

    def _expect_head(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = self.loop.call_later(HEAD_TIMEOUT, self._on_deadline)

    def _on_deadline(self) -> None:
        if self._is_idle:
            self._close(ApiProblem(408, f"request head not received within {HEAD_TIMEOUT:g} s"))

    def _make_room(self) -> bool:
        """Close if idle, but never if a request of the client lies unread in the socket."""
        idle = self._is_idle and not _has_unread_data(self.transport)
        if idle:
            self._close(TOO_MANY)
        return idle

    @property
    def _is_idle(self) -> bool:
        """Whether no request is being answered."""
        return self.cycle is None or bool(self.cycle.response_complete)

    def _close(self, problem: ApiProblem) -> None:
        """Close; a client that waits for its first or next answer gets the problem."""
        self._others.pop(self, None)
        if self.conn.our_state is h11.IDLE and (self.cycle is None or self.conn.trailing_data[0]):
            self._send(problem)
        # Without waiting for the client: the answer fits into the buffer of the socket.
        self.transport.abort()


def _has_unread_data(transport: asyncio.Transport) -> bool:
    """Whether data of the client has arrived that the event loop has not read yet."""
    connection, count = transport.get_extra_info("socket"), array("i", [0])
    if transport.is_closing() or connection is None:
        return False
    fcntl.ioctl(connection.fileno(), termios.FIONREAD, count)
    return count[0] > 0


def _common_name(transport: asyncio.Transport) -> str | None:
    """Return the common name of the verified client certificate; None without one."""
    certificate: Any = transport.get_extra_info("peercert")
    if not certificate:
        return None
    names = [value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"]
    return names[0] if names else ""
