"""Authentication (HTTP Basic, tokens) and TLS settings for masters and agents."""

from __future__ import annotations

import base64
import os
import ssl
import threading
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Callable, Optional, Tuple, Union

from tf_executor.contract.http import SocketHandle


class Credentials:
    """Fixed value of the Authorization header, or none. Thread-safe."""

    def __init__(self, header: str | None = None) -> None:
        self._header = header

    def header(self) -> str | None:
        """Return the next Authorization header. Raises errors of the login service."""
        return self._header

    def renew(self, refused: str | None) -> bool:  # noqa: ARG002
        """React to a 401 answer; return whether the next `header` may differ."""
        return False


class BasicCredentials(Credentials):
    """HTTP Basic authentication (RFC 7617; Apache Mesos, docs/authentication.md)."""

    def __init__(self, principal: str, secret: str) -> None:
        """Raises ValueError for a principal with a colon."""
        if ":" in principal:
            raise ValueError(f"principal {principal!r}: HTTP Basic does not allow a colon")
        super().__init__("Basic " + base64.b64encode(f"{principal}:{secret}".encode()).decode())


class TokenCredentials(Credentials):
    """Token of a login service, renewed when Mesos rejects it.

    Args:
        login: Returns a token; called for the first request, after each rejection, and for a stale token.
        scheme: Prefix of the token; `token=` on DC/OS.
        is_stale: Returns whether a token expires soon.
    """

    def __init__(
        self, login: Callable[[], str], scheme: str = "Bearer ", is_stale: Callable[[str], bool] = lambda _: False
    ) -> None:
        super().__init__()
        self._login, self._scheme, self._is_stale = login, scheme, is_stale
        self._lock = threading.Lock()

    def header(self) -> str | None:
        # The lock makes concurrent requests share one login.
        with self._lock:
            if self._header is None:
                self._header = self._scheme + self._login()
            elif self._is_stale(self._header[len(self._scheme) :]):
                # If the login service is away, keep using the old token while Mesos accepts it.
                with suppress(OSError):
                    self._header = self._scheme + self._login()
            return self._header

    def renew(self, refused: str | None) -> bool:
        with self._lock:
            # A concurrent request may have renewed it.
            if self._header == refused:
                self._header = None
            return True


#: True: the system's CAs; a path: a CA file or folder; False: no verification.
Verify = Union[bool, str]
#: PEM file with certificate and key, or the two files.
ClientCertificate = Optional[Union[str, Tuple[str, str]]]


@dataclass(frozen=True)
class Tls:
    """TLS settings. Connections use TLS 1.2 or newer."""

    verify: Verify = True
    cert: ClientCertificate = None
    #: Whether the certificate must match the requested host name.
    check_hostname: bool = True

    def context(self, handle: SocketHandle) -> ssl.SSLContext:
        """Return a context for connections of `handle`. Raises ValueError for a bad file."""
        context = _Context(ssl.PROTOCOL_TLS_CLIENT)
        context.handle = handle
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.check_hostname = self.check_hostname and self.verify is not False
        context.verify_mode = ssl.CERT_NONE if self.verify is False else ssl.CERT_REQUIRED
        self._load_authorities(context)
        self._load_certificate(context)
        return context

    def _load_authorities(self, context: ssl.SSLContext) -> None:
        if self.verify is True:
            context.load_default_certs()
        elif isinstance(self.verify, str):
            place = {"capath" if os.path.isdir(self.verify) else "cafile": self.verify}  # noqa: PTH112
            try:
                context.load_verify_locations(**place)
            except OSError as error:  # includes ssl.SSLError
                raise ValueError(f"cannot load certificate authorities from {self.verify!r}: {error}") from error

    def _load_certificate(self, context: ssl.SSLContext) -> None:
        if self.cert is None:
            return
        file, key = (self.cert, None) if isinstance(self.cert, str) else self.cert
        try:
            # The empty password keeps OpenSSL from prompting in the terminal.
            context.load_cert_chain(file, key, password="")
        except OSError as error:
            raise ValueError(f"cannot load client certificate {file} (key: {key or file}): {error}") from error


class _Context(ssl.SSLContext):
    """Register a socket before its handshake: `handle` can then abort a silent peer."""

    handle: SocketHandle

    def wrap_socket(self, sock: Any, *args: Any, **kwargs: Any) -> ssl.SSLSocket:
        wrapped = super().wrap_socket(sock, *args, **{**kwargs, "do_handshake_on_connect": False})
        try:
            self.handle.opened(wrapped)
            wrapped.do_handshake()
        except BaseException:
            wrapped.close()
            raise
        return wrapped
