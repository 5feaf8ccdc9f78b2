"""Send calls and open event streams over HTTP, with the standard library only.

The package `requests` needs a newer Python than agents have. Proxies and .netrc of the environment are ignored: masters
are reached directly, and never receive another host's password. Another thread can abort a connection, also during its
name lookup. The system's resolver cannot be interrupted, so it runs in a thread that may outlive its caller.
"""

from __future__ import annotations

import errno
import http.client
import json
import os
import select
import socket
import threading
import time
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, Callable, Iterator, List, Mapping, Tuple
from urllib.parse import SplitResult, unquote, urlsplit

from tf_executor.contract.http import MAX_TEXT, HttpReply, SocketHandle, time_limit

from .credentials import Tls
from .http import (
    CONNECT_TIMEOUT,
    JSON_HEADERS,
    MALFORMED,
    HttpRequest,
    NotSentError,
    Subscription,
    TransportError,
    clock_offset,
    encode,
)
from .results import Failed, NotConnected, Rejected, SendResult, Sent

#: Maximum bytes of a domain socket's path (`sun_path`), with the terminating zero.
_UNIX_PATH = 108
#: What getaddrinfo returns: family, type, protocol, canonical name, address.
Resolved = List[Tuple[Any, ...]]


def connect(host: str, port: int, timeout: float, handle: SocketHandle) -> socket.socket:
    """Connect to the first address that answers; `timeout` seconds for each step.

    Raises OSError if the resolver or all addresses fail, and if another thread aborts or interrupts `handle`.
    """
    failure: OSError = OSError(f"{host} does not resolve to an address")
    for family, kind, protocol, _, address in _resolve(host.strip("[]"), port, timeout, handle):
        connection = socket.socket(family, kind, protocol)
        try:
            _open(connection, address, timeout, handle)
        except OSError as error:
            connection.close()
            failure = error
            if handle.aborted:
                break
        else:
            return connection
    raise failure


def connect_unix(path: str, timeout: float, handle: SocketHandle) -> socket.socket:
    """Connect to a domain socket; make a long path relative. Raises OSError."""
    if len(os.fsencode(path)) >= _UNIX_PATH:
        path = os.path.relpath(path)
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _open(connection, path, timeout, handle)
    except OSError:
        connection.close()
        raise
    return connection


def _open(connection: socket.socket, address: Any, timeout: float, handle: SocketHandle) -> None:
    connection.setblocking(False)
    code = connection.connect_ex(address)
    # Register after connect_ex: shutdown aborts a pending connection, but does not prevent a new one.
    handle.opened(connection)
    if code == errno.EINPROGRESS:
        code = _outcome(connection, timeout)
    if code != 0:
        raise OSError(code, os.strerror(code))
    connection.settimeout(timeout)
    if connection.family != socket.AF_UNIX:
        # Calls are small and synchronous.
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _outcome(connection: socket.socket, timeout: float) -> int:
    """Wait for a pending connection; return its errno, or 0."""
    poll = select.poll()
    poll.register(connection, select.POLLOUT)
    if not poll.poll(timeout * 1000):
        return errno.ETIMEDOUT
    return connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)


def _resolve(host: str, port: int, timeout: float, handle: SocketHandle) -> Resolved:
    with suppress(socket.gaierror, UnicodeError):  # not a numeric address
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    answers: SimpleQueue[Resolved | OSError] = SimpleQueue()
    threading.Thread(target=lambda: answers.put(_look_up(host, port)), name="mesos-name-lookup", daemon=True).start()
    with handle.interrupting(lambda: answers.put(OSError("interrupted"))):
        try:
            answer = answers.get(timeout=timeout)
        except Empty:
            raise OSError(f"looking up {host} timed out after {timeout:g} s") from None
    if isinstance(answer, OSError):
        raise answer
    return answer


