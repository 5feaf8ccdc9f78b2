"""Where Horovod's processes meet: a store of values by name, over HTTP, as Horovod's own launcher serves it.

PUT keeps a value, GET gives it or 404 while it is not there, DELETE takes leave (horovod/runner/http/http_server.py).
"""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType

#: Bytes of one value: addresses of one process.
LARGEST = 1 << 20


class Rendezvous:
    """Serves from its start until it is closed."""

    def __init__(self, port: int, host: str = "") -> None:
        """Raise OSError when the port is taken."""
        self._server = ThreadingHTTPServer((host, port), _Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, name="rendezvous", daemon=True)

    @property
    def port(self) -> int:
        """The one that it got, where `port` was 0."""
        return int(self._server.server_address[1])

    def __enter__(self) -> Rendezvous:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    """The values are the server's: one store per rendezvous."""

    protocol_version = "HTTP/1.1"

    def do_PUT(self) -> None:
        """Keep the body under the path."""
        size = int(self.headers.get("Content-Length") or 0)
        if size > LARGEST:
            self._answer(413)
            return
        self._store()[self.path] = self.rfile.read(size)
        self._answer(200)

    def do_GET(self) -> None:
        """The value, or 404."""
        value = self._store().get(self.path)
        self._answer(404 if value is None else 200, value or b"")

    def do_DELETE(self) -> None:
        """A process says that it needs its scope no more."""
        self._answer(200)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is theirs
        """Nothing: processes ask again and again until all are there."""

    def _store(self) -> dict[str, bytes]:
        found: dict[str, bytes] = self.server.__dict__.setdefault("values", {})
        return found

    def _answer(self, code: int, body: bytes = b"") -> None:
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
