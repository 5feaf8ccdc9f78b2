"""The API over real HTTP, on loopback."""

import http.client
import json
import resource
import socket
import time
from collections import Counter
from contextlib import ExitStack, suppress

import pytest

from kit.api import ServiceLoop, an_app, registered
from tf_scheduler.api import app as api_app
from tf_scheduler.api.http import server as http_server
from tf_scheduler.api.http.auth import Guard, Policy
from tf_scheduler.api.http.server import ApiError, ApiServer, listen_address
from tf_scheduler.store.journal import EventJournal


@pytest.fixture
def server():
    with ApiServer(an_app(), "127.0.0.1", 0) as api:
        yield api


def get(server, path):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.headers.get_content_type(), answer.read().decode()
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("path", "code", "kind", "text"),
    [
        ("/v1/plans", 200, "application/json", '[\n  "deploy",\n  "recovery",\n  "decommission"\n]'),
        ("/v1/plans/nothing", 404, "text/plain", "Plan nothing not found"),
        ("/v1/state/frameworkId", 200, "application/json", '[\n  "framework-1"\n]'),
    ],
)
def test_json_is_indented_and_errors_are_text(server, path: str, code: int, kind: str, text: str) -> None:
    """As in the SDK."""
    assert (code, kind, text) == get(server, path)


def test_health_204_has_no_body(server) -> None:
    assert (204, "") == get(server, "/v1/health")[::2]


def said(server, *sent):
    """All that comes until the server closes."""
    with socket.create_connection(("127.0.0.1", server.port), 20) as connection:
        with suppress(OSError):  # it may have closed already
            for part in sent:
                connection.sendall(part)
        received = b""
        with suppress(ConnectionResetError):
            while part := connection.recv(65536):
                received += part
    return received


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01",
        b"GET /v1/plans\r\n\r\n",
        b"G\0T / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"GET / HTTP/1.1\r\nA: " + b"a" * 200_000,
        b"GET /" + b"a" * 200_000,
        b"POST /v1/plans/deploy/stop HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
        b"POST /v1/plans/deploy/stop HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\na",
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffffffffff\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n",
    ],
    ids=lambda sent: sent[:60],
)
def test_malformed_http_closes_only_its_connection(server, sent: bytes) -> None:
    """TLS, control characters, heads without end, two lengths."""
    answer = said(server, sent)
    assert answer.partition(b"\r\n")[0].split(b" ")[1:2] in ([], [b"400"], [b"404"], [b"431"], [b"501"])
    assert not answer or (b"nosniff" in answer and b'{\n  "error": {' in answer and b"uvicorn" not in answer)
    assert 200 == get(server, "/v1/plans")[0]


@pytest.mark.parametrize(
    "head",
    ["GET /v1/plans?{} HTTP/1.1\r\nHost: a\r\n\r\n", "GET /v1/plans HTTP/1.1\r\nHost: a\r\nA: {}\r\n\r\n"],
    ids=["target", "field"],
)
def test_head_above_the_limit_is_refused_in_one_piece_too(server, head: str) -> None:
    """As a client sends it: in one call."""
    assert said(server, head.format("a" * 17_000).encode()).startswith(b"HTTP/1.1 431 ")
    assert said(server, head.format("a" * 15_000).encode()).split(b" ")[1] in (b"200", b"400")


@pytest.mark.parametrize(
    ("field", "code"), [(f"A: {'a' * 17_000}", b"431"), ("Transfer-Encoding: chunked\r\nContent-Length: 0", b"400")]
)
def test_refused_head_request_gets_no_body(server, field: str, code: bytes) -> None:
    """h11 refuses to send one, so the connection was closed without an answer."""
    answer = said(server, f"HEAD / HTTP/1.1\r\nHost: a\r\n{field}\r\n\r\n".encode())

    assert answer.startswith(b"HTTP/1.1 " + code)
    assert answer.endswith(b"\r\n\r\n")


CHUNKED, LENGTH = "Transfer-Encoding: chunked", "Content-Length: 35"
SECOND = "GET /v1/plans HTTP/1.1\r\nHost: a\r\n\r\n"


