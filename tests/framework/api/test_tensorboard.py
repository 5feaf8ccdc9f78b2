"""Proxy for TensorBoard, with a server that records its requests."""

from __future__ import annotations

import hmac
import json
import logging
import socket
from contextlib import closing
from urllib.parse import quote

import pytest

from asgi_client import ask
from builders import a_job, a_spec, a_status, with_fields
from kit.api import a_record, an_app, registered
from kit.http_server import HttpServer, QuietHandler
from tf_executor.contract.states import TaskState
from tf_scheduler.api.routes import tensorboard
from tf_scheduler.model.spec import JobKind
from tf_scheduler.model.state import SchedulerState

TOKENS = {"read_token": "r", "write_token": "w"}
READER = {"Authorization": "Bearer r"}


class Handler(QuietHandler):
    """Echoes; some paths misbehave."""

    protocol_version = "HTTP/1.1"

    def respond(self) -> None:
        if self.path == "/away":
            self.answer(307, b"", Location="/v1/plans/deploy/stop")
            return
        if self.path == "/cut":
            self.send_response(200)
            self.send_header("Content-Length", "100")
            self.end_headers()
            self.wfile.write(b"{half")
            self.close_connection = True
            return
        headers, body = dict(self.headers), self.body().decode()
        record = {"method": self.command, "path": self.path, "headers": headers, "body": body}
        self.send_response(404 if "missing" in self.path else 200)
        for name, value in (
            ("Content-Type", "application/json"),
            ("Set-Cookie", "stolen=1"),
            ("Service-Worker-Allowed", "/"),
            ("Link", "</v1/plans>; rel=prefetch"),
            ("Content-Security-Policy", "script-src 'none'"),
            ("Transfer-Encoding", "chunked"),
        ):
            self.send_header(name, value)
        self.end_headers()
        content = json.dumps(record).encode()
        for piece in (content[:7], content[7:], b""):
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))


@pytest.fixture
def place():
    """Address of a TensorBoard."""
    with HttpServer(Handler) as server:
        yield server.address


def a_state(address, word=TaskState.RUNNING):
    spec = a_spec(jobs=(a_job(), a_job(JobKind.TENSORBOARD)))
    record = a_record(spec, "tensorboard-0", address=address)
    return registered(spec, tasks={record.name: record}, statuses={record.id: a_status(record.id, word)})


def test_proxy_forwards_requests_and_answers(place: str) -> None:
    app = an_app(a_state(place))

    got = ask(app, "/tensorboard/any/data/plugin/scalars?tag=a%2Fb&x=1")
    posted = ask(app, "/tensorboard/any/data", "POST", headers={"Content-Type": "text/x"}, body=b"what")

    assert (200, "GET", "/data/plugin/scalars?tag=a%2Fb&x=1") == (got.code, got.body["method"], got.body["path"])
    assert ("POST", "what", "text/x") == (
        posted.body["method"],
        posted.body["body"],
        posted.body["headers"]["content-type"],
    )
    assert 404 == ask(app, "/tensorboard/any/missing").code
    assert 405 == ask(app, "/tensorboard/any/data", "DELETE").code


def test_proxy_drops_credentials_and_cookies(place: str) -> None:
    """In both directions; also links and service workers."""
    headers = {"Authorization": "Bearer w", "Cookie": "a=b", "Referer": "http://x/", "X-TensorBoard-Flags": "{}"}

    reply = ask(an_app(a_state(place), **TOKENS), "/tensorboard/any/", headers=headers)

    assert {"host", "connection", "content-length", "x-tensorboard-flags"} == {
        name.lower() for name in reply.body["headers"]
    }
    assert place == reply.body["headers"]["host"]
    assert not {"set-cookie", "link", "service-worker-allowed", "transfer-encoding"} & reply.headers.keys()
    policy = reply.headers["content-security-policy"]
    assert "'self'" not in policy.partition("default-src")[2].partition(";")[0]
    assert policy.endswith("sandbox allow-scripts allow-downloads")
    assert not {"allow-popups", "allow-forms", "allow-top-navigation", "allow-same-origin", "allow-modals"} & set(
        policy.split()
    )


