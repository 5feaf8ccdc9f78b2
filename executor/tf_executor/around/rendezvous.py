"""Horovod's rendezvous server: a key-value store over HTTP.

PUT stores a value, GET returns it or 404, DELETE unregisters a process (horovod/runner/http/http_server.py).
"""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

#: Maximum bytes of a value: the addresses of one process.
MAX_VALUE_BYTES = 1 << 20


class RendezvousServer:
    """Rendezvous server of one job; a context manager."""

    def __init__(self, port: int, host: str = "") -> None:
        """Listen at `port`. Raises OSError if the port is in use."""
        self._server = ThreadingHTTPServer((host, port), _Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, name="rendezvous", daemon=True)

    @property
    def port(self) -> int:
        """The port in use, also if `port` was 0."""
        return int(self._server.server_address[1])

    def __enter__(self) -> RendezvousServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    """Request handler; the server object holds the values."""

    protocol_version = "HTTP/1.1"

    def do_PUT(self) -> None:
        """Store the body under the path."""
        size = int(self.headers.get("Content-Length") or 0)
        if size > MAX_VALUE_BYTES:
            self._answer(413)
            return
        self._store()[self.path] = self.rfile.read(size)
        self._answer(200)

    def do_GET(self) -> None:
        """Return the value or 404."""
        value = self._store().get(self.path)
        self._answer(404 if value is None else 200, value or b"")

    def do_DELETE(self) -> None:
        """Accept the unregistration of a process."""
        self._answer(200)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - name of the base class
        """Log nothing: processes poll until all have registered."""

    def _store(self) -> dict[str, bytes]:
        values: dict[str, bytes] = self.server.__dict__.setdefault("values", {})
        return values

    def _answer(self, code: int, body: bytes = b"") -> None:
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
