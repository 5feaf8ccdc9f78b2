"""Horovod's rendezvous server: a key-value store over HTTP.

PUT stores a value, GET returns it or 404, DELETE unregisters a process (horovod/runner/http/http_server.py). The
protocol has no login, so the server serves only hosts of the ClusterSpec, and limits memory and time.
"""

from __future__ import annotations

import logging
import re
import socket
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, BinaryIO, Sequence

#: Maximum bytes of a value, the addresses of one process, and of all values. An executor has 64 MB by default.
MAX_VALUE_BYTES, MAX_TOTAL_BYTES = 1 << 20, 16 << 20
#: Bytes that a value needs in addition to its key and content.
_OVERHEAD = 200
#: Maximum bytes of a request without its body.
MAX_HEAD_BYTES = 16 << 10
#: Maximum connections of the hosts of the ClusterSpec, and of all others, which only get an error.
MAX_CONNECTIONS, MAX_OTHER_CONNECTIONS = 64, 8
#: Seconds after which a connection is closed. Each is for one request.
CONNECTION_SECONDS = 10.0
#: Seconds that a new connection waits for the end of another one.
_WAIT_SECONDS, _CHECK_SECONDS = 1.0, 0.1
#: Minimum seconds between two look-ups of host names while some are unknown, and afterwards.
_RETRY_INTERVAL, _LOOKUP_INTERVAL = 0.5, 5.0
#: Maximum seconds that an unknown client waits for look-ups. Horovod gives up after a few errors.
_LOOKUP_SECONDS = 5.0
#: Source of connections to any address of the loopback network.
_LOOPBACK = "127.0.0.1"
#: Maximum number of refused addresses in the log.
_LOGGED_ADDRESSES = 20

log = logging.getLogger(__name__)


class RendezvousServer:
    """Rendezvous server of one job; a context manager."""

    def __init__(self, port: int, hosts: Sequence[str] = (), host: str = "") -> None:
        """Listen at `port`. Raises OSError if the port is in use.

        `hosts`: names or addresses of the ClusterSpec; empty: any host is served.
        """
        self._server = _Server((host, port), hosts)
        self._thread = threading.Thread(target=self._server.serve_forever, name="rendezvous", daemon=True)
        self._resolver = threading.Thread(target=self._server.look_up, name="rendezvous-names", daemon=True)

    @property
    def port(self) -> int:
        """The port in use, also if `port` was 0."""
        return int(self._server.server_address[1])

    def __enter__(self) -> RendezvousServer:
        self._thread.start()
        self._resolver.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self._server.stop_look_ups()
        self._resolver.join(_WAIT_SECONDS)  # a look-up cannot be interrupted


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], hosts: Sequence[str]) -> None:
        super().__init__(address, _Handler)
        self.values: dict[str, bytes] = {}
        #: Bytes of the values, and of those that are being received.
        self._used = 0
        #: Connection -> whether its client is known to be in the ClusterSpec, and when to close it.
        self._connections: dict[Any, tuple[bool, float]] = {}
        self._changed = threading.Condition()
        self._hosts = hosts
        #: Host -> its addresses; none for a name before a look-up.
        self._addresses = {host: _addresses(host, socket.AI_NUMERICHOST) for host in hosts}
        self._looked_up, self._is_wanted, self._is_closed = float("-inf"), True, False
        self._refused: set[str] = set()

    # Connections.

    def process_request(self, request: Any, client_address: Any) -> None:
        """Start a thread for the request; close it if there are too many."""
        is_known = self._is_known(client_address[0], request.getsockname()[0])
        wait = _WAIT_SECONDS if is_known else 0.0
        # While a name is not looked up, other clients may be hosts of the ClusterSpec, too.
        limit = MAX_CONNECTIONS if is_known or self._has_unknown_name() else MAX_OTHER_CONNECTIONS
        with self._changed:
            until = time.monotonic() + wait
            while sum(value is is_known for value, _ in self._connections.values()) >= limit:
                self.service_actions()
                if time.monotonic() >= until:
                    super().shutdown_request(request)
                    return
                self._changed.wait(_CHECK_SECONDS)
            self._connections[request] = is_known, time.monotonic() + CONNECTION_SECONDS
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._changed:
            self._connections.pop(request, None)
            self._changed.notify_all()
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Interrupt slow connections; `serve_forever` calls this twice a second."""
        now = time.monotonic()
        with self._changed:
            late = [request for request, (_, deadline) in self._connections.items() if now > deadline]
            for request in late:
                with suppress(OSError):
                    request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002
        """Print no traceback to the program's stderr."""
        log.debug("rendezvous: request of %s failed", client_address[0], exc_info=True)

    # Hosts.

    def _is_known(self, client: str, own: str) -> bool:
        return (
            not self._hosts
            or client in (own, _LOOPBACK)
            or any(client in addresses for addresses in self._addresses.values())
        )

    def _has_unknown_name(self) -> bool:
        return not all(self._addresses.values())

    def look_up(self) -> None:
        """Look up the hosts at the start, and for unknown clients; runs in a thread.

        The names of a virtual network may appear late.
        """
        while not self._is_closed:
            for host in self._addresses:
                addresses = _addresses(host)
                with self._changed:
                    # A name server may be away for a moment.
                    self._addresses[host] = addresses or self._addresses[host]
                    self._changed.notify_all()
            with self._changed:
                self._looked_up, self._is_wanted = time.monotonic(), False
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._is_closed, _RETRY_INTERVAL)
                self._changed.wait_for(lambda: self._is_closed or self._is_wanted)

    def stop_look_ups(self) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def admits(self, client: str, own: str) -> bool:
        """Return whether `client` may use the values; `own`: this server's address."""
        until = time.monotonic() + _LOOKUP_SECONDS
        with self._changed:
            while not self._is_known(client, own) and time.monotonic() < until and self._is_look_up_due():
                self._is_wanted = True
                self._changed.notify_all()
                self._changed.wait(_CHECK_SECONDS)
        if self._is_known(client, own):
            return True
        if client not in self._refused and len(self._refused) < _LOGGED_ADDRESSES:
            self._refused.add(client)
            log.warning("rendezvous: %s refused: not a host of the ClusterSpec (%s)", client, ", ".join(self._hosts))
        return False

    def _is_look_up_due(self) -> bool:
        return self._has_unknown_name() or time.monotonic() > self._looked_up + _LOOKUP_INTERVAL

    # Values.

    def reserve(self, key: str, size: int) -> bool:
        """Reserve memory before a value is received; return whether there is enough."""
        with self._changed:
            if self._used + _cost(key, size) > MAX_TOTAL_BYTES:
                return False
            self._used += _cost(key, size)
            return True

    def store(self, key: str, size: int, value: bytes) -> bool:
        """Store a value; return False if it is shorter than the reserved `size`."""
        with self._changed:
            if len(value) < size:
                self._used -= _cost(key, size)
                return False
            if key in self.values:
                self._used -= _cost(key, len(self.values[key]))
            self.values[key] = value
            return True


