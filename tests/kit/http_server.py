"""Real servers on loopback, with handlers of the test."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import TypeVar

T = TypeVar("T")


class QuietHandler(BaseHTTPRequestHandler):
    """Passes each request to `respond`, and logs nothing."""

    def do_POST(self) -> None:
        self.respond()

    do_GET = do_PUT = do_POST  # noqa: N815 - their names there

    def respond(self) -> None:
        raise NotImplementedError

    def body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def answer(self, code: int, body: bytes, **headers: str) -> None:
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


class LoopbackServer:
    """Serves in a thread until it is closed."""

    def __init__(self, server: TCPServer) -> None:
        self._server = server
        self.port = int(server.server_address[1])
        self.address = f"127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        self._thread.start()

    def __enter__(self: T) -> T:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class HttpServer(LoopbackServer):
    """HTTP, and HTTPS after `encrypt`."""

    def __init__(self, handler: Callable[..., BaseHTTPRequestHandler]) -> None:
        super().__init__(ThreadingHTTPServer(("127.0.0.1", 0), handler))
        self.url = f"http://{self.address}"

    def encrypt(self, context: ssl.SSLContext) -> None:
        """Use TLS from the next connection on."""
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.url = f"https://{self.address}"


@contextmanager
def dripping_server(start: bytes, drip: bytes) -> Iterator[str]:
    """Send the start of an answer, then `drip` every 50 ms; yield the URL."""
    ended = threading.Event()

    class Handler(QuietHandler):
        def respond(self) -> None:
            self.wfile.write(start)
            with suppress(OSError):
                while not ended.wait(0.05):
                    self.wfile.write(drip)
            self.close_connection = True

    with HttpServer(Handler) as server:
        try:
            yield server.url
        finally:
            ended.set()
