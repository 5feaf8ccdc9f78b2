"""ZooKeeper session with deadlines: each request gets an answer or fails in time.

kazoo 2.11 does not expose the session timeout that the server granted, nor why it cannot connect. While requests are
queued, it waits forever on a silent connection. It waits a whole session timeout for a silent server. With TLS it
leaves the socket of a failed handshake open, and may overlook the second of two answers that arrive together. Each of
these defects has a test.
"""

from __future__ import annotations

import logging
import random
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from kazoo import exceptions
from kazoo.client import KazooClient
from kazoo.handlers.threading import KazooTimeoutError, SequentialThreadingHandler
from kazoo.protocol.connection import ConnectionHandler
from kazoo.protocol.states import KazooState
from kazoo.retry import KazooRetry
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE

from tf_scheduler.store.interface import StoreError, StoreUnavailableError

from .address import ZooKeeperAddress, ZooKeeperTls


class KazooSockets(SequentialThreadingHandler):  # type: ignore[misc]
    """Create kazoo's connections. `timeout`: seconds per server and for its handshake."""

    def __init__(self, tls: ZooKeeperTls | None, timeout: float) -> None:
        super().__init__()
        self._context = None if tls is None else tls_context(tls)
        self._timeout = timeout
        self._current: socket.socket | None = None
        #: Error of the last connection attempt; empty after a success.
        self.problem = "not connected yet"

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
        """Like select(2), but data that TLS has buffered counts as readable."""
        ahead = [reader for reader in readers if isinstance(reader, ssl.SSLSocket) and reader.pending()]
        if ahead:
            timeout = 0
        ready, *rest = super().select(readers, writers, others, timeout)
        return (list({*ready, *ahead}), *rest)

    def drop(self) -> None:
        """Break the connection, so that kazoo tries another server. The session continues."""
        if self._current is not None:
            with suppress(OSError):
                # SSLSocket's own shutdown would discard its state while kazoo's thread may use it.
                socket.socket.shutdown(self._current, socket.SHUT_RDWR)


class KazooConnection(ConnectionHandler):  # type: ignore[misc]
    """Remember the session timeout that the server granted, not the requested one."""

    #: Seconds; 0 before the first answer.
    session_timeout = 0.0
    #: Maximum seconds for a server to accept the session.
    greeting_timeout = 0.0

    def _invoke(self, timeout: float, *request: Any, **options: Any) -> Any:
        # kazoo allows a single host name the whole session timeout, even if several servers share it.
        return super()._invoke(min(timeout, self.greeting_timeout), *request, **options)

    def _connect(self, host: str, hostip: str, port: int) -> Any:
        read_timeout, connect_timeout = super()._connect(host, hostip, port)
        # kazoo reads for two thirds of the granted timeout, in milliseconds.
        self.session_timeout = read_timeout * 1.5 / 1000
        return read_timeout, connect_timeout


def observe_connection(client: KazooClient, greeting_timeout: float) -> KazooConnection:
    """Give a client, before its start, a connection that exposes the session timeout."""
    old = client._connection
    connection = KazooConnection(client, old.retry_sleeper, logger=old.logger)
    connection.greeting_timeout = greeting_timeout
    client._connection = connection
    return connection


def tls_context(tls: ZooKeeperTls) -> ssl.SSLContext:
    """Return a TLS context that verifies host names. Raises StoreError for a bad file."""
    name, file = "ca", tls.ca
    try:
        context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=tls.ca)
        name, file = "certificate", tls.certificate
        if tls.certificate is not None:
            context.load_cert_chain(tls.certificate, tls.key)
    except OSError as error:
        raise StoreError(f"ZooKeeper option {name}: cannot use {file}: {error}") from error
    return context


def _secured(connection: socket.socket, context: ssl.SSLContext, hostname: str) -> ssl.SSLSocket:
    try:
        return context.wrap_socket(connection, server_hostname=hostname)
    except BaseException:
        connection.close()
        raise