def _look_up(host: str, port: int) -> Resolved | OSError:
    try:
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        return OSError(f"looking up {host} failed: {error}")
    except UnicodeError as error:
        return OSError(f"invalid host name {host!r}: {error}")


#: Scheme of a URL whose host is the percent-encoded path of a domain socket.
UNIX_SCHEME = "http+unix"
_CHUNK = 65536
#: Maximum bytes and seconds of the answer to a call: far more than a master with 100,000 tasks needs.
_MAX_ANSWER, _MAX_SECONDS = 1 << 29, 120.0
#: What http.client raises; ValueError comes from its parsing of chunk lengths.
_ERRORS = (OSError, http.client.HTTPException, ValueError)


def _broken(error: BaseException) -> TransportError:
    text = str(error)[:MAX_TEXT]
    return TransportError(f"{type(error).__name__}: {text}" if text else type(error).__name__)


class Stream:
    """POST requests over one connection, whose response may be endless.

    Used by one thread; only `interrupt` and `abort` are thread-safe.
    """

    def __init__(self, tls: Tls) -> None:
        self._tls = tls
        self._handle = SocketHandle()
        self._peer = ("", "")
        self._connection: http.client.HTTPConnection | None = None
        self._response: http.client.HTTPResponse | None = None

    def open(self, request: HttpRequest) -> http.client.HTTPResponse:
        """Send the request and wait for the head of the response. Raises TransportError."""
        url = urlsplit(request.url)
        try:
            if not self._is_connected(url):
                self.close()
                # HTTPConnection gets the name for its Host header, and a socket that can be aborted.
                name = "localhost" if url.scheme == UNIX_SCHEME else url.hostname or ""
                self._connection = http.client.HTTPConnection(name, _port(url))
                self._connection.sock, self._peer = self._connect(url, request), url[:2]
        except _ERRORS as error:
            raise NotSentError(str(_broken(error))) from error
        try:
            assert self._connection is not None
            with time_limit(2 * request.timeout, self._handle.interrupt):
                self._connection.request("POST", url.path, request.body, dict(request.headers))
                self._response = self._connection.getresponse()
        except _ERRORS as error:
            raise _broken(error) from error
        return self._response

    def _is_connected(self, url: SplitResult) -> bool:
        """Whether the connection is usable; it is readable after the server has closed it."""
        if self._connection is None or self._connection.sock is None or self._peer != url[:2]:
            return False
        poll = select.poll()
        poll.register(self._connection.sock, select.POLLIN)
        return not poll.poll(0)

    def _connect(self, url: SplitResult, request: HttpRequest) -> socket.socket:
        timeout = min(request.timeout, CONNECT_TIMEOUT)
        if url.scheme == UNIX_SCHEME:
            connection = connect_unix(unquote(url.netloc), timeout, self._handle)
        else:
            connection = connect(url.hostname or "", _port(url), timeout, self._handle)
        connection.settimeout(request.timeout)
        if url.scheme != "https":
            return connection
        try:
            return self._tls.context(self._handle).wrap_socket(connection, server_hostname=url.hostname)
        except BaseException:
            connection.close()
            raise

    def chunks(self) -> Iterator[bytes]:
        """Yield the body in pieces. Raises TransportError after a break or long silence."""
        response = self._response
        assert response is not None, "open() first"
        while True:
            try:
                chunk = response.read1(_CHUNK)
            except _ERRORS as error:
                raise _broken(error) from error
            if not chunk:
                return
            yield chunk

    def text(self) -> str:
        """Return the start of an error response, to quote in messages. Never raises."""
        body, end = b"", time.monotonic() + _MAX_SECONDS
        with suppress(TransportError):  # a partial text is enough
            for chunk in self.chunks():
                body += chunk
                if len(body) >= MAX_TEXT or time.monotonic() > end:
                    break
        return HttpReply(0, body).text

    def read(self) -> bytes:
        """Return the body and free the connection for reuse. Raises TransportError."""
        assert self._response is not None, "open() first"
        body, end = bytearray(), time.monotonic() + _MAX_SECONDS
        for chunk in self.chunks():
            body += chunk
            if len(body) > _MAX_ANSWER or time.monotonic() > end:
                raise TransportError(f"the response does not end within {_MAX_SECONDS:g} s or {_MAX_ANSWER} bytes")
        if self._response.length:
            raise TransportError(f"the response ended {self._response.length} bytes early")
        try:
            self._response.read()  # only this frees the connection
        except _ERRORS as error:
            raise _broken(error) from error
        return bytes(body)

    def set_silence_limit(self, seconds: float | None) -> None:
        """Set the seconds without a byte after which `chunks` raises; None for unlimited."""
        self._handle.settimeout(seconds)

    def interrupt(self) -> None:
        """Make the current operation fail. Thread-safe."""
        self._handle.interrupt()

    def abort(self) -> None:
        """Make current and later operations fail. Thread-safe."""
        self._handle.abort()

    def close(self) -> None:
        """Release the connection. Never raises; may be called in any state."""
        if self._response is not None:
            self._response.close()
        if self._connection is not None:
            self._connection.close()
        self._response = self._connection = None


