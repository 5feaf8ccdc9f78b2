"""The API over real HTTP, on loopback."""

import http.client
import json
import socket

import pytest

from builders import a_spec
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