@pytest.mark.parametrize(
    ("headers", "hosts"),
    [
        ({"Host": "tf.example.com:8080"}, ["tf.example.com:8080"]),
        ({"Host": "10.0.0.1", "X-Forwarded-Host": "dcos"}, ["10.0.0.1", "dcos"]),
        ({"Host": "a; script-src *"}, []),
        ({"Host": "*"}, []),
    ],
)
def test_content_security_policy(place: str, headers, hosts) -> None:
    """Each word of the policy, for the requested host alone; a browser tests it."""
    reply = ask(an_app(a_state(place)), "/tensorboard/any/", headers=headers)
    ours = reply.headers["content-security-policy"].partition(", ")[0].split(";")
    rules = {rule.split()[0]: rule.split()[1:] for rule in ours}
    name = a_state(place).spec.name

    paths = "/tensorboard/", f"/service/{quote(name)}/tensorboard/"
    own = [f"{host}{path}" for host in hosts for path in paths]
    assert {
        "default-src": [*own, "data:", "blob:", "'unsafe-inline'", "'unsafe-eval'"],
        **{key: ["'none'"] for key in ("frame-src", "object-src", "form-action", "base-uri")},
        "frame-ancestors": hosts or ["'none'"],
        "sandbox": ["allow-scripts", "allow-downloads"],
    } == rules


