"""Where the API listens, and how it is encrypted: as far as that goes without the web server, which is slow to load."""

from __future__ import annotations

import ipaddress
import socket
import ssl
from dataclasses import dataclass

from tf_scheduler.errors import SchedulerError

_BACKLOG = 128


class ApiError(SchedulerError):
    """The API cannot be served; the text names the address."""


@dataclass(frozen=True, slots=True)
class ServerTls:
    """PEM files: what the server shows, and what it checks certificates of clients with (empty: it asks for none)."""

    certificate: str
    key: str
    client_ca: str = ""

    @property
    def usable(self) -> bool:
        """Whether the files are there, and are what they should be."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            context.load_cert_chain(self.certificate, self.key, password="")
            if self.client_ca:
                context.load_verify_locations(self.client_ca)
        except OSError:  # ssl.SSLError is one
            return False
        return True


def address_for(host: str) -> str:
    """The address to listen at on an agent called `host`: all, or loopback where nobody else could reach us anyway.

    Mesos checks the health of tasks over the agent's loopback, others come over its network.
    """
    try:
        return host if ipaddress.ip_address(host).is_loopback else "0.0.0.0"  # noqa: S104
    except ValueError:
        return "127.0.0.1" if host == "localhost" else "0.0.0.0"  # noqa: S104


def listen(host: str, port: int) -> socket.socket:
    """Connections are taken from now on. Raise ApiError when the port cannot be had. `port` 0: any free one."""
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise ApiError(f"cannot listen at {host}:{port}: {error.strerror}") from error
    return listener
