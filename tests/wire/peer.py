"""Scripted HTTP peer that behaves as no real Mesos master or agent can.

Each SUBSCRIBE is answered by the next script (the last one repeats), each other call by `on_call`. Everything received
is kept.
"""

from __future__ import annotations

import json
import socket
import ssl
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

#: Maximum seconds to wait for an event; only a failing test waits this long.
PATIENCE = 30.0


@dataclass(frozen=True)
class Received:
    """A request."""

    method: str
    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    #: On the peer's clock.
    at: float

    @property
    def type(self) -> str:
        return str(self.body.get("type", ""))


class Exchange:
    """A request and its answer."""

    def __init__(self, peer: Peer, connection: socket.socket, received: Received) -> None:
        self.peer, self.connection, self.received = peer, connection, received

    def answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}", *(f"{k}: {v}" for k, v in headers.items())]
        self.connection.sendall("\r\n".join([*lines, "", ""]).encode() + body)

    def begin(self, stream_id: str = "stream-1") -> None:
        head = f"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nMesos-Stream-Id: {stream_id}\r\n\r\n"
        self.connection.sendall(head.encode())

    def send(self, *events: dict[str, Any]) -> None:
        for event in events:
            data = json.dumps(event).encode()
            record = b"%d\n%s" % (len(data), data)
            self.connection.sendall(b"%x\r\n%s\r\n" % (len(record), record))

    def hold(self) -> None:
        """Keep the connection open until the client leaves or the peer closes."""
        try:
            while self.connection.recv(4096):
                pass
        except OSError:
            pass


Script = Callable[[Exchange], None]


def stream(*events: dict[str, Any]) -> Script:
    """Send `events`, then those of `Peer.push`."""

    def script(exchange: Exchange) -> None:
        exchange.begin()
        exchange.send(*events)
        exchange.peer.opened(exchange)
        exchange.hold()
        exchange.peer.left(exchange)

    return script


def cut_after(*events: dict[str, Any]) -> Script:
    """Send `events` and close."""

    def script(exchange: Exchange) -> None:
        exchange.begin()
        exchange.send(*events)
        exchange.connection.shutdown(socket.SHUT_RDWR)

    return script


def status(code: int, body: bytes = b"", **headers: str) -> Script:
    return lambda exchange: exchange.answer(code, body, **headers)


ACCEPTED = status(202)
NOT_FOUND = status(404)


def hang(exchange: Exchange) -> None:
    exchange.hold()


def vanish(exchange: Exchange) -> None:
    """Close the connection without an answer."""
    _shutdown(exchange.connection)


