"""Delivery of secrets over real HTTP, with the real rules behind it."""

from __future__ import annotations

import base64
import http.client
import json
import socket
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse

import asgi_client
from builders import a_job, a_spec, a_status, with_fields
from tf_executor.contract.states import TaskState
from tf_scheduler.api.app import create_app
from tf_scheduler.api.http.auth import Policy
from tf_scheduler.api.http.server import ApiServer
from tf_scheduler.api.routes import secret_delivery as routes_secrets
from tf_scheduler.api.routes.secret_delivery import with_secrets
from tf_scheduler.api.views.base import Snapshot
from tf_scheduler.core.launch.secret_tokens import digest, secrets_due, token_matches
from tf_scheduler.core.scheduler import handle
from tf_scheduler.core.state.reducer import apply
from tf_scheduler.errors import SecretError, SourceUnavailableError
from tf_scheduler.model.effects import StatusStored
from tf_scheduler.model.ids import AgentId, TaskId, TaskName
from tf_scheduler.model.secrets import SecretDelivery, SecretSpec
from tf_scheduler.model.spec import JobKind
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.model.task import TaskRecord
from tf_scheduler.rate_limit import RateLimiter
from tf_scheduler.secrets.delivery import SecretService
from tf_scheduler.secrets.sources import SecretSources

VALUE = b"\xffcanary\n"
RECORD = TaskRecord(
    *(
        TaskName("worker-0"),
        TaskId("worker-0__1"),
        JobKind.WORKER,
        0,
        AgentId("a"),
        "host",
        "127.0.0.1:31000",
        1,
        (),
        0.0,
    ),
    group="worker",
    token=digest("token"),
)
GOOD = {"task_id": "worker-0__1", "token": "token", "nonce": "n"}


class Loop:
    """Handles an event immediately, as the runner does, unless it is set to be busy."""

    def __init__(self, read) -> None:
        secrets = (SecretSpec("env:A", "A"), SecretSpec("env:A", "", "a"), SecretSpec("env:B", "B", jobs={"ps"}))
        spec = a_spec(
            jobs=(a_job(JobKind.WORKER),), secrets=secrets, secret_delivery=SecretDelivery("http://127.0.0.1")
        )
        self.state = with_fields(SchedulerState(spec), tasks={RECORD.name: RECORD})
        self.busy = False
        self.desk = SecretService(self.put, SecretSources({"env": read}), secrets_due, token_matches, patience=0.2)

    def put(self, thunk) -> None:
        if not self.busy:
            event = thunk()
            decision = handle(self.state, event, 1.0, lambda: "unused")
            self.state = decision.state
            self.desk.observe(event, decision)


@pytest.fixture
def loop():
    return Loop(lambda _: VALUE)


@pytest.fixture
def ask(loop):
    """The API with the secret service in front of it."""
    with ApiServer(with_secrets(PlainTextResponse("the API"), loop.desk.give), "127.0.0.1", 0) as api:

        def post(body=GOOD, path="/v1/secrets", method="POST", headers=None):
            connection = http.client.HTTPConnection("127.0.0.1", api.port, timeout=20)
            try:
                content = body if isinstance(body, (bytes, str)) else json.dumps(body)
                connection.request(method, path, content, headers or {})
                answer = connection.getresponse()
                assert path != "/v1/secrets" or "nosniff" == answer.headers["X-Content-Type-Options"]
                return answer.status, answer.read().decode(), answer.headers["Cache-Control"]
            finally:
                connection.close()

        yield post


def test_launch_gets_the_secrets_of_its_job(ask) -> None:
    """Secrets in base64, variables without a final newline, a response never cached."""
    code, text, cache = ask()
    values = [(item["env"], item["file"], base64.b64decode(item["value"])) for item in json.loads(text)["secrets"]]

    assert (200, "no-store") == (code, cache)
    assert [("A", "", VALUE[:-1]), ("", "a", VALUE)] == values


