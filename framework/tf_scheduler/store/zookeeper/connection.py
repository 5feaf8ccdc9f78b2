"""kazoo's seams: sockets of our own making, and what kazoo does not tell.

What kazoo 2.11 lacks, each with a test: it does not say which session timeout the server granted; it waits for ever on
a connection that is silent as long as requests are queued on it, and the whole session timeout for a server that takes
a connection and says nothing; it does not say why it cannot connect; with TLS it
leaves the socket of a failed handshake open, and may overlook an answer that came together with another.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from kazoo.client import KazooClient
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.connection import ConnectionHandler

from tf_scheduler.store.interface import StoreError

from .place import Tls


class Sockets(SequentialThreadingHandler):  # type: ignore[misc]
    """Makes kazoo's connections. `timeout`: seconds to connect to one server, TLS handshake included."""

    def __init__(self, tls: Tls | None, timeout: float) -> None:
        super().__init__()
        self._context = None if tls is None else tls_context(tls)
        self._timeout = timeout
        self._current: socket.socket | None = None
        #: Why the last attempt to connect failed; empty after a success.
        self.problem = "no attempt to connect yet"

    def create_connection(self, address: tuple[str, int], hostname: str | None = None, **_: Any) -> socket.socket:
        """Connect to one server; kazoo calls this."""
        try:
            connection = socket.create_connection(address, self._timeout)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._context is not None:
                connection = _secured(connection, self._context, hostname or address[0])
        except OSError as error:
            self.problem = f"{hostname or address[0]}:{address[1]}: {error}"
            raise
        self.problem = ""
        self._current = connection
        return connection

    def select(
        self, readers: Sequence[Any], writers: Sequence[Any], others: Sequence[Any], timeout: float | None = None
    ) -> Any:
        """As select(2), but what TLS has read ahead counts as readable."""
        ahead = [reader for reader in readers if isinstance(reader, ssl.SSLSocket) and reader.pending()]
        if ahead:
            timeout = 0
        ready, *rest = super().select(readers, writers, others, timeout)
        return (list({*ready, *ahead}), *rest)

    def drop(self) -> None:
        """Break the connection, so that kazoo seeks another server. The session goes on."""
        if self._current is not None:
            with suppress(OSError):
                # Not SSLSocket's own, which forgets its state while kazoo's thread may be using it.
                socket.socket.shutdown(self._current, socket.SHUT_RDWR)


class Connection(ConnectionHandler):  # type: ignore[misc]
    """Keeps the session timeout that the server granted, which may be another than the one asked for."""

    #: Seconds; 0 before the first answer.
    session_timeout = 0.0
    #: Seconds that a server may take to take over the session.
    greeting_timeout = 0.0

    def _invoke(self, timeout: float, *request: Any, **options: Any) -> Any:
        # kazoo gives a single host name the whole session timeout, even when several servers have that name.
        return super()._invoke(min(timeout, self.greeting_timeout), *request, **options)

    def _connect(self, host: str, hostip: str, port: int) -> Any:
        read_timeout, connect_timeout = super()._connect(host, hostip, port)
        # kazoo reads for two thirds of the granted timeout, in milliseconds.
        self.session_timeout = read_timeout * 1.5 / 1000
        return read_timeout, connect_timeout


def observed(client: KazooClient, greeting_timeout: float) -> Connection:
    """Replace the client's connection, before it starts, by one that tells its session timeout."""
    old = client._connection
    connection = Connection(client, old.retry_sleeper, logger=old.logger)
    connection.greeting_timeout = greeting_timeout
    client._connection = connection
    return connection


def tls_context(tls: Tls) -> ssl.SSLContext:
    """TLS 1.2 or newer; the server's certificate must be valid for its name. Raises StoreError naming the file."""
    name, file = "ca", tls.ca
    try:
        context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=tls.ca)
        name, file = "certificate", tls.certificate
        if tls.certificate is not None:
            context.load_cert_chain(tls.certificate, tls.key)
    except OSError as error:
        raise StoreError(f"ZooKeeper's option {name}: {file} cannot be used: {error}") from error
    return context


def _secured(connection: socket.socket, context: ssl.SSLContext, hostname: str) -> ssl.SSLSocket:
    try:
        return context.wrap_socket(connection, server_hostname=hostname)
    except BaseException:
        connection.close()
        raise
