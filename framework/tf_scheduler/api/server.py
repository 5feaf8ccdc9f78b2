"""Serves an ASGI app from a thread of its own, beside the scheduler's loop."""

from __future__ import annotations

import socket
import ssl
import threading
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from .listening import ApiError, ServerTls, address_for, listen
from .protocol import Connection
from .seats import Seats

__all__ = ["ApiError", "ApiServer", "ServerTls", "address_for"]

#: Connections at one time; each may be a stream.
_CONNECTIONS = 1000
#: Further ones, that are told so.
_CROWD = 100
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
        config = _config(app, tls)
        self._socket = listener or listen(host, port)
        self.port: int = self._socket.getsockname()[1]
        self._server = uvicorn.Server(config)
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

    def _serve(self) -> None:
        self._server.run(sockets=[self._socket])


def _config(app: ASGIApp, tls: ServerTls | None) -> uvicorn.Config:
    # h11 also where httptools is installed: it is pure Python, as in the scheduler's bundle, and one is enough.
    config = uvicorn.Config(app, log_config=None, access_log=False, lifespan="off", ws="none")
    config.http = _protocol()
    # Who asks is who is connected: a header would be believed of everybody on this host.
    config.proxy_headers = False
    config.timeout_graceful_shutdown = _LEAVE_AFTER
    if tls is not None:
        _encrypt(config, tls)
    return config


def _protocol() -> Any:
    """What makes a connection of each that is taken. All share their seats."""
    return partial(Connection, Seats(_CONNECTIONS, "connections"), Seats(_CROWD, "connections"))


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
