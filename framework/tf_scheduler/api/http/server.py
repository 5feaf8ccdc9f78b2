"""HTTP server thread for an ASGI app; limits of sizes, times and connections."""

from __future__ import annotations

import asyncio
import fcntl
import ipaddress
import resource
import socket
import ssl
import termios
import threading
from array import array
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h11
import uvicorn
from starlette.exceptions import HTTPException
from starlette.responses import StreamingResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from tf_scheduler.api.views.base import ApiProblem
from tf_scheduler.errors import SchedulerError

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
        """Reserve one use; return None (later call `release`), or a problem at the limit."""
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

    An ambiguous length allows request smuggling (RFC 9112, 6.1): the request has a length and a transfer coding, or a
    transfer coding in HTTP/1.0. h11 itself limits only heads that arrive in parts.
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

    Sets two keys of the ASGI scope's state. `peer` is the common name of the verified client certificate. `overloaded`
    is whether all connections are busy; then only the health check is answered. At the limit, the server closes the
    oldest idle connections. A client that has had no answer yet first gets status 503.
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
        """Reject an invalid request; replaces the method of uvicorn."""
        self._send(ApiProblem(self.conn.error_status, msg))
        self.transport.close()

    def _send(self, problem: ApiProblem) -> None:
        """Send an answer without a parsed request; as JSON, because the path is unknown."""
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
        """Close the connection, if it is idle and the socket has no unread request."""
        idle = self._is_idle and not _has_unread_data(self.transport)
        if idle:
            self._close(TOO_MANY)
        return idle

    @property
    def _is_idle(self) -> bool:
        """Whether no request is being answered."""
        return self.cycle is None or bool(self.cycle.response_complete)

    def _close(self, problem: ApiProblem) -> None:
        """Close the connection; send the problem to a client that waits for an answer."""
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


#: Connections that wait to be accepted. Over it, clients repeat their first packet after a second or more.
_BACKLOG = 1024


class ApiError(SchedulerError):
    """The API server cannot start: address in use or invalid TLS files."""


@dataclass(frozen=True, slots=True)
class ServerTls:
    """Paths of the server's PEM files; `client_ca` verifies client certificates."""

    certificate: str
    key: str
    client_ca: str = ""

    @property
    def is_usable(self) -> bool:
        """Whether the files exist and are valid."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            context.load_cert_chain(self.certificate, self.key, password="")
            if self.client_ca:
                context.load_verify_locations(self.client_ca)
        except OSError:  # includes ssl.SSLError
            return False
        return True


def listen_address(host: str) -> str:
    """Return the listen address: loopback if `host` is loopback, else all interfaces.

    Mesos checks the health of tasks over loopback; clients use the network. `host`: the agent's name.
    """
    address = "127.0.0.1" if host == "localhost" else host
    return address if is_loopback(address) else "0.0.0.0"  # noqa: S104


def is_loopback(host: str) -> bool:
    """Whether a host name or address is one of this machine only."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket (port 0: any free one). Raises ApiError if in use."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With the protocol, asyncio sets TCP_NODELAY; else the second answer of a connection waits 40 ms for a packet.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise ApiError(f"cannot listen at {host}:{port}: {error.strerror}") from error
    return listener


_SHUTDOWN_TIMEOUT = 2  # seconds, for open requests


class ApiServer:
    """Context manager that serves an app in its own thread.

    Clients can connect from construction on, and are served inside the block. Raises ApiError if the port is not
    available. `port` 0 selects a free port.
    """

    def __init__(self, app: ASGIApp, host: str, port: int, tls: ServerTls | None = None) -> None:
        config = _config(app, tls)
        self._socket = listen(host, port)
        self.port: int = self._socket.getsockname()[1]
        self._server = _Server(config)
        self._thread = threading.Thread(target=self._server.run, args=([self._socket],), name="api", daemon=True)

    def __enter__(self) -> ApiServer:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._server.should_exit = True
        self._thread.join()
        self._socket.close()


class _Server(uvicorn.Server):
    """Uvicorn server with LimitedConnection, and a timeout for TLS handshakes."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        connections: dict[LimitedConnection, None] = {}
        limit = connection_limit()

        def connection() -> LimitedConnection:
            options = {"config": self.config, "server_state": self.server_state, "app_state": {}}
            return LimitedConnection(connections, limit, **options)

        loop, timeout = asyncio.get_running_loop(), HANDSHAKE_TIMEOUT if self.config.is_ssl else None
        self.servers = [
            await loop.create_server(
                connection, sock=sock, backlog=_BACKLOG, ssl=self.config.ssl, ssl_handshake_timeout=timeout
            )
            for sock in sockets or ()
        ]
        self.started = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self.server_state.connections or self.server_state.tasks:
            await super().shutdown(sockets)  # takes 0.1 s at least


def _config(app: ASGIApp, tls: ServerTls | None) -> uvicorn.Config:
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="off",
        ws="none",
        # Ignore X-Forwarded-For: any process on this host could set it.
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=IDLE_TIMEOUT,
        timeout_graceful_shutdown=_SHUTDOWN_TIMEOUT,
    )
    if tls is not None:
        _encrypt(config, tls)
    return config


def _encrypt(config: uvicorn.Config, tls: ServerTls) -> None:
    """Load the TLS files. Raises ApiError that names the invalid file."""
    config.ssl_certfile, config.ssl_keyfile = tls.certificate, tls.key
    if tls.client_ca:
        config.ssl_ca_certs = tls.client_ca
        # Optional, because health checks and clients with tokens have no certificate.
        config.ssl_cert_reqs = ssl.CERT_OPTIONAL
    try:
        config.load()
    except OSError as error:  # includes ssl.SSLError
        missing = [file for file in (tls.certificate, tls.key, tls.client_ca) if file and not Path(file).is_file()]
        files = ", ".join(missing) or f"{tls.certificate} and {tls.key}"
        raise ApiError(f"invalid TLS files of the API: {files}: {error.strerror or error}") from error