log = logging.getLogger(__name__)

#: Starts a request on the client and returns kazoo's pending result.
Request = Callable[[Any], Any]

_RETRY_DELAY = 0.05  # seconds
_IN_FLIGHT = 200  # concurrent requests
_REPEAT_INTERVAL = 30.0  # seconds
#: Errors after which the request may or may not have acted.
_NO_ANSWER = (
    *(exceptions.ConnectionLoss, exceptions.SessionExpiredError, exceptions.SessionMovedError),
    *(exceptions.OperationTimeoutError, exceptions.RequestTimeoutError, exceptions.ThrottledOpError),
)


class RepeatFilter(logging.Filter):
    """Pass one of equal warnings every 30 s, with the number of omitted warnings.

    kazoo warns of each failed connection, twice a second while ZooKeeper does not answer.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._now = now
        #: Format of the message -> time at which one passed, and number of later ones.
        self._passed: dict[str, tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        passed_at, omitted = self._passed.get(record.msg, (-_REPEAT_INTERVAL, 0))
        now = self._now()
        passes = now >= passed_at + _REPEAT_INTERVAL
        self._passed[record.msg] = (now, 0) if passes else (passed_at, omitted + 1)
        if passes and omitted:
            record.msg, record.args = f"{record.getMessage()} ({omitted} more since the last report)", None
        return passes


_client_log = log.getChild("client")
# Below this level kazoo logs passwords.
_client_log.setLevel(logging.WARNING)
_client_log.addFilter(RepeatFilter())


class ZooKeeperTimeoutError(Exception):
    """The request may have been sent; its outcome is unknown."""


class Deadline:
    """A point in time, some seconds from now."""

    def __init__(self, seconds: float) -> None:
        self._at = time.monotonic() + seconds

    @property
    def left(self) -> float:
        """Remaining seconds; 0 after the deadline."""
        return max(0.0, self._at - time.monotonic())


class ZooKeeperSession:
    """Thread-safe ZooKeeper client that reconnects, if possible to another server.

    A new session replaces an expired one, without its ephemeral nodes. Raises StoreUnavailableError if no server
    answers in time, StoreError for unusable TLS files.
    """

    def __init__(self, address: ZooKeeperAddress) -> None:
        self.address = address
        # Leaves time to try a second server before a leader has to step down.
        self._sockets = KazooSockets(address.tls, address.session_timeout / 4)
        self._connected = threading.Event()
        self._closed = threading.Event()
        self._client = _client(address, self._sockets)
        self._connection = observe_connection(self._client, address.session_timeout / 4)
        self._client.add_listener(self._on_state)
        self.acl = CREATOR_ALL_ACL if address.credentials or (address.tls and address.tls.key) else OPEN_ACL_UNSAFE
        try:
            self._client.start(timeout=address.request_timeout)
        except KazooTimeoutError as error:
            raise self.unavailable() from error

    @property
    def timeout(self) -> float:
        """Session timeout granted by the server, in seconds; 0 before its first answer."""
        return self._connection.session_timeout

    @property
    def number(self) -> int | None:
        """Id of the session; None without a session."""
        client_id = self._client.client_id
        return int(client_id[0]) if client_id and client_id[0] else None

    def on_expired(self, callback: Callable[[], None]) -> None:
        """Call `callback`, in another thread, when session and ephemeral nodes have ended."""
        self._client.add_listener(lambda state: callback() if state == KazooState.LOST else None)

    def submit(self, request: Request, deadline: Deadline) -> Any:
        """Send a request once and return the answer.

        Raises StoreUnavailableError if nothing was sent, ZooKeeperTimeoutError if no answer came, and KazooException if
        the server's answer is an error. A connection is dropped after a silence of a quarter of the session timeout.
        kazoo detects a silent connection later, after a leader has lost its leadership.
        """
        if not self._connected.wait(deadline.left) or deadline.left == 0:
            raise self.unavailable()
        pending = request(self._client)
        try:
            return pending.get(timeout=min(self._answer_timeout, deadline.left))
        except KazooTimeoutError:
            self._sockets.drop()
        except _NO_ANSWER as error:
            raise ZooKeeperTimeoutError(repr(error)) from error
        try:
            return pending.get(timeout=self._answer_timeout)
        except (KazooTimeoutError, *_NO_ANSWER) as error:
            raise ZooKeeperTimeoutError(repr(error)) from error

    def ask(self, request: Request, deadline: Deadline) -> Any:
        """Submit an idempotent request until it is answered. Raises StoreUnavailableError."""
        while True:
            try:
                return self.submit(request, deadline)
            except ZooKeeperTimeoutError:
                self.pause(deadline)

    def ask_all(self, requests: Sequence[Request], deadline: Deadline) -> list[Any]:
        """Send idempotent requests concurrently, return the answers; raises as `ask` does."""
        answers: list[Any] = []
        for start in range(0, len(requests), _IN_FLIGHT):
            answers += self.ask(partial(_RequestBatch, requests[start : start + _IN_FLIGHT]), deadline)
        return answers

    def send(self, request: Request) -> None:
        """Send a request and ignore its outcome."""
        request(self._client)

    def pause(self, deadline: Deadline) -> None:
        """Wait briefly before a retry. Raises StoreUnavailableError after the deadline."""
        if deadline.left == 0:
            raise self.unavailable()
        self._closed.wait(min(_RETRY_DELAY, deadline.left))

    def unavailable(self) -> StoreUnavailableError:
        """Return the error for a ZooKeeper that does not answer."""
        cause = f" ({self._sockets.problem})" if self._sockets.problem else ""
        return StoreUnavailableError(f"ZooKeeper at {self.address} does not answer{cause}")

    @contextmanager
    def translate_errors(self) -> Iterator[None]:
        """Translate kazoo's errors to StoreError."""
        try:
            yield
        except exceptions.NoAuthError as error:
            raise StoreError(
                f"ZooKeeper at {self.address} denies access to this service's nodes: they belong to another user or "
                "certificate; use the credentials that created them"
            ) from error
        except exceptions.KazooException as error:
            raise StoreError(f"ZooKeeper at {self.address}: {error!r}") from error

    def close(self) -> None:
        """End the session and its ephemeral nodes. May be called again."""
        self._closed.set()
        # kazoo waits for the server's answer, which a frozen server never sends.
        timer = threading.Timer(self._answer_timeout, self._sockets.drop)
        timer.daemon = True
        timer.start()
        try:
            self._client.stop()
            self._client.close()
        except exceptions.KazooException:
            log.warning("closing the session with ZooKeeper at %s failed", self.address, exc_info=True)
        finally:
            timer.cancel()
            timer.join()

    @property
    def _answer_timeout(self) -> float:
        return (self.timeout or self.address.session_timeout) / 4

    def _on_state(self, state: str) -> None:
        if state == KazooState.CONNECTED:
            self._connected.set()
        else:
            self._connected.clear()


class _RequestBatch:
    """Send several requests concurrently; wait for their answers as for one request."""

    def __init__(self, requests: Sequence[Request], client: Any) -> None:
        self._pending = [request(client) for request in requests]

    def get(self, timeout: float) -> list[Any]:
        """Return the answers in order; `timeout` applies to each."""
        return [request.get(timeout=timeout) for request in self._pending]


def _client(address: ZooKeeperAddress, sockets: KazooSockets) -> KazooClient:
    servers = random.sample(address.servers, len(address.servers))
    return KazooClient(
        hosts=",".join(servers),
        timeout=address.session_timeout,
        handler=sockets,
        auth_data=[("digest", address.credentials)] if address.credentials else None,
        # In a fixed order kazoo tries another server after a failure.
        randomize_hosts=False,
        connection_retry=KazooRetry(max_tries=-1, delay=_RETRY_DELAY, max_delay=0.5, sleep_func=sockets.sleep_func),
        logger=_client_log,
    )
