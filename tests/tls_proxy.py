"""TLS in front of a server without it, such as the Mesos of the package index."""

from __future__ import annotations

import select
import socket
import ssl
import threading
from collections.abc import Mapping
from contextlib import suppress
from socketserver import BaseRequestHandler, ThreadingTCPServer
from types import MappingProxyType, TracebackType


class TlsProxy:
    """Forward TLS connections at `address` ("127.0.0.1:PORT") to `target` in plain text.

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

        self._server = ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def __enter__(self) -> TlsProxy:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


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
