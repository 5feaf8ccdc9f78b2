"""Mesos master and agent in one HTTP server, with any answer that a test wants.

Correct unless `strange` says otherwise: a scheduler registers, gets an offer, launches its tasks and reads their files.
"""

from __future__ import annotations

import base64
import json
import threading
import uuid
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

from hypothesis import strategies as st

from .fuzzing import BYTES, as_json, changed, damaged
from .http_server import HttpServer, QuietHandler
from .waiting import wait_until

AGENT, CONTENT = "agent-1-id", "what the program said"
FRAMEWORK = {"value": "framework-1"}


class Reply(NamedTuple):
    """Bytes of an answer with its head; `ending` is what the server does afterwards."""

    data: bytes
    #: close the connection, hold it, or repeat the last bytes without end.
    ending: str = "close"


def good(body: object) -> Reply:
    """A correct answer in JSON."""
    content = as_json(body)
    return Reply(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(content) + content)


def record(event: object) -> bytes:
    """An event as one chunk with one record (RecordIO)."""
    content = as_json(event)
    framed = b"%d\n%s" % (len(content), content)
    return b"%x\r\n%s\r\n" % (len(framed), framed)


STREAM = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nMesos-Stream-Id: 1\r\n\r\n"


def streams(*events: object) -> st.SearchStrategy[Reply]:
    """Event streams with changed events or damaged frames."""
    right = STREAM + b"".join(map(record, events))
    other = st.tuples(*(changed(event) for event in events)).map(lambda some: STREAM + b"".join(map(record, some)))
    return st.builds(Reply, other | damaged(right) | BYTES.map(lambda some: STREAM + some) | BYTES, _ENDINGS)


def answers(body: object) -> st.SearchStrategy[Reply]:
    """Answers in JSON with other entries, heads, lengths or endings."""
    contents = changed(body).map(as_json) | damaged(as_json(body)) | BYTES
    whole = st.builds(_with_head, contents, _STATUSES, _LENGTHS)
    return st.builds(Reply, whole | damaged(good(body).data) | BYTES, _ENDINGS)


_ENDINGS = st.sampled_from(["close"] * 8 + ["hold", "repeat"])
_ODD = [b"204 No", b"302 Found\r\nLocation: //[", b"404 No", b"500 \xff", b"999"]
_STATUSES = st.sampled_from([b"200 OK"] * 8 + _ODD)
_CHUNKED = b"Transfer-Encoding: chunked"
_LENGTHS = st.sampled_from([b"Content-Length: %d", b"", b"Content-Length: 9%d", b"Content-Length: -%d", _CHUNKED])


def _with_head(content: bytes, status: bytes, length: bytes) -> bytes:
    if length == _CHUNKED:
        content = b"%x\r\n%s\r\n0\r\n\r\n" % (len(content), content)
    elif length:
        length %= len(content)
    return b"HTTP/1.1 %s\r\n%s\r\n\r\n%s" % (status, length, content)


def offer(host: str, port: int, number: int = 0) -> dict[str, Any]:
    """An offer that suffices for a few small tasks."""
    amounts = {"cpus": 8.0, "mem": 16_384.0, "disk": 100_000.0}
    resources: list[dict[str, Any]] = [
        {"name": name, "type": "SCALAR", "scalar": {"value": value}} for name, value in amounts.items()
    ]
    resources.append({"name": "ports", "type": "RANGES", "ranges": {"range": [{"begin": 31000, "end": 31099}]}})
    role = {"role": "digits-role"}
    return {
        "id": {"value": f"offer-{number}"},
        "agent_id": {"value": AGENT},
        "framework_id": FRAMEWORK,
        "hostname": host,
        "url": {"scheme": "http", "address": {"hostname": host, "ip": host, "port": port}, "path": "/slave(1)"},
        "resources": [{**one, "role": "*", "allocation_info": role} for one in resources],
        "allocation_info": role,
    }