@pytest.mark.parametrize(
    ("change", "code"),
    [({"token": "wrong"}, 403), ({"token": digest("token")}, 403), ({"task_id": "worker-1__1"}, 403)],
)
def test_invalid_token_gets_no_secret(ask, change, code) -> None:
    """A wrong token, its stored digest, and another task's."""
    reply = ask({**GOOD, **change})
    assert (code, "invalid or expired token") == reply[:2]


def test_running_program_gets_reloadable_secrets(ask, loop) -> None:
    secrets = (*loop.state.spec.secrets, SecretSpec("env:A", "", "b", reloads=True))
    loop.state = replace(loop.state, spec=replace(loop.state.spec, secrets=secrets))
    first = json.loads(ask()[1])["secrets"]
    loop.state = apply(loop.state, StatusStored(a_status(RECORD.id, TaskState.RUNNING)))
    assert [("A", False), ("a", False), ("b", True)] == [(one["env"] or one["file"], one["reload"]) for one in first]
    assert first[2:] == json.loads(ask()[1])["secrets"]


def test_token_is_used_once(ask) -> None:
    """By one nonce, which may ask again."""
    assert [200, 403, 200] == [ask({**GOOD, "nonce": nonce})[0] for nonce in ("n", "other", "n")]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", 400),
        (b"\xff", 400),
        ("[" * 4000, 400),
        ([], 400),
        ({}, 400),
        ({**GOOD, "more": 1}, 400),
        ({**GOOD, "nonce": 1}, 400),
        ({**GOOD, "nonce": ""}, 400),
        ({**GOOD, "nonce": "x" * 500}, 400),
        ({**GOOD, "token": "\ud800"}, 400),
        ({**GOOD, "nonce": "\udfff"}, 400),
        ({**GOOD, "task_id": "worker-0__1\0"}, 400),
        ({**GOOD, "nonce": "x" * 5000}, 413),
    ],
)
def test_malformed_request_is_refused(ask, loop, body, code) -> None:
    """It never reaches the loop."""
    loop.busy = True
    assert code == ask(body)[0]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
FIELDS = st.fixed_dictionaries({name: st.sampled_from([GOOD[name]]) | st.text() | JSON for name in GOOD})
BODIES = st.binary(max_size=300) | st.one_of(JSON, FIELDS).map(lambda value: json.dumps(value).encode())


@given(BODIES, st.sampled_from(["POST", "GET", "PUT", "DELETE"]), st.integers(1, 40))
@settings(max_examples=150)
def test_any_request_without_token_has_no_effect(body, method, size) -> None:
    """Property: a refused request changes nothing."""
    loop = Loop(lambda _: VALUE)
    loop.state = with_fields(loop.state, tasks={RECORD.name: replace(RECORD, token=digest("another"))})
    before = loop.state
    parts = [body[at : at + size] for at in range(0, len(body), size)]
    reply = asgi_client.ask(with_secrets(Starlette(), loop.desk.give), "/v1/secrets", method, body=body, parts=parts)
    assert reply.code in ((400, 403, 413) if method == "POST" else (405,))
    assert b"value" not in reply.content
    assert loop.state is before


def test_incomplete_request_times_out(monkeypatch: pytest.MonkeyPatch, loop) -> None:
    """A slow client holds no connection and no thread."""
    assert 10.0 == routes_secrets._READ_TIMEOUT  # what is promised
    monkeypatch.setattr(routes_secrets, "_READ_TIMEOUT", 0.1)
    head = b"POST /v1/secrets HTTP/1.1\r\nHost: a\r\nContent-Length: 200\r\n\r\n{"
    with (
        ApiServer(with_secrets(Starlette(), loop.desk.give), "127.0.0.1", 0) as api,
        socket.create_connection(("127.0.0.1", api.port), 20) as slow,
    ):
        slow.sendall(head)
        received = b"".join(iter(lambda: slow.recv(65536), b""))
    assert received.startswith(b"HTTP/1.1 408")


