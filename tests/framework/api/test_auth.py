"""Access control of the API, limits, and the audit log."""

import asyncio
import base64
import hmac
import logging
import threading

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from asgi_client import ask, ask_async
from kit.api import an_app, registered
from tf_scheduler.api.app import create_app
from tf_scheduler.api.http.auth import Policy, WriterAddresses
from tf_scheduler.api.http.endpoint import ApiRequest, Endpoint, Principal
from tf_scheduler.api.http.server import BODY_LIMIT
from tf_scheduler.api.views.base import Snapshot, View
from tf_scheduler.rate_limit import BURST

READ, WRITE = "GET", "POST"
PATH = "/v1/plans/deploy"
COMMAND = f"{PATH}/stop"
DONE = 409  # no loop takes the command, but it was let in
JSON = {"Accept": "application/json"}


def bearer(token):
    return {"Authorization": f"Bearer {token}"}


def basic(name, token):
    return {"Authorization": "Basic " + base64.b64encode(f"{name}:{token}".encode()).decode()}


@pytest.mark.parametrize(
    ("headers", "reading", "writing"),
    [
        ({}, 401, 401),
        (bearer("r"), 202, 403),
        (bearer("w"), 202, DONE),
        (basic("alice", "r"), 202, 403),
        (basic("alice", "w"), 202, DONE),
        (bearer("wrong"), 401, 401),
        (bearer(""), 401, 401),
        (basic("w", ""), 401, 401),
        ({"Authorization": "Basic !"}, 401, 401),
        ({"Authorization": "Bearer"}, 401, 401),
        ({"Authorization": "token=w"}, 401, 401),
        ({"Authorization": "token=of-dcos", "X-TensorFlow-Token": "r"}, 202, 403),
        ({"Authorization": "token=of-dcos", "X-TensorFlow-Token": "w"}, 202, DONE),
        ({**bearer("w"), "X-TensorFlow-Token": "wrong"}, 401, 401),
        ({"X-TensorFlow-Token": ""}, 401, 401),
    ],
)
def test_tokens_read_and_write_separately(headers, reading: int, writing: int) -> None:
    """As bearer, and as the password of any user."""
    app = an_app(read_token="r", write_token="w")

    assert (reading, writing) == (ask(app, PATH, headers=headers).code, ask(app, COMMAND, WRITE, headers=headers).code)


MASTER, STRANGER = "10.0.0.1", "10.0.0.2"


def test_without_token_only_masters_write() -> None:
    """Admin Router runs there. Headers make no stranger a master; reads are open."""
    app = an_app(find_writers=lambda: frozenset({MASTER}))
    pretending = {"X-Forwarded-For": MASTER, "X-Real-IP": MASTER, "Forwarded": f"for={MASTER}", "Host": MASTER}

    refused = ask(app, COMMAND, WRITE, headers={**pretending, **JSON}, client=STRANGER)

    assert DONE == ask(app, COMMAND, WRITE, client=MASTER).code
    assert (401, True) == (refused.code, "set api.write_token" in refused.body["error"]["message"])
    assert 202 == ask(app, PATH, client=STRANGER).code
    assert 401 == ask(app, COMMAND, WRITE, headers=bearer(""), client=STRANGER).code
    assert 403 == ask(app, COMMAND, WRITE, headers={"Sec-Fetch-Site": "cross-site"}, client=MASTER).code


def test_token_is_required_from_masters_too() -> None:
    """If one is configured."""
    app = an_app(write_token="w", find_writers=lambda: frozenset({MASTER}))

    assert 401 == ask(app, COMMAND, WRITE, client=MASTER).code
    assert DONE == ask(app, COMMAND, WRITE, headers=bearer("w"), client=STRANGER).code


