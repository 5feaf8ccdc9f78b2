"""How a master or an agent is verified over TLS, and with which certificate we present ourselves."""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass
from typing import Any, Optional, Tuple, Union

from mesos_client.transport import SocketHandle

#: True: the machine's authorities; a path: a file or folder of our own instead; False: not verified at all.
Verify = Union[bool, str]
#: A PEM file with certificate and key, or the two files.
ClientCertificate = Optional[Union[str, Tuple[str, str]]]


@dataclass(frozen=True)
class Tls:
    """TLS 1.2 or newer."""

    verify: Verify = True
    cert: ClientCertificate = None
    #: Whether the certificate must name the host that we asked for.
    check_hostname: bool = True

    def context(self, handle: SocketHandle) -> ssl.SSLContext:
        """For connections that `handle` can give up. Raise ValueError naming a file that cannot be used."""
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
            except OSError as error:  # ssl.SSLError is one
                raise ValueError(f"the certificate authorities in {self.verify!r} cannot be loaded: {error}") from error

    def _load_certificate(self, context: ssl.SSLContext) -> None:
        if self.cert is None:
            return
        file, key = (self.cert, None) if isinstance(self.cert, str) else self.cert
        try:
            # Without a password: by default OpenSSL would ask the terminal.
            context.load_cert_chain(file, key, password="")
        except OSError as error:
            raise ValueError(f"the client certificate in {file} (key: {key or file}): {error}") from error


class _Context(ssl.SSLContext):
    """Tells of a socket before its handshake: a peer that does not answer to that must not hold us."""

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
