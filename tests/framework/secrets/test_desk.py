"""The desk over real HTTP, with the real rules behind it, and with a loop that answers late or never."""

from __future__ import annotations

import base64
import http.client
import json
from dataclasses import replace

import pytest
from starlette.responses import PlainTextResponse

from builders import a_job, a_spec
from tf_scheduler.api.secrets import with_secrets
from tf_scheduler.api.server import ApiServer
from tf_scheduler.core.handover import digest, given_by_us
from tf_scheduler.core.scheduler import handle
from tf_scheduler.model.ids import AgentId, TaskId, TaskName
from tf_scheduler.model.secrets import Delivery, SecretSpec
from tf_scheduler.model.spec import JobKind
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.model.task import TaskRecord
from tf_scheduler.secrets.desk import Desk
from tf_scheduler.secrets.errors import SecretError, SourceAway
from tf_scheduler.secrets.sources import Sources

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
    """Handles an event when it comes, as the runner does, unless it is told to be busy."""

    def __init__(self, read):
        secrets = (SecretSpec("env:A", "A"), SecretSpec("env:A", "", "a"), SecretSpec("env:B", "B", jobs={"ps"}))
        spec = a_spec(jobs=(a_job(JobKind.WORKER),), secrets=secrets, delivery=Delivery("http://127.0.0.1"))
        self.state = replace(SchedulerState(spec), tasks={RECORD.name: RECORD})
        self.busy = False
        self.desk = Desk(self.put, Sources({"env": read}), given_by_us, patience=0.2)

    def put(self, thunk):
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
    """The API with the desk in front of it."""
    with ApiServer(with_secrets(PlainTextResponse("the API"), loop.desk.give), "127.0.0.1", 0) as api:

        def post(body=GOOD, path="/v1/secrets", method="POST", headers=None):
            connection = http.client.HTTPConnection("127.0.0.1", api.port, timeout=20)
            try:
                content = body if isinstance(body, (bytes, str)) else json.dumps(body)
                connection.request(method, path, content, headers or {})
                answer = connection.getresponse()
                return answer.status, answer.read().decode(), answer.headers["Cache-Control"]
            finally:
                connection.close()

        yield post


def test_a_launch_gets_what_is_for_its_job(ask):
    """In base64; a variable without the line end that files have. Nobody may keep the answer."""
    code, text, cache = ask()
    values = [(item["env"], item["file"], base64.b64decode(item["value"])) for item in json.loads(text)["secrets"]]

    assert (200, "no-store") == (code, cache)
    assert [("A", "", VALUE[:-1]), ("", "a", VALUE)] == values


@pytest.mark.parametrize(
    ("change", "code"),
    [({"token": "wrong"}, 403), ({"token": digest("token")}, 403), ({"task_id": "worker-1__1"}, 403)],
)
def test_who_has_no_token_gets_nothing(ask, change, code):
    """Wrong, what is stored of it, and another task's."""
    found = ask({**GOOD, **change})
    assert (code, "this token is not good: no task that starts now has it") == found[:2]


def test_a_token_is_used_once(ask):
    """By a nonce; that one may ask again."""
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
        ({**GOOD, "nonce": "x" * 5000}, 413),
    ],
)
def test_what_is_no_question_is_told(ask, loop, body, code):
    """And never reaches the loop."""
    loop.busy = True
    assert code == ask(body)[0]


def test_a_header_does_not_change_who_asks(ask, loop):
    """Whoever is on the scheduler's host could claim to be an agent."""
    record = replace(RECORD, address="10.0.0.1:31000")
    loop.state = replace(
        loop.state, tasks={RECORD.name: record}, spec=replace(loop.state.spec, delivery=Delivery("http://x"))
    )
    code, text, _ = ask(headers={"X-Forwarded-For": "10.0.0.1", "Forwarded": "for=10.0.0.1"})
    assert (403, True) == (code, "127.0.0.1 is not its agent's address 10.0.0.1" in text)


def test_a_loop_that_does_not_decide_is_asked_again_later(ask, loop):
    """The executor tries until it does."""
    loop.busy = True
    assert 503 == ask()[0]
    loop.busy = False
    assert 200 == ask()[0]


@pytest.mark.parametrize(("error", "code"), [(SecretError("env:A: gone"), 424), (SourceAway("env:A: gone"), 503)])
def test_a_source_that_has_it_not_is_told(error, code):
    """Now, or for good; then the executor does not ask again."""

    def read(_):
        raise error

    assert (code, "env:A: gone") == Loop(read).desk.give(GOOD, "127.0.0.1")


def test_the_rest_of_the_api_is_where_it_was(ask):
    """Other paths; and reading gets nothing."""
    assert (200, "the API") == ask(path="/v1/plans")[:2]
    assert 405 == ask(method="GET")[0]
