"""Proxy in front of a master that refuses calls, loses answers, or disconnects."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from enum import Enum
from http.server import ThreadingHTTPServer
from typing import Any

from kit.http_server import LoopbackServer, QuietHandler

_HOP = frozenset({"connection", "keep-alive", "transfer-encoding", "content-length", "host"})


class Calls(Enum):
    """What becomes of calls; of SUBSCRIBE only if disconnected."""

    FORWARDED = "forwarded"
    REFUSED = "refused"
    UNANSWERED = "unanswered"
    DISCONNECTED = "disconnected"


class MasterProxy(LoopbackServer):
    """Forward HTTP requests at `address` ("127.0.0.1:PORT") to the master at `target`."""

    def __init__(self, target: str) -> None:
        self.target = target
        #: Number of calls that were not forwarded.
        self.lost = 0
        self._calls = Calls.FORWARDED
        self._changed = threading.Condition()
        self._writers: list[Callable[[bytes], None]] = []
        self._subscriptions: list[socket.socket] = []
        proxy = self

        class Handler(_Handler):
            owner = proxy

        super().__init__(ThreadingHTTPServer(("127.0.0.1", 0), Handler))

    def answer(self, calls: Calls) -> None:
        """Treat calls like this from now on."""
        with self._changed:
            self._calls, self.lost = calls, 0
            if calls is Calls.DISCONNECTED:
                for connection in self._subscriptions:
                    with suppress(OSError):
                        connection.shutdown(socket.SHUT_RDWR)
            self._changed.notify_all()

    def tell(self, event: Mapping[str, Any]) -> None:
        """Insert an event into every subscription."""
        content = json.dumps(event).encode()
        with self._changed:
            for write in self._writers:
                with suppress(OSError):  # of a scheduler that was killed
                    write(content)

    def fate(self, *, subscribes: bool) -> Calls:
        """Count and return the fate of a call; an unanswered one waits for the end."""
        with self._changed:
            found = self._calls
            if subscribes and found is not Calls.DISCONNECTED:
                return Calls.FORWARDED
            self.lost += found is not Calls.FORWARDED
            while found is Calls.UNANSWERED and self._calls is Calls.UNANSWERED:
                self._changed.wait()
            return found

    def stream(self, events: Iterator[bytes], write: Callable[[bytes], None], upstream: socket.socket) -> None:
        """Write the events of a subscription until the master or a fault ends it."""
        with self._changed:
            self._writers.append(write)
            self._subscriptions.append(upstream)
        try:
            for event in events:
                with self._changed:
                    write(event)
        finally:
            with self._changed:
                self._writers.remove(write)
                self._subscriptions.remove(upstream)

    def __exit__(self, *details: object) -> None:
        self.answer(Calls.FORWARDED)
        super().__exit__(*details)


class _Handler(QuietHandler):
    owner: MasterProxy
    protocol_version = "HTTP/1.1"

    def respond(self) -> None:
        body = self.body()
        fate = self.owner.fate(subscribes=b'"SUBSCRIBE"' in body) if body else Calls.FORWARDED
        if fate is Calls.REFUSED:
            self.answer(401, b"chaos refuses this call")
        elif fate is Calls.FORWARDED:
            self._forward(body)
        else:
            self.close_connection = True

    def _forward(self, body: bytes) -> None:
        """Pass the request on; the connection ends with that to the master."""
        self.close_connection = True
        headers = {name: value for name, value in self.headers.items() if name.lower() not in _HOP}
        upstream = http.client.HTTPConnection(self.owner.target)
        with suppress(OSError, http.client.HTTPException, ValueError):
            try:
                upstream.request(self.command, self.path, body or None, headers)
                connection = upstream.sock
                response = upstream.getresponse()
                given = {name: value for name, value in response.getheaders() if name.lower() not in _HOP}
                if response.getheader("Content-Length") is not None or response.status != http.client.OK:
                    self.answer(response.status, response.read(), **given)
                    self.close_connection = False
                else:
                    self._subscription(response, given, connection)
            finally:
                upstream.close()

    def _subscription(
        self, response: http.client.HTTPResponse, headers: Mapping[str, str], upstream: socket.socket
    ) -> None:
        self.send_response(response.status)
        for name, value in {**headers, "Transfer-Encoding": "chunked"}.items():
            self.send_header(name, value)
        self.end_headers()
        self.owner.stream(_events(response), self._write, upstream)

    def _write(self, event: bytes) -> None:
        record = b"%d\n%b" % (len(event), event)
        self.wfile.write(b"%x\r\n%b\r\n" % (len(record), record))
        self.wfile.flush()


def _events(response: http.client.HTTPResponse) -> Iterator[bytes]:
    """Yield records of RecordIO (Mesos documentation, scheduler HTTP API)."""
    while line := response.readline():
        yield response.read(int(line))