def test_replaced_master_writes_and_failed_lookup_keeps_the_last() -> None:
    """A stranger is looked up again, but not at each request."""
    answers: list[frozenset[str] | OSError] = [frozenset({MASTER}), OSError("no name server"), frozenset({STRANGER})]
    now, lookups = [0.0], []

    def find() -> frozenset[str]:
        lookups.append(now[0])
        answer = answers[0] if len(answers) == 1 else answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return answer

    async def play() -> list[bool]:
        writers, results = WriterAddresses(find, lambda: now[0]), []
        for seconds, address in (
            (0, MASTER),
            (1, STRANGER),
            (31, MASTER),
            (32, STRANGER),
            (42, STRANGER),
            (65, MASTER),
        ):
            now[0] = float(seconds)
            results.append(await writers.includes(address))
        return results

    assert [True, False, True, False, True, False] == asyncio.run(play())
    assert [0.0, 31.0, 42.0, 65.0] == lookups


def test_lookup_that_fails_unexpectedly_is_repeated() -> None:
    """Libraries raise errors of their own."""
    answers: list[frozenset[str] | Exception] = [ZeroDivisionError(), frozenset({MASTER})]
    now = [0.0]

    def find() -> frozenset[str]:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def play() -> list[bool]:
        writers = WriterAddresses(find, lambda: now[0])
        first = await writers.includes(MASTER)
        now[0] = 11.0
        return [first, await writers.includes(MASTER)]

    assert [False, True] == asyncio.run(play())


def test_slow_lookup_blocks_only_writes() -> None:
    """The lookup runs in a thread; a hundred writes share one."""
    started, release, lookups = threading.Event(), threading.Event(), []

    def find() -> frozenset[str]:
        lookups.append(1)
        started.set()
        assert release.wait(30)
        return frozenset({MASTER})

    app = an_app(find_writers=find)

    async def play() -> tuple[int, set[int]]:
        writes = [asyncio.create_task(ask_async(app, WRITE, COMMAND, {}, (b"",), None, MASTER)) for _ in range(100)]
        await asyncio.to_thread(started.wait, 30)
        read = await ask_async(app, READ, PATH, {}, (b"",), None, STRANGER)
        release.set()
        return read.code, {reply.code for reply in await asyncio.gather(*writes)}

    assert (202, {DONE}) == asyncio.run(play())
    assert 1 == len(lookups)


def test_tokens_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """With hmac.compare_digest, on equally many bytes."""
    compared = []

    def never(left, right):
        compared.append((len(left), len(right)))
        return False

    app = an_app(read_token="r", write_token="w")
    monkeypatch.setattr(hmac, "compare_digest", never)
    wrong: list[dict[str, str]] = [{}, bearer("r"), bearer("w"), basic("alice", "w"), bearer("wrong" * 20)]
    for headers in wrong:
        assert (401, 401) == (ask(app, PATH, headers=headers).code, ask(app, COMMAND, WRITE, headers=headers).code)
    assert {(32, 32)} == set(compared)


@pytest.mark.parametrize(
    ("options", "code"),
    [({}, DONE), ({"read_token": "r"}, 403), ({"write_token": "w"}, 401), ({"client_certificates": True}, 401)],
)
def test_one_token_restricts_all_access(options, code: int) -> None:
    """An empty token is not a token and gives no access."""
    assert code == ask(an_app(**options), COMMAND, WRITE, headers=bearer("r")).code


@pytest.mark.parametrize(
    ("options", "headers", "message"),
    [
        ({"read_token": "r"}, {}, "token required: send"),
        ({"read_token": "r"}, bearer("wrong"), "invalid token"),
        (
            {"read_token": "r", "client_certificates": True},
            {},
            "'Authorization: Bearer TOKEN'; or use a client certificate",
        ),
        ({"read_token": "r", "client_certificates": True}, bearer("x"), "invalid token"),
        ({"client_certificates": True}, {}, "client certificate required"),
        ({"client_certificates": True}, bearer("x"), "client certificate required"),
    ],
)
def test_refusal_names_missing_credentials(options, headers, message: str) -> None:
    assert message in ask(an_app(**options), PATH, headers=headers).text