def _port(url: SplitResult) -> int:
    # A domain socket's netloc is a path.
    return 80 if url.scheme == UNIX_SCHEME else url.port or (443 if url.scheme == "https" else 80)


class Transport:
    """Open streams, and send calls one by one over a persistent connection.

    `timeout`: seconds that a call waits for earlier calls. Raises ValueError for unusable files of `tls`.
    """

    def __init__(self, tls: Tls | None = None, timeout: float = 10.0) -> None:
        self._tls, self._timeout = tls or Tls(), timeout
        self._turn = threading.Lock()
        self._closed = False
        self._call = Stream(self._tls)
        #: Seconds by which the clock of the master or agent was ahead at its last answer; None if unknown.
        self.clock_offset: float | None = None
        if tls is not None:
            tls.context(SocketHandle())

    def stream(self) -> Stream:
        return Stream(self._tls)

    def send(
        self,
        session: Subscription,
        present: Callable[[], Subscription | None],
        headers: Mapping[str, str],
        body: Mapping[str, Any],
    ) -> SendResult:
        """POST `body`; wait up to `timeout` seconds each for the queue and the answer.

        Returns NotConnected without sending if `session` is no longer the `present` one.
        """
        request = HttpRequest(session.url, {**JSON_HEADERS, **headers, **session.headers}, encode(body), self._timeout)
        if not self._turn.acquire(timeout=self._timeout):
            return Failed("timed out while earlier calls waited for their responses", may_be_done=False)
        try:
            return result_of(self.post(request)) if present() is session else NotConnected()
        except TransportError as error:
            return Failed(str(error), not isinstance(error, NotSentError))
        finally:
            self._turn.release()

    def post(self, request: HttpRequest) -> HttpReply:
        """Send one call and return its response; not thread-safe. Raises TransportError."""
        if self._closed:
            raise NotSentError("the driver is stopped")
        try:
            response = self._call.open(request)
            self.clock_offset = clock_offset(response.headers.get("date"))
            return HttpReply(response.status, self._call.read())
        except TransportError:
            self._call.close()
            raise

    def interrupt(self) -> None:
        """Make the current call fail. Thread-safe."""
        self._call.interrupt()

    def close(self) -> None:
        """Release resources; later calls raise TransportError. Thread-safe, repeatable."""
        self._closed = True
        self._call.abort()
        # The aborted call, if any, ends now; only then its connection may be closed.
        with self._turn:
            self._call.close()


def result_of(reply: HttpReply) -> SendResult:
    """Return the outcome of an answered call."""
    if not 200 <= reply.status < 300:
        return Rejected(reply.status, reply.text)
    try:
        answer = json.loads(reply.body)
    except MALFORMED:
        return Sent()
    return Sent(answer) if isinstance(answer, dict) else Sent()
