"""Serves an ASGI app from a thread of its own, beside the scheduler's loop."""

from __future__ import annotations

import ipaddress
import socket
import threading
from types import TracebackType

import uvicorn
from starlette.types import ASGIApp

from tf_scheduler.errors import SchedulerError

_BACKLOG = 128
_LEAVE_AFTER = 2  # seconds; requests that are still open then are cut


class ApiError(SchedulerError):
    """The API cannot be served; the text names the address."""


def address_for(host: str) -> str:
    """The address to listen at on an agent called `host`: all, or loopback where nobody else could reach us anyway.

    Mesos checks the health of tasks over the agent's loopback, others come over its network.
    """
    try:
        return host if ipaddress.ip_address(host).is_loopback else "0.0.0.0"  # noqa: S104
    except ValueError:
        return "127.0.0.1" if host == "localhost" else "0.0.0.0"  # noqa: S104


class ApiServer:
    """A context manager: from its construction on connections are taken, inside they are answered.

    Raise ApiError when the port cannot be had. `port` 0: any free one, told by `port`.
    """

    def __init__(self, app: ASGIApp, host: str, port: int) -> None:
        self._socket = _listen(host, port)
        self.port: int = self._socket.getsockname()[1]
        # h11 also where httptools is installed: it is pure Python, as in the scheduler's bundle, and one is enough.
        config = uvicorn.Config(app, log_config=None, access_log=False, lifespan="off", ws="none", http="h11")
        config.timeout_graceful_shutdown = _LEAVE_AFTER
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


def _listen(host: str, port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise ApiError(f"cannot listen at {host}:{port}: {error.strerror}") from error
    return listener
