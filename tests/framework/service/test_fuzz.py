"""A scheduler with random requests, and with random answers of master and agents.

The whole process, over real HTTP: no traceback, no unexpected 5xx, no hang, and it serves the next request.
"""

from __future__ import annotations

import http.client
import json
import logging
import re
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from hypothesis import strategies as st

from builders import a_spec
from kit.fuzzing import BYTES, JSON, as_json, changed, damaged, fuzz
from kit.mesos_events import EVENTS
from kit.scheduler_process import RunningScheduler
from kit.strange_mesos import CONTENT, Reply, StrangeMesos, answers, streams
from kit.waiting import wait_until
from mesos_client import transport
from tf_executor.contract.states import TaskState
from tf_scheduler.mesos import agent_files
from tf_scheduler.mesos.client import MesosDriver

SPEC = a_spec(workers=1, ps=0, chief=0)
WAITING = 10.0
LOG = "/v1/tasks/worker-0/logs?file=stdout"


@pytest.fixture
def mesos() -> Iterator[StrangeMesos]:
    with StrangeMesos() as mesos:
        yield mesos


class Service:
    """A scheduler with a running worker; `renew` replaces one that has ended."""

    def __init__(self, stack: ExitStack, mesos: StrangeMesos, folder: Path) -> None:
        self._stack, self._mesos, self._folder, self._count = stack, mesos, folder, 0
        self.start()

    def start(self) -> None:
        self._count += 1
        state = self._folder / f"state-{self._count}.db"
        self.scheduler = RunningScheduler(SPEC, self._mesos.address, state)
        self._stack.enter_context(self.scheduler)
        # The tasks are left running: Mesos has no others to kill.
        self._stack.callback(self.scheduler.process.stop)
        statuses = lambda: [one.state for one in self.scheduler.state.stored.statuses.values()]  # noqa: E731
        wait_until(lambda: statuses() == [TaskState.RUNNING], "the worker does not start")
        self.port = self.scheduler.process.settings.port

    def renew(self) -> None:
        """Start another scheduler if this one has ended."""
        if self.scheduler.ended or self.scheduler.state.process.finished:
            assert not isinstance(self.scheduler.error, (TypeError, ValueError, KeyError, AttributeError))
            self.start()

    def get(self, path: str) -> tuple[int, bytes]:
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAITING)) as connection:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read()


@pytest.fixture
def service(mesos: StrangeMesos, tmp_path: Path) -> Iterator[Service]:
    with ExitStack() as stack:
        yield Service(stack, mesos, tmp_path)


@pytest.fixture
def no_traceback(caplog: pytest.LogCaptureFixture) -> Callable[[], None]:
    """A check that nothing was logged with a traceback since the last check."""

    def check() -> None:
        records, caplog.handler.records = caplog.records[:], []
        caplog.handler.stream.truncate(0)
        assert [] == [caplog.handler.format(record) for record in records if record.exc_info]

    caplog.set_level(logging.WARNING)
    return check


# --- requests

NAMES = {"plan": "deploy", "pod": "worker-0", "task": "worker-0", "name": "worker-0", "key": "suppressed", "ip": "a"}
QUERIES = [
    "plan",
    "phase",
    "step",
    "verbose",
    "points",
    "after",
    "journal",
    "limit",
    "task",
    "follow",
    "file",
    "folder",
    "binary",
    "launch",
    "tasks",
    "offset",
]
TYPES = ["application/json", "multipart/form-data; boundary=x", "multipart/form-data", "text/plain", "\xff"]
FORM = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\ncontent\r\n--x--\r\n'
#: Bodies of the commands, of the preview of an update, and of executors.
BODIES: list[Any] = [
    ["deploy"],
    {"KEY": "value"},
    {"worker": {"count": 2}, "service": {"name": "digits"}},
    {"task_id": "worker-0__1", "token": "t" * 40, "nonce": "n" * 40},
]
#: Answers that say that a task's file, or the master, cannot be reached.
ALLOWED = {
    "/logs": (502, 503),
    "/files": (502, 503),
    "/exec": (501, 502, 503),
    "/tensorboard": (502, 503),
    "/preview": (503,),
}


@st.composite
def requests(draw: st.DrawFn, endpoints: list[tuple[str, str]]) -> tuple[bytes, float]:
    """A request to an endpoint, or nearly, and how long to wait for its answer."""
    method, template = draw(st.sampled_from(endpoints))
    values = st.text(max_size=12) | st.sampled_from(["..", "%", "a" * 3000, "\0", "\ud800"])
    pick = lambda match: quote(draw(st.just(NAMES.get(match.group(1), "x")) | values), "", errors="replace")  # noqa: E731
    path = re.sub(r"{(\w+)}", pick, template)
    query = draw(st.dictionaries(st.sampled_from(QUERIES), st.integers().map(str) | values, max_size=3))
    if "/stop" in path or query.get("follow"):
        query.pop("follow", None)
    body = draw(
        st.sampled_from([b"", FORM]) | JSON.map(as_json) | st.sampled_from(BODIES).flatmap(changed).map(as_json)
    )
    body = draw(st.just(body) | BYTES)
    method = draw(st.just(method) | st.sampled_from(["GET", "POST", "PUT", "DELETE", "HEAD", "PATCH", "GE T"]))
    head = [
        f"{method} {path}?{urlencode(query, errors='replace')} HTTP/1.1",
        f"Host: {draw(st.just('127.0.0.1') | st.sampled_from(['evil.example', '[', '']))}",
        f"Content-Type: {draw(st.sampled_from(TYPES))}",
        f"Accept: {draw(st.sampled_from(['*/*', 'application/json', 'text/html', ';;q=x']))}",
        f"Content-Length: {len(body)}",
        "Connection: close",
    ]
    request = "\r\n".join([*head, "", ""]).encode("latin-1", "replace") + body
    # A damaged request may lack its end, for which the server waits.
    return (draw(damaged(request)), 0.1) if draw(st.integers(0, 5)) == 0 else (request, WAITING)


