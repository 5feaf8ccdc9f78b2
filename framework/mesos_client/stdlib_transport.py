"""HTTP transport with the standard library only, for the executor driver.

Releases of requests need a newer Python than agents have.
"""

from __future__ import annotations

import http.client
import socket
import threading
from typing import Iterator
from urllib.parse import SplitResult, unquote, urlsplit

from .connect import connect, connect_unix
from .credentials import Tls
from .http import HttpReply, HttpRequest, ResponseHead, SocketHandle, Stream, Transport, TransportError

#: Scheme of a URL whose host is the percent-encoded path of a domain socket.
UNIX_SCHEME = "http+unix"
_CHUNK = 65536
#: What http.client raises; ValueError comes from its parsing of chunk lengths.
_ERRORS = (OSError, http.client.HTTPException, ValueError)


def _describe(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


class StdlibStream(Stream):
    """One connection, one request."""

    def __init__(self, tls: Tls, handle: SocketHandle | None = None) -> None:
        super().__init__()
        self._handle = handle or self._handle
        self._tls = tls
        self._connection: http.client.HTTPConnection | None = None
        self._response: http.client.HTTPResponse | None = None

    def open(self, request: HttpRequest) -> ResponseHead:
        url = urlsplit(request.url)
        # HTTPConnection gets the name for its Host header, and a socket that can be aborted.
        name = "localhost" if url.scheme == UNIX_SCHEME else url.hostname or ""
        self._connection = http.client.HTTPConnection(name, _port(url), timeout=request.timeout)
        try:
            self._connection.sock = self._connect(url, request)
            self._connection.request("POST", url.path, request.body, dict(request.headers))
            self._response = self._connection.getresponse()
        except _ERRORS as error:
            raise TransportError(_describe(error)) from error
        return ResponseHead(self._response.status, {name.lower(): value for name, value in self._response.getheaders()})

    def _connect(self, url: SplitResult, request: HttpRequest) -> socket.socket:
        if url.scheme == UNIX_SCHEME:
            connection = connect_unix(unquote(url.netloc), request.connect_timeout, self._handle)
        else:
            connection = connect(url.hostname or "", _port(url), request.connect_timeout, self._handle)
        connection.settimeout(request.timeout)
        if url.scheme != "https":
            return connection
        try:
            return self._tls.context(self._handle).wrap_socket(connection, server_hostname=url.hostname)
        except BaseException:
            connection.close()
            raise

    def chunks(self) -> Iterator[bytes]:
        response = self._response
        assert response is not None, "open() first"
        while True:
            try:
                chunk = response.read1(_CHUNK)
            except _ERRORS as error:
                raise TransportError(_describe(error)) from error
            if not chunk:
                return
            yield chunk

    def close(self) -> None:
        if self._response is not None:
            self._response.close()
        if self._connection is not None:
            self._connection.close()


def _port(url: SplitResult) -> int:
    # A domain socket's netloc is a path.
    return 80 if url.scheme == UNIX_SCHEME else url.port or (443 if url.scheme == "https" else 80)


class StdlibTransport(Transport):
    """Open a connection for each call: an executor makes few calls, to its local agent.

    Raises ValueError for unusable files of `tls`.
    """

    def __init__(self, tls: Tls | None = None) -> None:
        self._tls = tls or Tls()
        self._closed = threading.Event()
        self._call = SocketHandle()
        if tls is not None:
            tls.context(self._call)

    def stream(self) -> Stream:
        return StdlibStream(self._tls)

    def post(self, request: HttpRequest) -> HttpReply:
        if self._closed.is_set():
            raise TransportError("the driver is stopped")
        stream = StdlibStream(self._tls, self._call)
        try:
            head = stream.open(request)
            return HttpReply(head.status, b"".join(stream.chunks()))
        finally:
            stream.close()

    def interrupt(self) -> None:
        self._call.interrupt()

    def close(self) -> None:
        self._closed.set()
        self._call.abort()