@pytest.mark.parametrize(
    "fields",
    [
        (LENGTH, CHUNKED),
        (CHUNKED, LENGTH),
        ("Content-Length: 0", CHUNKED),
        (LENGTH, "transfer-encoding: CHUNKED"),
        (LENGTH, "Transfer-Encoding:\tchunked"),
        (LENGTH, "Transfer-Encoding:chunked "),
        (LENGTH, "Transfer-Encoding:\r\n chunked"),
        (LENGTH, "Transfer-Encoding : chunked"),
        (LENGTH, "X: y\r\n Transfer-Encoding: chunked", CHUNKED),
        (LENGTH, "Transfer-Encoding: xchunked"),
        (LENGTH, "Transfer-Encoding: gzip, chunked"),
        (LENGTH, "Transfer-Encoding:"),
        (LENGTH, "Transfer-Encoding: \x0bchunked"),
        (CHUNKED, CHUNKED),
        (CHUNKED, "Transfer-Encoding: identity"),
        ("Transfer-Encoding: chunked, identity",),
        ("Content-Length: 0", LENGTH),
        (LENGTH, "Content-Length: 0"),
        ("Content-Length: 0, 35",),
        ("Content-Length: +0",),
        ("Content-Length: 0x0",),
        ("Content-Length : 0",),
    ],
    ids=" & ".join,
)
@pytest.mark.parametrize("version", ["1.1", "1.0"])
def test_ambiguous_length_is_refused(server, fields, version: str) -> None:
    """A proxy may see another request end than the scheduler (RFC 9112, 6.1 and 6.3)."""
    head = "\r\n".join((f"POST /v1/plans/deploy/continue HTTP/{version}", "Host: localhost", *fields))
    answer = said(server, f"{head}\r\n\r\n0\r\n\r\n{SECOND}".encode())

    assert 1 == answer.count(b"HTTP/1.1 ")
    assert answer.partition(b"\r\n")[0].split(b" ")[1] in (b"400", b"501")
    assert b"connection: close" in answer.lower()


@pytest.mark.parametrize(
    "fields", [("Content-Length: 5", "Content-Length: 5"), ("Content-Length: 5, 5",)], ids=" & ".join
)
def test_repeated_equal_length_is_accepted(server, fields) -> None:
    """As in a proxy that knows the rule (RFC 9110, 8.6)."""
    head = "\r\n".join(("POST /v1/plans/deploy/continue HTTP/1.1", "Host: localhost", *fields))
    last = SECOND.replace("Host: a", "Host: localhost\r\nConnection: close")
    answer = said(server, f"{head}\r\n\r\n{{   }}{last}".encode())
    assert [b"409", b"200"] == [part[:3] for part in answer.split(b"HTTP/1.1 ")[1:]]


