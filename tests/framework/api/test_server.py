"""The API over real HTTP, on loopback."""

import http.client
import json
import socket
from contextlib import ExitStack, suppress

import pytest

from builders import a_spec
from tf_scheduler.api import app
from tf_scheduler.api import server as server_module
from tf_scheduler.api.app import create_app
from tf_scheduler.api.server import ApiError, ApiServer, address_for
from tf_scheduler.api.views import Snapshot
from tf_scheduler.model.state import SchedulerState


@pytest.fixture
def server():
    state = SchedulerState(a_spec(), framework_id="framework-1")
    with ApiServer(create_app(lambda: Snapshot(state)), "127.0.0.1", 0) as api:
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
        ("/v1/nothing", 404, "text/plain", "Not Found"),
    ],
)
def test_json_is_indented_and_errors_are_text(server, path, code, kind, text):
    """As the SDK answers."""
    assert (code, kind, text) == get(server, path)


def test_a_plan_under_way_is_202(server):
    """With its body."""
    code, _, text = get(server, "/v1/plans/deploy")

    assert (202, "PENDING") == (code, json.loads(text)["status"])


def test_health_without_a_body_where_http_allows_none(server):
    """204: nothing is launched yet."""
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
def test_what_is_no_http_is_cut_off_and_others_are_answered(server, sent):
    """TLS, control characters, heads without end, two lengths (which smuggle a second request past a proxy)."""
    assert said(server, sent).partition(b"\r\n")[0].split(b" ")[1:2] in ([], [b"400"], [b"404"], [b"501"])
    assert 200 == get(server, "/v1/plans")[0]


@pytest.mark.parametrize("path", ["/v1/plans/deploy/start", "/v1/plans/deploy/stop", "/v1/nothing"])
def test_a_body_that_does_not_come_is_not_waited_for(server, path, monkeypatch):
    """Whether the endpoint takes one or not."""
    monkeypatch.setattr(app, "_SLOW", 0.1)
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 100\r\n\r\n{{"
    assert said(server, head.encode()).startswith((b"HTTP/1.1 400", b"HTTP/1.1 404", b"HTTP/1.1 409"))


def test_a_port_that_is_taken_is_named():
    """And nothing is left open."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(ApiError, match=f"cannot listen at 127.0.0.1:{port}"):
            ApiServer(create_app(lambda: Snapshot(SchedulerState(a_spec()))), "127.0.0.1", port)


def test_the_port_is_free_again_afterwards():
    """The next scheduler on this agent may get it."""
    with ApiServer(create_app(lambda: Snapshot(SchedulerState(a_spec()))), "127.0.0.1", 0) as api:
        port = api.port
        assert 200 == get(api, "/v1/plans")[0]
    socket.create_server(("127.0.0.1", port)).close()


@pytest.mark.parametrize(
    ("host", "address"),
    [("127.0.0.1", "127.0.0.1"), ("localhost", "127.0.0.1"), ("10.0.0.5", "0.0.0.0"), ("agent-1", "0.0.0.0")],
)
def test_on_an_agent_of_a_network_we_listen_everywhere(host, address):
    """On loopback alone where the agent is reached by that alone."""
    assert address == address_for(host)


def asked(server, path, address="127.0.0.1"):
    """Status and headers, and the connection, which stays open."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20, source_address=(address, 0))
    connection.request("GET", path, headers={"Accept": "application/json"})
    answer = connection.getresponse()
    return connection, answer.status, answer.headers, answer.read()


def test_one_client_does_not_take_all_connections(monkeypatch):
    """It has half of them, and is told so; others go on, and health is for everybody."""
    monkeypatch.setattr(server_module, "_CONNECTIONS", 8)
    monkeypatch.setattr(server_module, "_CROWD", 4)
    state = SchedulerState(a_spec(), framework_id="framework-1")
    with ApiServer(create_app(lambda: Snapshot(state)), "127.0.0.1", 0) as server, ExitStack() as stack:

        def ask(*given):
            connection, code, headers, content = asked(server, *given)
            stack.callback(connection.close)
            return code, headers, content

        assert [200] * 4 == [ask("/v1/plans")[0] for _ in range(4)]
        code, headers, content = ask("/v1/plans")
        assert (429, "5") == (code, headers["retry-after"])
        assert {"status": 429, "code": "too_many_requests"}.items() <= json.loads(content)["error"].items()
        assert [204, 200] == [ask("/v1/health")[0], ask("/v1/plans", "127.0.0.2")[0]]