class StrangeMesos:
    """Context manager; `strange` maps paths of GET, or types of calls, to answers."""

    def __init__(self) -> None:
        self.strange: dict[str, Reply] = {}
        #: Answers to the next subscriptions; then an executor is asked to end.
        self.script: list[Reply] | None = None
        #: What the latest client of a strange answer did last: it closed the connection.
        self.left = threading.Event()
        self.closing = threading.Event()
        self.launched: list[dict[str, Any]] = []
        self._streams: list[_Handler] = []
        self._offers = 0
        self._server = HttpServer(lambda *arguments: _Handler(self, *arguments))
        self.address, self.port = self._server.address, self._server.port

    def __enter__(self) -> StrangeMesos:
        return self

    def __exit__(self, *_: object) -> None:
        self.closing.set()
        self._server.close()

    def push(self, *events: object) -> None:
        """Send events on the latest stream."""
        for event in events:
            wait_until(self._streams.__len__, "the scheduler does not subscribe")
            with suppress(OSError, ValueError, IndexError):  # the client has just closed it
                self._streams[-1].send(record(event))

    def get(self, path: str, query: Mapping[str, list[str]]) -> object:
        """The correct answer of master or agent."""
        if path == "/slaves":
            return {"slaves": [{"id": AGENT, "pid": f"slave(1)@{self.address}"}]}
        if path == "/files/browse":
            return [{"path": f"{query['path'][0]}/stdout", "mode": "-rw-r--r--"}]
        if path == "/files/read":
            offset = int(query["offset"][0])
            return {"offset": len(CONTENT), "data": ""} if offset < 0 else {"offset": offset, "data": CONTENT[offset:]}
        return {}

    def call(self, kind: str, body: Mapping[str, Any]) -> object:
        """The correct answer of the master's operator API; ACCEPT starts tasks."""
        for operation in body.get("accept", {}).get("operations", ()):
            for task in operation.get("launch", {}).get("task_infos", ()):
                self.launched.append(task)
                self.push({"type": "UPDATE", "update": {"status": running(task)}})
        return {"type": kind, kind.lower(): {}}

    def opened(self, stream: _Handler) -> None:
        """Register and offer."""
        self._offers += 1
        for event in (
            {"type": "SUBSCRIBED", "subscribed": {"framework_id": FRAMEWORK}},
            {"type": "OFFERS", "offers": {"offers": [offer("127.0.0.1", self.port, self._offers)]}},
        ):
            stream.send(record(event))
        self._streams.append(stream)

    def ended(self, stream: _Handler) -> None:
        """Forget a stream that its client has closed."""
        self._streams.remove(stream)


def running(task: Mapping[str, Any]) -> dict[str, Any]:
    """The status of a task that has started."""
    return {
        "task_id": task["task_id"],
        "agent_id": task["agent_id"],
        "executor_id": task["executor"]["executor_id"],
        "state": "TASK_RUNNING",
        "source": "SOURCE_EXECUTOR",
        "uuid": base64.b64encode(uuid.uuid4().bytes).decode(),
        "container_status": {"network_infos": [{"ip_addresses": [{"ip_address": "127.0.0.1"}]}]},
    }


class _Handler(QuietHandler):
    def __init__(self, mesos: StrangeMesos, *arguments: Any) -> None:
        self._mesos = mesos
        super().__init__(*arguments)

    def respond(self) -> None:
        parts, mesos = urlsplit(self.path), self._mesos
        body = json.loads(self.body() or b"{}")
        kind = body.get("type", parts.path)
        # The client may leave at any time.
        with suppress(OSError):
            if kind in mesos.strange:
                self._strange(mesos.strange[kind])
            elif kind == "SUBSCRIBE" and mesos.script is not None:
                self._strange(mesos.script.pop(0) if mesos.script else Reply(STREAM + record({"type": "SHUTDOWN"})))
            elif kind == "SUBSCRIBE":
                self.send(STREAM)
                mesos.opened(self)
                try:
                    self._await_end()
                finally:
                    mesos.ended(self)
            elif parts.path == "/api/v1/scheduler":
                mesos.call(kind, body)
                self.answer(202, b"")
            else:
                result = mesos.call(kind, body) if body else mesos.get(parts.path, parse_qs(parts.query))
                self.answer(200, as_json(result))

    def send(self, data: bytes) -> None:
        self.wfile.write(data)
        self.wfile.flush()

    def _strange(self, reply: Reply) -> None:
        self.close_connection = True
        try:
            self.send(reply.data)
            while reply.ending == "repeat" and not self._mesos.closing.is_set():
                self.send(reply.data[-64:] * 100 or b" ")
                self._mesos.closing.wait(0.01)
            if reply.ending == "hold":
                self._await_end()
        finally:
            self._mesos.left.set()

    def _await_end(self) -> None:
        """Wait until the client closes the connection, or the server."""
        self.connection.settimeout(0.1)
        while not self._mesos.closing.is_set():
            with suppress(TimeoutError):
                if not self.connection.recv(4096):
                    return
