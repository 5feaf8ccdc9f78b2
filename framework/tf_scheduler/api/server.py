"""Serves an ASGI app from a thread of its own, beside the scheduler's loop."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, cast

import uvicorn
from starlette.types import ASGIApp

from . import protocol
from .accepting import Listener, descriptors
from .listening import ApiError, ServerTls, address_for, listen
from .places import Places
from .seats import Seats

__all__ = ["ApiError", "ApiServer", "ServerTls", "address_for"]

#: Connections at one time, as far as there are descriptors for them; each may be a stream.
_CONNECTIONS = 1000
#: Parts of that: further ones that are told so, and that are about to be encrypted, or to be cut off.
_TOLD, _COMING = 10, 2
_LEAVE_AFTER = 2  # seconds; requests that are still open then are cut


class ApiServer:
    """A context manager: from its construction on connections are taken, inside they are answered.

    Raise ApiError when the port cannot be had. `port` 0: any free one, told by `port`. `listener`: one that listens
    already.
    """

    def __init__(
        self,
        app: ASGIApp,
        host: str,
        port: int,
        tls: ServerTls | None = None,
        listener: socket.socket | None = None,
    ) -> None:
        most = min(_CONNECTIONS, descriptors() * _COMING // (_COMING + 1))
        config = _config(app, tls, Places(most, most // _TOLD))
        self._given = listener or listen(host, port)
        self._socket = Listener(self._given, Seats(most + most // _COMING, "connections"))
        self.port: int = self._socket.getsockname()[1]
        self._server = _Server(config)
        self._thread = threading.Thread(target=self._serve, name="api", daemon=True)

    def __enter__(self) -> ApiServer:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.should_exit = True
        self._thread.join()
        self._socket.close()
        self._given.close()

    def _serve(self) -> None:
        self._server.run(sockets=[self._socket])


class _Server(uvicorn.Server):
    """uvicorn's leaves 60 s for the handshake of TLS, of which nobody is told."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        if self.config.is_ssl:
            loop = asyncio.get_running_loop()
            patient = partial(loop.create_server, ssl_handshake_timeout=protocol.PATIENCE)
            loop.create_server = patient  # type: ignore[method-assign]
        await super().startup(sockets)


def _config(app: ASGIApp, tls: ServerTls | None, places: Places) -> uvicorn.Config:
    # h11 also where httptools is installed: it is pure Python, as in the scheduler's bundle, and one is enough.
    config = uvicorn.Config(app, log_config=None, access_log=False, lifespan="off", ws="none")
    # All connections share their places.
    config.http = cast(Any, partial(protocol.Connection, places))
    # Who asks is who is connected: a header would be believed of everybody on this host.
    config.proxy_headers = False
    config.server_header = False
    config.timeout_graceful_shutdown = _LEAVE_AFTER
    if tls is not None:
        _encrypt(config, tls)
    return config


def _encrypt(config: uvicorn.Config, tls: ServerTls) -> None:
    """Raise ApiError that names the file which cannot be used."""
    config.ssl_certfile, config.ssl_keyfile = tls.certificate, tls.key
    if tls.client_ca:
        config.ssl_ca_certs = tls.client_ca
        # Who has none may show a token; and a health check needs nothing.
        config.ssl_cert_reqs = ssl.CERT_OPTIONAL
    try:
        config.load()
    except OSError as error:  # ssl.SSLError is one
        missing = [file for file in (tls.certificate, tls.key, tls.client_ca) if file and not Path(file).is_file()]
        files = ", ".join(missing) or f"{tls.certificate} and {tls.key}"
        raise ApiError(f"the API cannot be encrypted with {files}: {error.strerror or error}") from error
