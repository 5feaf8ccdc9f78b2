"""HTTP client with one time limit for each whole request.

Uses urllib.request and http.client, because the executor and the commands run on Python 3.8 without other packages. The
package `requests` has no such limit: its timeout starts again with each byte, like a socket's timeout. Only the DC/OS
login uses `requests`, because the login needs sessions. mesos_client has its own transport, because its connections
stay open and can be aborted.
"""

from __future__ import annotations

import http.client
import ipaddress
import socket
import ssl
import threading
import urllib.error
import urllib.request
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Callable, Iterable, Iterator, Mapping
from urllib.parse import urlsplit

_CHUNK = 1 << 16
#: Maximum characters of a reply in a message.
MAX_TEXT = 500


class SocketHandle:
    """Handle to interrupt a thread's wait on a socket or a registered operation.

    An interrupt shuts the socket down. A shutdown is safe at any time; closing the socket is not.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket: Any = None
        self._interrupt: Callable[[], None] | None = None
        self.aborted = False

    def opened(self, current: Any) -> None:
        """Register the socket in use, connected or not. Raises OSError after `abort`."""
        with self._lock:
            self._socket = current
            self._refuse_if_aborted()

    @contextmanager
    def interrupting(self, interrupt: Callable[[], None]) -> Iterator[None]:
        """Let `interrupt` end waits in the block. Raises OSError after `abort`."""
        with self._lock:
            self._refuse_if_aborted()
            self._interrupt = interrupt
        try:
            yield
        finally:
            with self._lock:
                self._interrupt = None

    def settimeout(self, seconds: float | None) -> None:
        """Set the maximum wait for bytes; None for unlimited."""
        with self._lock:
            if self._socket is not None:
                self._socket.settimeout(seconds)

    def interrupt(self) -> None:
        """End the current wait."""
        with self._lock:
            self._wake()

    def abort(self) -> None:
        """End the current wait, and reject sockets opened later."""
        with self._lock:
            self.aborted = True
            self._wake()

    def _refuse_if_aborted(self) -> None:
        if self.aborted:
            raise OSError("aborted")

    def _wake(self) -> None:
        if self._interrupt is not None:
            self._interrupt()
        if self._socket is not None:
            # Fails for a closed or reset socket, on which no thread waits.
            with suppress(OSError):
                # SSLSocket's own shutdown would discard the session that the reading thread uses.
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)


@contextmanager
def time_limit(seconds: float, expire: Callable[[], None]) -> Iterator[None]:
    """Raise TimeoutError if a block takes longer; `expire` ends the block's wait.

    A socket's timeout starts again with each byte, and http.client accepts a truncated head as complete.
    """
    expired = threading.Event()

    def end() -> None:
        expired.set()
        expire()

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    # Fails at the limit of threads. Then only the timeout of the socket remains.
    with suppress(RuntimeError):
        timer.start()
    failure = TimeoutError(f"response not complete within {seconds:g} s")
    try:
        yield
    except (OSError, http.client.HTTPException) as error:
        if expired.is_set():
            raise failure from error
        raise
    finally:
        timer.cancel()
    if expired.is_set():
        raise failure


class NoReplyError(OSError):
    """No complete reply arrived; the text is the cause, such as `Connection refused`."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(getattr(cause, "strerror", None) or str(cause) or repr(cause))
        self.cause = cause