def test_path_key_is_compared_in_constant_time(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    app = an_app(a_state(place), **TOKENS)
    path = "/" + ask(app, "/v1/tf/tensorboard", headers=READER).body["path"]
    assert 200 == ask(app, path).code
    monkeypatch.setattr(hmac, "compare_digest", lambda *_: False)
    assert 401 == ask(app, path).code


def test_only_key_allows_the_sandbox_to_read(place: str) -> None:
    """Any site can make a page with the origin `null`; it does not know the key."""
    app = an_app(a_state(place))
    path = "/" + ask(app, "/v1/tf/tensorboard").body["path"]
    for method in ("GET", "POST", "OPTIONS"):
        mine = ask(app, f"{path}data", method, headers={"Origin": "null"})
        other = ask(app, "/tensorboard/any/data", method, headers={"Origin": "null"})
        assert "null" == mine.headers["access-control-allow-origin"]
        assert "access-control-allow-origin" not in other.headers
        assert mine.code in (200, 204)


@pytest.mark.parametrize(("rest", "location"), [("", "framed"), ("data/x", "../framed")])
def test_board_itself_is_only_shown_in_frame(place: str, rest: str, location: str) -> None:
    """Only the scheduler's page around it says whose page it is."""
    app = an_app(a_state(place))

    shown = ask(app, f"/tensorboard/any/{rest}", headers={"Sec-Fetch-Dest": "document"})
    frame = ask(app, "/tensorboard/any/framed", headers={"Host": "a:1", "Sec-Fetch-Dest": "document"})

    assert (307, location) == (shown.code, shown.headers["location"])
    assert 200 == ask(app, f"/tensorboard/any/{rest}", headers={"Sec-Fetch-Dest": "iframe"}).code
    assert "enter no\ntoken or password" in frame.text
    assert "frame-src a:1/tensorboard/ a:1/service/digits/tensorboard/;" in frame.headers["content-security-policy"]


def test_path_key_replaces_token(place: str) -> None:
    """Browsers send no token when they follow a link. The key gives no other access."""
    app = an_app(a_state(place), **TOKENS)

    assert 401 == ask(app, "/v1/tf/tensorboard").code
    assert {401} == {ask(app, path).code for path in ("/tensorboard/", "/tensorboard/any/", "/tensorboard//")}
    body = ask(app, "/v1/tf/tensorboard", headers=READER).body
    assert ("tensorboard-0", place, True) == (body["task"], body["address"], body["running"])
    lead = ask(app, "/tensorboard/", headers=READER)
    assert (307, f"{body['path']}framed") == (lead.code, "tensorboard/" + lead.headers["location"])

    assert 200 == ask(app, "/" + body["path"]).code
    assert 200 == ask(app, f"/{body['path']}data", "POST", headers={"Sec-Fetch-Site": "same-origin"}).code
    key = body["path"].split("/")[1]
    for path in (f"/v1/tasks?{key}", f"/v1/{key}", f"/{key}/", f"/tensorboard/{key[:-1]}/", f"/tensorboard/x/{key}/"):
        assert 401 == ask(app, path).code, path


@pytest.mark.parametrize(
    ("path", "method", "headers", "policy", "code"),
    [
        ("", "POST", {"Sec-Fetch-Site": "cross-site"}, {}, 403),
        ("", "GET", {"Host": "evil.test"}, {"loopback_only": True}, 403),
        # A service worker could bypass the policy; browsers send this header (W3C).
        ("worker.js", "GET", {"Service-Worker": "script"}, {}, 403),
        ("worker.js", "GET", {}, {}, 200),
        # A redirect could lead the browser to a path that the page itself cannot open.
        ("away", "GET", {}, {}, 503),
    ],
)
def test_proxy_refuses_unsafe_requests(place: str, path: str, method: str, headers, policy, code: int) -> None:
    reply = ask(an_app(a_state(place), **policy), f"/tensorboard/any/{path}", method, headers=headers)

    assert (code, False) == (reply.code, "location" in reply.headers)


def test_path_key_is_not_logged(place: str, caplog: pytest.LogCaptureFixture) -> None:
    """A POST to TensorBoard is not a command, so it is not audited."""
    caplog.set_level(logging.INFO)
    app = an_app(a_state(place))
    path = ask(app, "/v1/tf/tensorboard").body["path"]

    ask(app, f"/{path}data", "POST", body=b"x")

    assert [] == [record.message for record in caplog.records if path in record.getMessage()]


@pytest.mark.parametrize(
    ("state", "code", "words"),
    [
        (registered(), 404, "service.use_tensorboard"),
        (SchedulerState(a_spec(jobs=(a_job(JobKind.TENSORBOARD),))), 503, "has not been launched"),
        (a_state("127.0.0.1:9", TaskState.FAILED), 503, "tensorboard-0 on agent-1 has failed"),
        (with_fields(a_state("127.0.0.1:9"), statuses={}), 503, "tensorboard-0 on agent-1 is launching"),
    ],
)
def test_missing_tensorboard_has_reason(state, code: int, words: str) -> None:
    """As JSON, also for a browser."""
    for path in ("/tensorboard/", "/tensorboard/any/"):
        reply = ask(an_app(state), path, headers={"Accept": "text/html"})
        assert (code, True) == (reply.code, words in reply.body["error"]["message"])
    body = ask(an_app(state), "/v1/tf/tensorboard").body
    assert (False, None, True) == (body["running"], body["path"], words in body["reason"])


def test_starting_tensorboard_is_503() -> None:
    """TensorBoard is launched, but imports TensorFlow for a while."""
    with closing(socket.socket()) as silent:
        silent.bind(("127.0.0.1", 0))
        reply = ask(an_app(a_state(f"127.0.0.1:{silent.getsockname()[1]}")), "/tensorboard/any/")

    assert (503, "unavailable") == (reply.code, reply.body["error"]["code"])
    assert "request to TensorBoard failed" in reply.body["error"]["message"]


def test_proxy_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensorboard, "HEAD_TIMEOUT", 0.05)
    with closing(socket.create_server(("127.0.0.1", 0))) as silent:
        reply = ask(an_app(a_state(f"127.0.0.1:{silent.getsockname()[1]}")), "/tensorboard/any/")

    assert (503, True) == (reply.code, "no answer within" in reply.body["error"]["message"])


def test_proxy_truncates_long_and_incomplete_answers(
    place: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """And logs it."""
    app = an_app(a_state(place))

    assert b"{half" == ask(app, "/tensorboard/any/cut").content
    monkeypatch.setattr(tensorboard, "MAX_BYTES", 10)
    assert 10 > len(ask(app, "/tensorboard/any/").content)
    assert 2 == sum("truncated" in record.getMessage() for record in caplog.records)


def test_proxy_releases_its_quota(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """However a request ends."""
    monkeypatch.setattr(tensorboard, "MAX_REQUESTS", 1)
    app = an_app(a_state(place))
    paths = ("", "cut", "away", "missing", "")

    assert [200, 200, 503, 404, 200] == [ask(app, f"/tensorboard/any/{path}").code for path in paths]