class Peer:
    """Context manager of an HTTP peer. `host` may be the path of a domain socket."""

    def __init__(
        self,
        *scripts: Script,
        on_call: Script = ACCEPTED,
        version: Script = NOT_FOUND,
        host: str = "127.0.0.1",
        tls: ssl.SSLContext | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._scripts, self._on_call, self._version = list(scripts), on_call, version
        self._changed = threading.Condition()
        self._received: list[Received] = []
        self._streams: list[Exchange] = []
        self._left: list[Exchange] = []
        self._calls: list[Exchange] = []
        self._connections: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._closed = False
        #: Set when the context ends; scripts that send without end watch it.
        self.is_closed = threading.Event()
        self._tls, self._clock = tls, clock
        self._listener, self.address = _listen(host)

    def __enter__(self) -> Peer:
        self._spawn(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        self._closed = True
        self.is_closed.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        for connection in list(self._connections):
            _shutdown(connection)
        for thread in list(self._threads):
            thread.join(PATIENCE)
        self._listener.close()
        for connection in self._connections:
            connection.close()

    # Interface of tests

    def all(self, kind: str) -> list[Received]:
        with self._changed:
            return [one for one in self._received if one.type == kind]

    def wait(self, kind: str, count: int = 1) -> Received:
        """Wait for the `count`-th call of that type."""
        self._until(lambda: len([one for one in self._received if one.type == kind]) >= count, f"{count} {kind}")
        return self.all(kind)[count - 1]

    def wait_stream(self, count: int = 1) -> Exchange:
        """Wait until the `count`-th event stream is open and its first events are sent."""
        self._until(lambda: len(self._streams) >= count, f"{count} streams")
        return self._streams[count - 1]

    def push(self, *events: dict[str, Any]) -> None:
        """Send on the latest stream; wait until there is one."""
        self.wait_stream()
        self._streams[-1].send(*events)

    def release_calls(self) -> None:
        """Close every connection that carried a call."""
        for exchange in list(self._calls):
            _shutdown(exchange.connection)

    def drop(self) -> None:
        """Close the latest stream; wait until there is one."""
        self.wait_stream()
        _shutdown(self._streams[-1].connection)

    def wait_left(self) -> None:
        """Wait until the client has closed a stream."""
        self._until(self.has_left, "the client to leave")

    def has_left(self) -> bool:
        return bool(self._left)

    # Implementation

    def left(self, exchange: Exchange) -> None:
        with self._changed:
            self._left.append(exchange)
            self._changed.notify_all()

    def opened(self, exchange: Exchange) -> None:
        with self._changed:
            self._streams.append(exchange)
            self._changed.notify_all()

    def _until(self, reached: Callable[[], bool], what: str) -> None:
        with self._changed:
            if not self._changed.wait_for(reached, PATIENCE):
                got = [one.type for one in self._received][:50]
                raise AssertionError(f"the peer waited in vain for {what}; it received {got}")

    def _spawn(self, target: Callable[..., None], *arguments: Any) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self._closed:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._connections.append(connection)
            self._spawn(self._serve, connection)

    def _serve(self, connection: socket.socket) -> None:
        if self._tls is not None:
            try:
                connection = self._tls.wrap_socket(connection, server_side=True)
            except OSError:
                return  # one side rejected the certificate of the other
            self._connections.append(connection)
        with connection.makefile("rb") as reader:
            try:
                while (received := _read(reader, self._clock)) is not None:
                    self._handle(Exchange(self, connection, received))
            except OSError:
                pass  # the client left
        _shutdown(connection)
        connection.close()

    def _handle(self, exchange: Exchange) -> None:
        received = exchange.received
        with self._changed:
            self._received.append(received)
            seen = len([one for one in self._received if one.type == "SUBSCRIBE"])
            self._changed.notify_all()
        if received.method == "GET":
            self._version(exchange)
        elif received.type == "SUBSCRIBE":
            self._scripts[min(seen, len(self._scripts)) - 1](exchange)
        else:
            self._calls.append(exchange)
            self._on_call(exchange)


def _listen(host: str) -> tuple[socket.socket, str]:
    if "/" in host:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(host)
        listener.listen()
        return listener, host
    listener = socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    port = listener.getsockname()[1]
    return listener, f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _shutdown(connection: socket.socket) -> None:
    with suppress(OSError):  # already closed
        # Not the method of SSLSocket, which would disturb the thread that reads.
        socket.socket.shutdown(connection, socket.SHUT_RDWR)


def _read(reader: Any, clock: Callable[[], float]) -> Received | None:
    line = reader.readline().decode()
    if not line:
        return None
    method, path, _ = line.split(" ", 2)
    headers: dict[str, str] = {}
    while (header := reader.readline().decode().strip()) != "":
        name, _, value = header.partition(":")
        headers[name.lower()] = value.strip()
    body = reader.read(int(headers.get("content-length", 0)))
    return Received(method, path, headers, json.loads(body) if body else {}, clock())


# Events, as a real master and agent send them.

FRAMEWORK_ID = {"value": "framework-1"}
EXECUTOR_ID = {"value": "executor-1"}
AGENT_ID = {"value": "agent-1"}
TASK_ID = {"value": "task-1"}


def subscribed(heartbeat: float = 15.0) -> dict[str, Any]:
    """To a scheduler."""
    return {"type": "SUBSCRIBED", "subscribed": {"framework_id": FRAMEWORK_ID, "heartbeat_interval_seconds": heartbeat}}


def executor_subscribed() -> dict[str, Any]:
    """To an executor."""
    info = {
        "executor_info": {"executor_id": EXECUTOR_ID},
        "framework_info": {"id": FRAMEWORK_ID, "name": "f", "user": "u"},
        "agent_info": {"id": AGENT_ID},
    }
    return {"type": "SUBSCRIBED", "subscribed": info}


def update(state: str = "TASK_RUNNING") -> dict[str, Any]:
    status = {"task_id": TASK_ID, "agent_id": AGENT_ID, "state": state, "uuid": "AAAAAAAAAAAAAAAAAAAAAA=="}
    return {"type": "UPDATE", "update": {"status": status}}


def message(data: str = "aGk=") -> dict[str, Any]:
    body = {"executor_id": EXECUTOR_ID, "agent_id": AGENT_ID, "data": data}
    return {"type": "MESSAGE", "message": body}


def error(text: str = "Framework has been removed") -> dict[str, Any]:
    return {"type": "ERROR", "error": {"message": text}}


def launch() -> dict[str, Any]:
    return {"type": "LAUNCH", "launch": {"task": {"task_id": TASK_ID, "name": "t", "agent_id": AGENT_ID}}}
