"""HTTP transport with requests, for the scheduler driver.

Proxies and .netrc of the environment are ignored (`trust_env`): masters are reached directly, and never receive another
host's password.
"""

from __future__ import annotations

import logging
import socket
import threading
from typing import Any, Iterator

import requests
from requests.adapters import HTTPAdapter
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

from .connect import connect
from .credentials import Tls
from .http import HttpReply, HttpRequest, ResponseHead, SocketHandle, Stream, Transport, TransportError

logger = logging.getLogger(__name__)

_CHUNK = 65536


def _tracking(pool: type[HTTPConnectionPool], handle: SocketHandle) -> type[HTTPConnectionPool]:
    """Return a subclass of the pool whose connections `handle` can abort from their first packet on."""

    class Connection(pool.ConnectionCls):  # type: ignore[name-defined, misc]
        def _new_conn(self) -> socket.socket:
            return connect(self._dns_host, self.port, self.timeout, handle)

    class Pool(pool):  # type: ignore[valid-type, misc]
        ConnectionCls = Connection

        def _validate_conn(self, connection: Any) -> None:
            # urllib3 would warn of an unverified server for each connection; the transport logs it once.
            if connection.sock is None:
                connection.connect()

    return Pool


class _Adapter(HTTPAdapter):
    def __init__(self, handle: SocketHandle, tls: Tls | None = None) -> None:
        self._handle, self._tls = handle, tls
        super().__init__(pool_connections=1, pool_maxsize=1, max_retries=0)

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        if self._tls is not None:
            kwargs["ssl_context"] = self._tls.context(self._handle)
            kwargs.update({} if self._tls.check_hostname else {"assert_hostname": False})
        super().init_poolmanager(*args, **kwargs)
        self.poolmanager.pool_classes_by_scheme = {
            "http": _tracking(HTTPConnectionPool, self._handle),
            "https": _tracking(HTTPSConnectionPool, self._handle),
        }


class _Session(requests.Session):
    def __init__(self, handle: SocketHandle, tls: Tls) -> None:
        super().__init__()
        self._handle, self._tls = handle, tls
        self.trust_env = False
        # The context has loaded these files; without this requests would add its own CAs.
        self.verify, self.cert = tls.verify, tls.cert
        self.adapters.clear()
        self.mount("http://", _Adapter(handle))

    def get_adapter(self, url: str) -> Any:
        # Load the system's CAs only for https, because it takes longer than a call.
        if url.startswith("https://") and "https://" not in self.adapters:
            self.mount("https://", _Adapter(self._handle, self._tls))
        return super().get_adapter(url)


def _describe(error: BaseException) -> str:
    """Describe the innermost cause: requests wraps it three times."""
    while True:
        inner = getattr(error, "reason", None) or (error.args[-1] if error.args else None) or error.__cause__
        if not isinstance(inner, BaseException):
            return f"{type(error).__name__}: {error}"
        error = inner


class RequestsStream(Stream):
    """One connection, one request."""

    def __init__(self, tls: Tls) -> None:
        super().__init__()
        self._session = _Session(self._handle, tls)
        self._response: requests.Response | None = None

    def open(self, request: HttpRequest) -> ResponseHead:
        self._response = _post(self._session, request, stream=True)
        headers = {name.lower(): value for name, value in self._response.headers.items()}
        return ResponseHead(self._response.status_code, headers)

    def chunks(self) -> Iterator[bytes]:
        assert self._response is not None, "open() first"
        try:
            yield from self._response.iter_content(_CHUNK)
        except (requests.RequestException, OSError) as error:
            raise TransportError(_describe(error)) from error

    def close(self) -> None:
        if self._response is not None:
            self._response.close()
        self._session.close()


def _post(session: requests.Session, request: HttpRequest, *, stream: bool) -> requests.Response:
    try:
        return session.post(
            request.url,
            data=request.body,
            headers=dict(request.headers),
            timeout=(request.connect_timeout, request.timeout),
            stream=stream,
            allow_redirects=False,
        )
    except (requests.RequestException, OSError) as error:
        raise TransportError(_describe(error)) from error


class RequestsTransport(Transport):
    """Send calls over one persistent connection, separate from the event stream.

    Raises ValueError for unusable files of `tls`.
    """

    def __init__(self, tls: Tls | None = None) -> None:
        self._tls = tls or Tls()
        if self._tls.verify is False:
            logger.warning("certificate verification is off: another host can impersonate the master")
        self._closed = threading.Event()
        self._call = SocketHandle()
        if tls is not None:
            tls.context(self._call)
        self._session = _Session(self._call, self._tls)

    def stream(self) -> Stream:
        return RequestsStream(self._tls)

    def post(self, request: HttpRequest) -> HttpReply:
        if self._closed.is_set():
            raise TransportError("the driver is stopped")
        response = _post(self._session, request, stream=False)
        return HttpReply(response.status_code, response.content)

    def interrupt(self) -> None:
        self._call.interrupt()

    def close(self) -> None:
        self._closed.set()
        self._call.abort()
        self._session.close()