@dataclass(frozen=True)
class HttpReply:
    """A reply with any status."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """Start of the body, for messages."""
        return self.body[: 4 * MAX_TEXT].decode("utf-8", "replace").strip()[:MAX_TEXT]


@dataclass(frozen=True)
class HttpClient:
    """HTTP client that opens a new connection for each request."""

    #: Seconds for a whole request, and for each wait for the server.
    limit: float
    timeout: float
    #: None: the system's certificate authorities.
    context: ssl.SSLContext | None = None
    #: Use the proxies of the environment, except for this machine.
    uses_proxies: bool = False
    #: None: return redirects as replies, because a token is for one address only.
    redirects: type[urllib.request.HTTPRedirectHandler] | None = None
    #: Maximum bytes of a body; more are cut off.
    max_bytes: int = 1 << 28

    def fetch(
        self, url: str, headers: Mapping[str, str] | None = None, body: bytes | None = None, method: str | None = None
    ) -> HttpReply:
        """Return the reply. `method`: by default GET, or POST if there is a body.

        Raises NoReplyError, and ValueError for an invalid URL or header.
        """
        handle = SocketHandle()
        with self._limited(handle), self._open(url, headers or {}, body, method, handle) as response:
            return self._reply(response)

    @contextmanager
    def stream(self, url: str, headers: Mapping[str, str]) -> Iterator[tuple[HttpReply, Iterable[bytes]]]:
        """Send a GET; yield the head and the lines of the body as they arrive.

        If the status is not 200, the reply contains the body. The time limit applies to the reply, not to the lines.
        Raises the same errors as `fetch`.
        """
        handle = SocketHandle()
        with ExitStack() as stack:
            with self._limited(handle):
                response = stack.enter_context(self._open(url, headers, None, None, handle))
                is_stream = response.status == http.client.OK
                reply = HttpReply(response.status, b"", response.headers) if is_stream else self._reply(response)
            yield reply, response

    @contextmanager
    def _limited(self, handle: SocketHandle) -> Iterator[None]:
        try:
            with time_limit(self.limit, handle.abort):
                yield
        except http.client.InvalidURL as error:
            raise ValueError(str(error)) from error
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", error)
            raise NoReplyError(reason if isinstance(reason, Exception) else error) from error

    def _open(
        self, url: str, headers: Mapping[str, str], body: bytes | None, method: str | None, handle: SocketHandle
    ) -> Any:
        """Return the response once its head has arrived, with any status."""
        handlers: list[Any] = [_LimitedHandler(handle, self.context), self.redirects or _AnyStatus]
        if not self.uses_proxies or is_loopback(url):
            handlers.append(urllib.request.ProxyHandler({}))
        request = urllib.request.Request(url, body, dict(headers), method=method)  # noqa: S310 - the callers' schemes
        try:
            return urllib.request.build_opener(*handlers).open(request, timeout=self.timeout)
        except urllib.error.HTTPError as error:
            return error

    def _reply(self, response: Any) -> HttpReply:
        body = bytearray()
        while len(body) < self.max_bytes and (part := response.read1(min(_CHUNK, self.max_bytes - len(body)))):
            body += part
        if len(body) < self.max_bytes and getattr(response, "length", None):
            raise http.client.IncompleteRead(bytes(body), response.length)
        return HttpReply(response.status, bytes(body), response.headers)


class _AnyStatus(urllib.request.HTTPErrorProcessor):
    """Accepts replies with any status; urllib would raise an error for some."""

    def http_response(self, request: Any, response: Any) -> Any:  # noqa: ARG002
        return response

    https_response = http_response


class _LimitedHandler(urllib.request.HTTPSHandler, urllib.request.HTTPHandler):
    """Registers each connection, so that it can be aborted."""

    def __init__(self, handle: SocketHandle, context: ssl.SSLContext | None) -> None:
        # That of HTTPSHandler may read the system's certificate authorities, for http too.
        urllib.request.AbstractHTTPHandler.__init__(self)
        self._handle, self._tls = handle, context

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(http.client.HTTPSConnection, req, context=self._tls or ssl.create_default_context())

    def do_open(self, http_class: Any, req: urllib.request.Request, **arguments: Any) -> http.client.HTTPResponse:
        def make(*args: Any, **options: Any) -> Any:
            connection = http_class(*args, **options)
            connect = connection.connect

            def connect_and_register() -> None:
                connect()
                self._handle.opened(connection.sock)

            connection.connect = connect_and_register
            return connection

        return super().do_open(make, req, **arguments)


def is_loopback(url: str) -> bool:
    """Whether a URL or HOST:PORT names this machine."""
    host = urlsplit(url if "://" in url else f"//{url}").hostname or ""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