USERS = {"ann": "a", "bob": "b", "cem": ""}
#: Credentials -> name, may write, is an operator.
CLIENTS = [
    (bearer("a"), None, ("ann", True, False)),
    (basic("bob", "a"), None, ("ann", True, False)),
    ({"X-TensorFlow-Token": "b"}, None, ("bob", True, False)),
    (basic("ann", "r"), None, ("ann", False, False)),
    (bearer("w"), None, ("a bearer", True, True)),
    (basic("cem", ""), None, ("cem", None, False)),
    ({}, "cem", ("cem", True, False)),
    ({}, "ops", ("ops", True, True)),
    ({}, "dan", ("dan", False, False)),
    (bearer("a"), "dan", ("ann", True, False)),
    (bearer("a"), "ops", ("ops", True, True)),
    (bearer("w"), "cem", ("a bearer", True, True)),
    (bearer("wrong"), "cem", ("a bearer", None, False)),
]


@pytest.mark.parametrize(("headers", "peer", "expected"), CLIENTS)
def test_users_are_known_by_token_or_certificate(headers, peer: str | None, expected) -> None:
    """Not by the name of a basic login, which any client can send."""
    policy = Policy("r", "w", USERS, client_certificates=True, writers=frozenset({"ops"}))

    client = policy.authenticate({name.lower(): value for name, value in headers.items()}, peer)

    assert expected == (client.name, client.can_write if client.can_read else None, client.is_operator)


def test_owner_and_operators_use_a_job() -> None:
    """Readers only read; other users get neither its output nor its options."""
    app = an_app(read_token="r", write_token="w", users=USERS, owner="ann", client_certificates=True)

    def codes(headers, peer=None):
        return [ask(app, path, how, headers=headers, peer=peer).code for path, how in ((PATH, READ), (COMMAND, WRITE))]

    assert [202, DONE] == codes(bearer("a")) == codes(bearer("w")) == codes({}, "ann")
    assert [202, 403] == codes(bearer("r")) == codes(basic("ann", "r"))
    assert [403, 403] == codes(bearer("b")) == codes({}, "cem")
    assert [401, 401] == codes({}) == codes(bearer("wrong"))
    assert "job belongs to ann" == ask(app, COMMAND, WRITE, headers=bearer("b")).text


def test_client_without_credentials_is_an_operator_for_reading() -> None:
    """The address of a reader is not looked up."""
    client = Policy(find_writers=frozenset).authenticate({}, None)

    assert (False, True) == (client.can_write, client.owns("ann"))


@pytest.mark.parametrize(
    ("policy", "peer", "is_operator"),
    [
        (Policy(), None, True),
        (Policy(client_certificates=True), "ann", True),
        (Policy(client_certificates=True, users={"ann": ""}), "ann", False),
        (Policy(client_certificates=True, users={"ann": ""}), "new", False),
    ],
)
def test_without_users_every_writer_is_an_operator(policy: Policy, peer: str | None, is_operator: bool) -> None:
    client = policy.authenticate({}, peer)

    assert (True, is_operator, True) == (client.can_write, client.is_operator, client.owns(client.name))
    assert is_operator == client.owns("another")
    assert policy.is_restricted == bool(peer)


def test_handlers_get_the_client() -> None:
    """For the owner of what they store."""
    seen = []

    async def handle(request: ApiRequest) -> View:
        seen.append(request.principal)
        return View({})

    mine = Endpoint("GET", "/v1/me", "The client.", {200: dict}, handler=handle)
    app = create_app(lambda: Snapshot(registered()), Policy(users=USERS), (mine,))

    assert 200 == ask(app, "/v1/me", headers=bearer("b")).code
    assert [Principal("bob", can_read=True, can_write=True)] == seen