def _cost(key: str, size: int) -> int:
    return len(key) + size + _OVERHEAD


def _addresses(host: str, flags: int = 0) -> set[str]:
    try:
        return {str(entry[4][0]) for entry in socket.getaddrinfo(host, None, socket.AF_INET, flags=flags)}
    except (OSError, UnicodeError):  # not found; not a name
        return set()


class _LimitedReader:
    """Reader that limits the head of a request; http.server would accept 6 MB."""

    def __init__(self, file: BinaryIO) -> None:
        self._left = MAX_HEAD_BYTES
        self.read, self.close, self._readline = file.read, file.close, file.readline

    def readline(self, size: int) -> bytes:
        line = self._readline(min(size, self._left))
        self._left -= len(line)
        if not self._left:
            raise ConnectionError(f"the head of the request exceeds {MAX_HEAD_BYTES} bytes")
        return line


class _Handler(BaseHTTPRequestHandler):
    """Handler of a connection, which has one request because HTTP/1.0 is the default."""

    server: _Server

    def setup(self) -> None:
        super().setup()
        self.connection.settimeout(CONNECTION_SECONDS)
        self.rfile: Any = _LimitedReader(self.rfile)

    def parse_request(self) -> bool:
        """Refuse clients outside of the ClusterSpec."""
        if not super().parse_request():
            return False
        if self.server.admits(self.client_address[0], self.connection.getsockname()[0]):
            return True
        self._refuse(403)
        return False

    def do_PUT(self) -> None:
        """Store the body under the path."""
        lengths = self.headers.get_all("Content-Length", ["0"])
        if len(lengths) > 1 or not re.fullmatch("[0-9]+", lengths[0]) or "Transfer-Encoding" in self.headers:
            self._refuse(400)
        elif len(lengths[0]) > len(str(MAX_VALUE_BYTES)) or int(lengths[0]) > MAX_VALUE_BYTES:
            self._refuse(413)
        elif not self.server.reserve(self.path, int(lengths[0])):
            log.warning("rendezvous: value refused: more than %s bytes in total", MAX_TOTAL_BYTES)
            self._refuse(507)
        else:
            self._receive(int(lengths[0]))

    def _receive(self, size: int) -> None:
        body = b""
        try:
            body = self.rfile.read(size)
        finally:
            is_complete = self.server.store(self.path, size, body)
        self._answer(200 if is_complete else 400)

    def do_GET(self) -> None:
        """Return the value or 404."""
        value = self.server.values.get(self.path)
        self._answer(404 if value is None else 200, value or b"")

    def do_DELETE(self) -> None:
        """Accept the unregistration of a process."""
        self._answer(200)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - name of the base class
        """Log nothing: processes poll until all have registered."""

    def _refuse(self, code: int) -> None:
        """Answer, and discard the body, because a reset could destroy the answer."""
        self._answer(code)
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_WR)
            self.connection.settimeout(_WAIT_SECONDS)
            for _ in range(MAX_VALUE_BYTES >> 16):
                if not self.connection.recv(1 << 16):
                    break

    def _answer(self, code: int, body: bytes = b"") -> None:
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