def status_of(port: int, request: bytes, patience: float) -> int | None:
    """The status of the answer; None if there is none."""
    with socket.create_connection(("127.0.0.1", port), WAITING) as connection:
        answer = b""
        with suppress(ConnectionError, TimeoutError):
            connection.sendall(request)
            connection.settimeout(patience)
            while b"\r\n\r\n" not in answer and (part := connection.recv(4096)):
                answer += part
    match = re.match(rb"HTTP/1\.1 (\d{3}) ", answer)
    assert match or not answer, answer
    return int(match[1]) if match else None


def test_fuzz_api_requests(service: Service, no_traceback: Callable[[], None]) -> None:
    """Every endpoint and method of the OpenAPI document, and the route of executors."""
    document = json.loads(service.get("/v1/openapi.json")[1])
    endpoints = [(method.upper(), path) for path, methods in document["paths"].items() for method in methods]
    endpoints += [("POST", "/v1/secrets"), ("GET", "/"), ("GET", "/v1/tf/tensorboard/x"), ("GET", "/{name}")]

    def check(drawn: tuple[bytes, float]) -> None:
        service.renew()
        request, patience = drawn
        status = status_of(service.port, request, patience)
        path = request.partition(b"?")[0].decode(errors="replace")
        allowed = next((codes for name, codes in ALLOWED.items() if name in path), ())
        assert status is None or status < 500 or status in allowed, status
        no_traceback()
        assert service.get("/v1/health")[0] < 500

    fuzz(check, requests(endpoints))


# --- agents


def test_fuzz_agent_answers(
    service: Service, mesos: StrangeMesos, no_traceback: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever master and agent answer about a file, the client gets an answer."""
    monkeypatch.setattr(agent_files, "_SOCKET_TIMEOUT", 0.3)
    monkeypatch.setattr(agent_files, "_RESPONSE_TIMEOUT", 0.5)
    monkeypatch.setattr(agent_files, "_ADDRESS_TTL", 0.0)
    assert CONTENT == json.loads(service.get(LOG)[1])["data"]
    folder = "/frameworks/framework-1/executors/worker-0/runs/latest"
    right = {
        "/slaves": mesos.get("/slaves", {}),
        "/files/browse": mesos.get("/files/browse", {"path": [folder]}),
        "/files/read": mesos.get("/files/read", {"offset": ["0"]}),
    }

    def check(drawn: tuple[str, Reply]) -> None:
        path, reply = drawn
        mesos.strange = {path: reply}
        status, body = service.get(LOG)
        assert status in (200, 400, 404, 502, 503), body
        no_traceback()
        mesos.strange = {}
        # On a busy machine a correct answer may be late, too.
        wait_until(lambda: 200 == service.get(LOG)[0], "the log cannot be read any more")

    fuzz(check, st.one_of([st.tuples(st.just(path), answers(body)) for path, body in right.items()]))


# --- master


def test_fuzz_master_events(service: Service, mesos: StrangeMesos, no_traceback: Callable[[], None]) -> None:
    """Events on the stream: the loop goes on, and handles the next offer."""

    def check(events: list[Any]) -> None:
        mesos.push(*events)
        assert service.get("/v1/plans/deploy")[0] in (200, 202, 417, 503)
        no_traceback()
        service.renew()

    # An event that is not an object ends the subscription: see test_fuzz_subscription.
    events = st.sampled_from(list(EVENTS.values())).flatmap(changed).filter(lambda event: isinstance(event, dict))
    fuzz(check, st.lists(events, min_size=1, max_size=3))


FRAMEWORKS = {"type": "GET_FRAMEWORKS", "get_frameworks": {"frameworks": []}}
AGENTS = {"type": "GET_AGENTS", "get_agents": {"agents": []}}


def test_fuzz_subscription(
    mesos: StrangeMesos, no_traceback: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever a master answers to a registration, the driver can be stopped."""
    monkeypatch.setattr(transport, "_MAX_SECONDS", 0.3)
    first = [EVENTS["SUBSCRIBED"], EVENTS["OFFERS"]]
    replies = st.tuples(st.just("SUBSCRIBE"), streams(*first) | answers(first[0]))
    replies |= st.tuples(st.just("GET_FRAMEWORKS"), answers(FRAMEWORKS))
    replies |= st.tuples(st.just("GET_AGENTS"), answers(AGENTS))

    def check(drawn: tuple[str, Reply]) -> None:
        kind, reply = drawn
        mesos.strange = {kind: reply}
        mesos.left.clear()
        thunks: list[Callable[[], Any]] = []
        driver = MesosDriver(SPEC, mesos.address, None, thunks.append)
        driver._driver._call_timeout = 0.3
        driver.start()
        try:
            if reply.ending != "hold":
                assert mesos.left.wait(WAITING)
                wait_until(lambda: thunks or driver._driver.last_failure, "the driver has not read the answer")
        finally:
            driver.stop()
        for thunk in thunks:
            thunk()
        no_traceback()

    fuzz(check, replies)