@pytest.mark.parametrize(
    ("writers", "peer", "code"),
    [((), "alice", DONE), (("alice",), "alice", DONE), (("alice",), "bob", 403), ((), None, 401)],
)
def test_certificate_writes_if_listed_in_writers(writers, peer: str | None, code: int) -> None:
    """All certificates, if none is listed."""
    app = an_app(client_certificates=True, writers=frozenset(writers))

    assert code == ask(app, COMMAND, WRITE, peer=peer).code


def test_browser_gets_basic_challenge() -> None:
    """So that the page and its event streams work."""
    reply = ask(an_app(read_token="r"), PATH, headers=JSON)

    assert reply.headers["www-authenticate"].startswith("Basic ")
    assert {"status": 401, "code": "unauthorized"}.items() <= reply.body["error"].items()


def test_repeated_bad_tokens_are_rate_limited() -> None:
    """The right token still works, because clients may share an address."""
    app = an_app(read_token="r")

    replies = [ask(app, PATH, headers=bearer(f"guess-{number}")) for number in range(32)]

    assert [401] * 30 + [429] * 2 == [reply.code for reply in replies]
    assert "5" == replies[-1].headers["retry-after"]
    assert [202, 401] == [ask(app, PATH, headers=bearer("r")).code, ask(app, PATH, headers={}).code]


@pytest.mark.parametrize("prefix", ["", "/service/dev/digits"])
def test_health_needs_no_token(prefix: str) -> None:
    """Marathon has none; also behind a proxy that leaves the prefix in the path."""
    app = Starlette(routes=[Mount(prefix, an_app(read_token="r"))])

    assert 204 == ask(app, f"{prefix}/v1/health").code
    assert {401} == {ask(app, f"{prefix}/v1/{path}").code for path in ("openapi.json", "none", "plans")}
    assert 200 == ask(app, f"{prefix}/v1/plans", headers=bearer("r")).code


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Sec-Fetch-Site": "same-origin", "Origin": "http://other"}, DONE),
        ({"Sec-Fetch-Site": "none"}, DONE),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://localhost"}, DONE),
        ({"Origin": "https://cluster", "X-Forwarded-Host": "cluster"}, DONE),
        ({}, DONE),
    ],
)
def test_cross_site_page_cannot_write(headers, code: int) -> None:
    """The other site cannot read either, because no header lets it see the answer."""
    app = an_app()

    assert code == ask(app, COMMAND, WRITE, headers=headers).code
    reading = ask(app, PATH, headers=headers)
    assert 202 == reading.code
    asking = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "x-forwarded-host"}
    preflight = ask(app, COMMAND, "OPTIONS", headers={**headers, **asking})
    assert not [name for name in (*reading.headers, *preflight.headers) if name.startswith("access-control")]


@pytest.mark.parametrize(
    ("host", "code"),
    [
        *[(host, 202) for host in ("localhost:80", "127.0.0.1", "127.0.1.1:80", "[::1]:8080")],
        *[(host, 403) for host in ("evil.example", "", "[", "127.0.0.1.evil.example", "10.0.0.1")],
    ],
)
def test_loopback_rejects_other_host_names(host: str, code: int) -> None:
    """A page whose name resolves to loopback would have the same origin."""
    with_token = an_app(loopback_only=True, write_token="w")

    assert code == ask(an_app(loopback_only=True), PATH, headers={"Host": host}).code
    assert code == ask(with_token, PATH, headers={"Host": host, **bearer("w")}).code
    assert (204 if code == 202 else 403) == ask(with_token, "/v1/health", headers={"Host": host}).code


@pytest.mark.parametrize(
    "options",
    [
        {"body": b"x" * (BODY_LIMIT + 1)},
        {"parts": [b"x" * BODY_LIMIT, b"x"]},
        {"headers": {"Content-Length": "9" * 12}},
    ],
)
def test_large_body_is_not_read(options) -> None:
    """With and without a declared length."""
    assert 413 == ask(an_app(), f"{PATH}/start", WRITE, **options).code