@pytest.mark.parametrize("path", ["/v1/plans/deploy/start", "/v1/plans/deploy/stop", "/v1/nothing"])
def test_missing_body_times_out(server, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether the endpoint reads a body or not."""
    assert 30.0 == http_server.BODY_TIMEOUT  # what is promised
    monkeypatch.setattr(api_app, "BODY_TIMEOUT", 0.1)
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 100\r\n\r\n{{"
    assert said(server, head.encode()).startswith((b"HTTP/1.1 400", b"HTTP/1.1 404", b"HTTP/1.1 409"))


def test_port_in_use_is_reported() -> None:
    """And no socket stays open."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(ApiError, match=f"cannot listen at 127.0.0.1:{port}"):
            ApiServer(an_app(), "127.0.0.1", port)


def test_port_is_free_after_stop() -> None:
    """The next scheduler on this agent may get the same port."""
    with ApiServer(an_app(), "127.0.0.1", 0) as api:
        port = api.port
        assert 200 == get(api, "/v1/plans")[0]
    socket.create_server(("127.0.0.1", port)).close()


@pytest.mark.parametrize(
    ("host", "address"),
    [("127.0.0.1", "127.0.0.1"), ("localhost", "127.0.0.1"), ("10.0.0.5", "0.0.0.0"), ("agent-1", "0.0.0.0")],
)
def test_listen_address_of_network_and_loopback_agents(host: str, address: str) -> None:
    assert address == listen_address(host)


def test_answers_do_not_wait_for_acknowledgements(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer is two packets: a connection's second request took 40 ms."""
    made, delays = http_server.LimitedConnection.connection_made, []

    def record(self, transport) -> None:
        delays.append(transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 0)
        made(self, transport)

    monkeypatch.setattr(http_server.LimitedConnection, "connection_made", record)
    with ApiServer(an_app(), "127.0.0.1", 0) as api:
        assert 200 == get(api, "/v1/plans")[0]
    assert [False] == delays


def opened(stack, server):
    """A connection without a request."""
    connection = stack.enter_context(socket.create_connection(("127.0.0.1", server.port), 20))
    connection.settimeout(20)
    return connection


def asked(stack, server, path):
    """Status, headers and body; the connection stays open."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    stack.callback(connection.close)
    connection.request("GET", path, headers={"Accept": "application/json"})
    answer = connection.getresponse()
    return answer.status, answer.headers, answer.read()


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch):
    """A server for four connections; its path /slow starts an answer and stalls."""
    monkeypatch.setattr(http_server, "connection_limit", lambda: 4)

    async def slow(_scope, receive, send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"begun", "more_body": True})
        while (await receive())["type"] != "http.disconnect":
            pass

    answers = an_app()

    async def choose(scope, receive, send) -> None:
        await (Guard(slow, Policy(), lambda *_: False) if scope["path"] == "/slow" else answers)(scope, receive, send)

    with ApiServer(choose, "127.0.0.1", 0) as api:
        yield api


def test_busy_connections_at_the_cap_leave_health_only(small) -> None:
    """Marathon restarts a scheduler whose health check is refused."""
    with ExitStack() as stack:
        busy = [opened(stack, small) for _ in range(4)]
        for connection in busy:
            connection.sendall(b"GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert connection.recv(65536).startswith(b"HTTP/1.1 200")
        for _ in range(3):
            code, headers, content = asked(stack, small, "/v1/plans")
            assert (503, "close") == (code, headers["connection"])
            assert {"status": 503, "code": "unavailable"}.items() <= json.loads(content)["error"].items()
            assert 204 == asked(stack, small, "/v1/health")[0]
        busy[0].close()
        for _ in range(100):
            if (code := asked(stack, small, "/v1/plans")[0]) == 200:
                break
            time.sleep(0.05)
        assert 200 == code


def test_idle_connections_at_the_cap_are_closed_oldest_first(small) -> None:
    """Without a request, and after an answer."""
    with ExitStack() as stack:
        silent = opened(stack, small)
        for _ in range(40):
            opened(stack, small)
        assert [204, 200] == [asked(stack, small, path)[0] for path in ("/v1/health", "/v1/plans")]
        assert (503, "close", "5") == refusal(silent)


def refusal(connection):
    """Status and headers of an answer without a request, which ends the connection."""
    answer = http.client.HTTPResponse(connection)
    answer.begin()
    assert {"status": answer.status, "code": "unavailable"}.items() <= json.loads(answer.read())["error"].items()
    assert b"" == connection.recv(1)
    return answer.status, answer.headers["connection"], answer.headers["retry-after"]


REQUEST = b"GET /v1/plans HTTP/1.1\r\nHost: localhost\r\n"


@pytest.mark.parametrize("is_sent_at_once", [True, False], ids=["sent at once", "all connect first"])
@pytest.mark.parametrize("limit", [100, 1000])
def test_each_connection_of_a_burst_is_answered(
    limit: int, is_sent_at_once: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With 200 or 503. Behind Admin Router, all users share an address."""
    monkeypatch.setattr(http_server, "connection_limit", lambda: limit)
    journal = EventJournal(clock=lambda: 1.0)
    loop = ServiceLoop(registered(), journal=journal)
    with ApiServer(loop.app, "127.0.0.1", 0) as api, ExitStack() as stack:
        for _ in range(50):
            stream = opened(stack, api)
            stream.sendall(b"GET /v1/events?follow=true HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert b" 200 " in stream.recv(65536)
        clients = []
        for _ in range(500):
            clients.append(opened(stack, api))
            if is_sent_at_once:
                clients[-1].sendall(REQUEST + b"Connection: close\r\n\r\n")
        for client in () if is_sent_at_once else clients:
            with suppress(ConnectionError):  # answered before its request
                client.sendall(REQUEST + b"Connection: close\r\n\r\n")
        codes = Counter(complete_answer(client) for client in clients)

    assert {200, 503} >= codes.keys()
    assert 500 == codes.total()
    assert codes[200] >= min(500, limit - 50), codes


def complete_answer(connection):
    """Status of a complete answer; a refusal says when to come again."""
    answer = http.client.HTTPResponse(connection)
    answer.begin()
    assert len(answer.read()) == int(answer.headers["content-length"])
    assert (answer.status == 503) is ("retry-after" in answer.headers)
    return answer.status


def test_silent_connection_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 5 == http_server.IDLE_TIMEOUT
    monkeypatch.setattr(http_server, "IDLE_TIMEOUT", 0.2)
    app = an_app()
    with ApiServer(app, "127.0.0.1", 0) as api:
        assert b"HTTP/1.1 200" in said(api, b"GET /v1/plans HTTP/1.1\r\nHost: localhost\r\n\r\n")


@pytest.mark.parametrize(
    ("soft", "hard", "raised", "limit"),
    [
        (1024, 4096, 1256, 1000),
        (1024, 1024, 1024, 768),
        (100, 200, 200, 100),
        (-1, -1, None, 1000),
        (64, -1, 1256, 1000),
    ],
)
def test_connection_limit_reserves_descriptors(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, raised: int | None, limit: int
) -> None:
    """State store and Mesos connection need descriptors; the soft limit is raised."""
    calls = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda _, values: calls.append(values))

    assert limit == http_server.connection_limit()
    assert ([] if raised is None else [(raised, hard)]) == calls


def test_quota_at_its_limit_refuses_until_released() -> None:
    quota = http_server.Quota(1, "streams")

    assert quota.acquire() is None
    assert (503, "too many streams; try again later") == (quota.acquire().code, quota.acquire().message)
    quota.release()
    assert quota.acquire() is None
