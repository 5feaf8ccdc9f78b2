"""TLS in front of a server without it, such as the Mesos of the package index."""

from __future__ import annotations

import select
import socket
import ssl
from collections.abc import Mapping
from contextlib import suppress
from socketserver import BaseRequestHandler, ThreadingTCPServer
from types import MappingProxyType

from kit.http_server import LoopbackServer


class TlsProxy(LoopbackServer):
    """Forward TLS connections at `address` ("127.0.0.1:PORT") to `target` unencrypted.

    In what the target says, addresses that are keys of `moved` become its values, of the same length: those of other
    proxies. Its clients must have ended before it does.
    """

    def __init__(self, target: str, context: ssl.SSLContext, moved: Mapping[str, str] = MappingProxyType({})) -> None:
        host, _, port = target.rpartition(":")

        class Handler(BaseRequestHandler):
            def handle(self) -> None:
                # Who does not trust us, or speaks no TLS, goes.
                with (
                    suppress(OSError),
                    context.wrap_socket(self.request, server_side=True) as client,
                    socket.create_connection((host, int(port))) as server,
                ):
                    pass_on(client, server, moved)

        super().__init__(ThreadingTCPServer(("127.0.0.1", 0), Handler))


def pass_on(client: ssl.SSLSocket, server: socket.socket, moved: Mapping[str, str]) -> None:
    """Forward in both directions, in one thread, until a side closes."""
    while True:
        # What is decrypted already makes no socket ready.
        ready = [client] if client.pending() else select.select([client, server], [], [])[0]
        for one in ready:
            data = one.recv(65536)
            if not data:
                return
            if one is server:
                for old, new in moved.items():
                    data = data.replace(old.encode(), new.encode())
            (server if one is client else client).sendall(data)
