"""HTTP server thread for an ASGI app, optionally with TLS."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
import threading
from dataclasses import dataclass
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp

from tf_scheduler.errors import SchedulerError

from . import limits

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
    try:
        return host if ipaddress.ip_address(host).is_loopback else "0.0.0.0"  # noqa: S104
    except ValueError:
        return "127.0.0.1" if host == "localhost" else "0.0.0.0"  # noqa: S104


def listen(host: str, port: int) -> socket.socket:
    """Listen immediately; port 0: any free port. Raises ApiError if it is in use."""
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

    Connections wait from construction on. Raises ApiError if the port is not available. `port` 0 selects a free port.
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
    """Listens with LimitedConnection and a handshake timeout, which uvicorn lacks."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        connections: dict[limits.LimitedConnection, None] = {}
        limit = limits.connection_limit()

        def connection() -> limits.LimitedConnection:
            options = {"config": self.config, "server_state": self.server_state, "app_state": {}}
            return limits.LimitedConnection(connections, limit, **options)

        loop, timeout = asyncio.get_running_loop(), limits.HANDSHAKE_TIMEOUT if self.config.is_ssl else None
        self.servers = [
            await loop.create_server(
                connection, sock=sock, backlog=_BACKLOG, ssl=self.config.ssl, ssl_handshake_timeout=timeout
            )
            for sock in sockets or ()
        ]
        self.started = True


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
        timeout_keep_alive=limits.IDLE_TIMEOUT,
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
