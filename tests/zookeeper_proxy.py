"""Proxy in front of a ZooKeeper server that loses selected requests or answers."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import suppress

MULTI = 14  # request type of a multi-operation (ZooDefs.OpCode)
_HEADER = struct.Struct(">ii")  # of a request: xid, type; of an answer: xid, more fields


class ZooKeeperProxy:
    """Forward connections from `address` ("127.0.0.1:PORT") to `target`."""

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._lock = threading.Lock()
        self._to_lose: list[tuple[str, bool]] = []
        self._cut = threading.Event()
        self._sockets: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def lose(self, *what: str, stay_away: bool = False) -> None:
        """Lose "request" or "answer" of the next multi-operations, with the connection.

        `stay_away`: refuse connections after the last, until heal().
        """
        with self._lock:
            self._to_lose = [(item, stay_away and index == len(what) - 1) for index, item in enumerate(what)]

    def cut(self) -> None:
        """Close every connection, and refuse new ones until heal()."""
        self._cut.set()
        self._close_all()

    def heal(self) -> None:
        """Forward all messages again."""
        self._cut.clear()

    def __enter__(self) -> ZooKeeperProxy:
        return self

    def __exit__(self, *_: object) -> None:
        self._cut.set()
        # A thread in accept() does not notice that its socket is closed.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._close_all()
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self._cut.is_set():
                client.close()
                continue
            try:
                server = socket.create_connection(self._target)
            except OSError:
                client.close()
                continue
            _Line(self, client, server).start(self._threads, self._sockets)

    def _close_all(self) -> None:
        for one in list(self._sockets):
            _close(one)

    def plan(self) -> str | None:
        """Return the loss planned for the received multi-operation."""
        with self._lock:
            if not self._to_lose:
                return None
            what, stay_away = self._to_lose.pop(0)
        if stay_away:
            self._cut.set()
        return what


class _Line:
    """A client's connection, and the proxy's connection to the server."""

    def __init__(self, proxy: ZooKeeperProxy, client: socket.socket, server: socket.socket) -> None:
        self._proxy, self._client, self._server = proxy, client, server
        self._swallow: int | None = None

    def start(self, threads: list[threading.Thread], sockets: list[socket.socket]) -> None:
        sockets += [self._client, self._server]
        for work in (self._requests, self._answers):
            thread = threading.Thread(target=work)
            threads.append(thread)
            thread.start()

    def _requests(self) -> None:
        for number, frame in enumerate(_frames(self._client)):
            xid, kind = _HEADER.unpack_from(frame, 4)
            what = self._proxy.plan() if number > 0 and kind == MULTI else None
            if what == "request":
                break
            if what == "answer":
                self._swallow = xid
            with suppress(OSError):
                self._server.sendall(frame)
        self._end()

    def _answers(self) -> None:
        for number, frame in enumerate(_frames(self._server)):
            if number > 0 and self._swallow is not None and _HEADER.unpack_from(frame, 4)[0] == self._swallow:
                break
            with suppress(OSError):
                self._client.sendall(frame)
        self._end()

    def _end(self) -> None:
        _close(self._client)
        _close(self._server)


def _frames(connection: socket.socket) -> Iterator[bytes]:
    """Yield requests or answers with length prefix until the connection closes."""
    with suppress(OSError), connection.makefile("rb") as stream:
        while len(length := stream.read(4)) == 4:
            yield length + stream.read(int.from_bytes(length, "big"))


def _close(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()