def test_every_answer_has_security_headers() -> None:
    for path in (PATH, "/v1/none", "/v1/health"):
        headers = ask(an_app(), path).headers
        assert ("nosniff", "no-store") == (headers["x-content-type-options"], headers["cache-control"])
        assert "default-src 'none'; frame-ancestors 'none'" == headers["content-security-policy"]
        assert "DENY" == headers["x-frame-options"]


def test_every_write_is_audited(caplog: pytest.LogCaptureFixture) -> None:
    """Never with a token, and with nothing that could forge a log line."""
    app = an_app(read_token="r", write_token="w")
    with caplog.at_level(logging.INFO, "tf_scheduler.audit"):
        ask(app, f"{COMMAND}?phase=a%0Ab", WRITE, headers=basic("alice\nmallory", "w"))
        ask(app, COMMAND, WRITE, headers=bearer("w-not"))
        ask(app, "/v1/pod/worker-0/pause", WRITE, headers=bearer("w"))
        ask(app, PATH, READ, headers=bearer("w"))

    lines = [record for record in caplog.records if record.name == "tf_scheduler.audit"]
    assert [
        f"audit: POST {COMMAND}?phase=a%0Ab by alicemallory from 10.1.2.3: 409",
        f"audit: POST {COMMAND} by a bearer from 10.1.2.3: 401",
        "audit: POST /v1/pod/worker-0/pause by a bearer from 10.1.2.3: 409",
    ] == [record.getMessage() for record in lines]
    assert [None, None, "worker-0"] == [getattr(record, "task", None) for record in lines]


def test_refused_requests_do_not_fill_the_audit_log(caplog: pytest.LogCaptureFixture) -> None:
    """Each client could send hundreds a second. Writes with a token are always logged."""
    app = an_app(write_token="w")
    with caplog.at_level(logging.INFO, "tf_scheduler.audit"):
        for _ in range(100):
            ask(app, COMMAND, WRITE)
            ask(app, COMMAND, WRITE, headers=bearer("w"))
    lines = [record.getMessage().rpartition(" ")[2] for record in caplog.records]
    assert 100 == lines.count("409")
    assert int(BURST) <= lines.count("401") < 60


def test_uninstall_plan_needs_no_token() -> None:
    """DC/OS polls the deploy plan without a token until the plan is complete."""
    state = registered()
    leaving = create_app(lambda: Snapshot(state, uninstalling=True), Policy(write_token="w"))

    assert [202, 401, 401] == [ask(leaving, path).code for path in (PATH, "/v1/plans", f"{PATH}/")]
    assert [401, 401] == [ask(leaving, COMMAND, WRITE).code, ask(an_app(write_token="w"), PATH).code]


@pytest.mark.parametrize(
    ("peer", "headers", "reading", "writing"),
    [
        ("alice", {}, 202, DONE),
        ("bob", {}, 202, 403),
        ("bob", bearer("w"), 202, DONE),
        ("bob", bearer("r"), 202, 403),
        ("alice", bearer("r"), 202, DONE),
        ("alice", bearer("wrong"), 401, 401),
        ("alice", basic("alice", ""), 401, 401),
        ("alice", {"Authorization": "Basic !"}, 401, 401),
        ("alice", {"Authorization": "token=of-dcos"}, 202, DONE),  # that of the admin router
    ],
)
def test_certificate_and_token_are_combined(peer: str, headers, reading: int, writing: int) -> None:
    """But a wrong token removes all permissions."""
    app = an_app(read_token="r", write_token="w", client_certificates=True, writers=frozenset({"alice"}))

    seen = [ask(app, path, how, headers=headers, peer=peer).code for path, how in ((PATH, READ), (COMMAND, WRITE))]

    assert [reading, writing] == seen
    only = an_app(client_certificates=True)
    assert 202 == ask(only, PATH, headers=bearer("any"), peer=peer).code  # no token is set, so none is wrong