def test_repeated_bad_tokens_are_rate_limited(loop) -> None:
    """A launch with its own token is not, even at the same address."""
    now = [0.0]
    loop.desk.rate_limiter = RateLimiter(lambda: now[0])
    guess = {**GOOD, "token": "guess"}
    loop.desk.give(guess, "127.0.0.1")
    codes = [loop.desk.give({**guess, "task_id": f"worker-{number}__1"}, "127.0.0.1")[0] for number in range(100)]
    assert {403: 29, 429: 71} == Counter(codes)
    assert 200 == loop.desk.give(GOOD, "127.0.0.1")[0]
    assert 403 == loop.desk.give(guess, "127.0.0.2")[0]
    now[0] = 5.0
    assert [403, 429] == [loop.desk.give(guess, "127.0.0.1")[0] for _ in range(2)]


def test_ipv6_network_shares_one_rate_limit(loop) -> None:
    """A client with one address usually has all 2^64."""
    loop.desk.rate_limiter = RateLimiter(lambda: 0.0)
    guess = {**GOOD, "token": "guess"}
    codes = [loop.desk.give(guess, f"2001:db8:0:1::{number:x}")[0] for number in range(100)]
    assert {403: 30, 429: 70} == Counter(codes)
    assert 403 == loop.desk.give(guess, "2001:db8:0:2::1")[0]


def test_rate_limiter_memory_is_bounded() -> None:
    """The least recently used buckets are evicted."""
    rate_limiter = RateLimiter(lambda: 0.0, max_buckets=10)
    assert all(rate_limiter.acquire(number) for number in range(100))
    assert 10 == len(rate_limiter._buckets)


def test_forwarded_headers_are_ignored(ask, loop) -> None:
    """Any process on the scheduler's host could set them."""
    record = replace(RECORD, address="10.0.0.1:31000")
    loop.state = with_fields(
        loop.state,
        tasks={RECORD.name: record},
        spec=replace(loop.state.spec, secret_delivery=SecretDelivery("http://x")),
    )
    code, text, _ = ask(headers={"X-Forwarded-For": "10.0.0.1", "Forwarded": "for=10.0.0.1"})
    assert (403, True) == (code, "127.0.0.1 is not the address of the task's agent: 10.0.0.1" in text)


def test_request_before_container_address_is_retried(ask, loop) -> None:
    """As on a virtual network."""
    loop.state = with_fields(loop.state, tasks={RECORD.name: replace(RECORD, address="worker-0.service.zone:2222")})
    assert 503 == ask()[0]
    status = a_status(RECORD.id, TaskState.STARTING, addresses=("127.0.0.1",))
    loop.state = apply(loop.state, StatusStored(status))
    assert 200 == ask()[0]


def test_busy_loop_answers_unavailable(ask, loop) -> None:
    """The executor retries."""
    loop.busy = True
    assert 503 == ask()[0]
    loop.busy = False
    assert 200 == ask()[0]


@pytest.mark.parametrize(
    ("error", "code"), [(SecretError("env:A: gone"), 424), (SourceUnavailableError("env:A: gone"), 503)]
)
def test_missing_source_has_its_status(error, code) -> None:
    """424 is final, 503 is retried."""

    def read(_) -> None:
        raise error

    assert (code, "env:A: gone") == Loop(read).desk.give(GOOD, "127.0.0.1")


@pytest.mark.parametrize("authorization", ["Bearer token", "Bearer " + digest("token"), ""])
def test_launch_token_does_not_open_the_api(loop, authorization) -> None:
    app = create_app(lambda: Snapshot(loop.state), Policy(read_token="read", write_token="write"))
    whole = with_secrets(app, loop.desk.give)
    asked = [("/v1/plans", "GET"), ("/v1/tasks/worker-0/logs", "GET"), ("/v1/plans/deploy/stop", "POST")]
    headers = {"Authorization": authorization} if authorization else {}
    assert [401] * 3 == [asgi_client.ask(whole, *one, headers=headers).code for one in asked]


def test_other_paths_reach_the_api(ask) -> None:
    assert (200, "the API") == ask(path="/v1/plans")[:2]
    assert 405 == ask(method="GET")[0]
