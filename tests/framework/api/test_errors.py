"""Errors are text at the paths of the DC/OS SDK, and JSON at all others."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from asgi_client import Reply, ask
from kit.api import ServiceLoop, an_app, registered
from tf_scheduler.api.app import create_app
from tf_scheduler.api.http.auth import Policy
from tf_scheduler.api.views.base import Snapshot

JSON = {"Accept": "application/json"}
DOCUMENT = ask(an_app(), "/v1/openapi.json").body["paths"]


def reader() -> ASGIApp:
    """Accept the tokens `r` and `w`."""
    return an_app(read_token="r", write_token="w")


def guessed() -> ASGIApp:
    """Has had as many wrong tokens as it allows."""
    app = reader()
    for number in range(31):
        ask(app, "/v1/plans", headers=bearer(str(number)))
    return app


def overloaded() -> ASGIApp:
    """Has more connections than it allows."""
    app = an_app()

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        await app({**scope, "state": {"overloaded": True}}, receive, send)

    return serve


def defective() -> ASGIApp:
    """Raise an error for each request; the server logs it."""

    def fail() -> Snapshot:
        raise ZeroDivisionError

    app = create_app(fail, Policy())

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        with suppress(ZeroDivisionError):
            await app(scope, receive, send)

    return serve


def serving() -> ASGIApp:
    return ServiceLoop(registered()).app


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@dataclass(frozen=True)
class Row:
    """A status, its code, and requests that get it: of the SDK, and of another path."""

    status: int
    code: str
    app: Callable[[], ASGIApp]
    requests: tuple[str, str]
    headers: tuple[tuple[str, str], ...] = ()
    content: bytes = b""

    def __str__(self) -> str:
        return f"{self.status} {self.requests[1]}"


WRITES = ("POST /v1/plans/deploy/stop", "POST /v1/tf/secrets/refresh")
READS = ("GET /v1/plans", "GET /v1/tasks")
ROWS = (
    Row(400, "bad_request", serving, ("POST /v1/plans/{plan}/start", "POST /v1/tf/update/preview"), content=b"["),
    Row(400, "bad_request", serving, ("POST /v1/plan/restart?step=", "GET /v1/tf/progress?points=x")),
    Row(400, "bad_request", serving, ("POST /v1/plan/restart?step=", "GET /v1/events?lenght=1")),
    Row(401, "unauthorized", reader, READS),
    Row(401, "unauthorized", reader, ("GET /v1/plans", "GET /v1/unknown")),
    Row(403, "forbidden", reader, WRITES, (("Authorization", "Bearer r"),)),
    Row(403, "forbidden", an_app, WRITES, (("Sec-Fetch-Site", "cross-site"),)),
    Row(404, "not_found", an_app, ("GET /v1/plans/{plan}", "GET /v1/tasks/{name}")),
    Row(404, "not_found", an_app, ("GET /v1/plans/{plan}", "GET /v1/unknown")),
    Row(404, "not_found", an_app, ("GET /v1/plans/{plan}", "GET /v1/plans/")),
    Row(405, "method_not_allowed", an_app, ("DELETE /v1/plans", "DELETE /v1/tasks")),
    Row(405, "method_not_allowed", an_app, ("OPTIONS /v1/plans", "OPTIONS /v1/tasks")),
    Row(409, "conflict", an_app, WRITES),
    Row(413, "too_large", an_app, WRITES, (("Content-Length", "999999"),)),
    Row(413, "too_large", serving, ("POST /v1/plans/{plan}/start", "POST /v1/tf/update/preview"), content=b"1" * 65537),
    Row(429, "too_many_requests", guessed, READS, (("Authorization", "Bearer wrong"),)),
    Row(500, "internal_error", defective, READS),
    Row(503, "unavailable", overloaded, READS),
)


def send(row: Row, request: str, headers: dict[str, str]) -> Reply:
    method, _, path = request.partition(" ")
    return ask(
        row.app(), path.replace("{plan}", "none"), method, headers={**dict(row.headers), **headers}, body=row.content
    )


@pytest.mark.parametrize("accept", [{}, {"Accept": "*/*"}, JSON], ids=["no Accept", "anything", "JSON"])
@pytest.mark.parametrize("row", ROWS, ids=str)
def test_error_format_depends_on_the_path_only(row: Row, accept: dict[str, str]) -> None:
    """Tools need not know which part of the server refuses."""
    for request, is_json in zip(row.requests, (accept is JSON, True), strict=True):
        reply = send(row, request, accept)

        kind = reply.headers["content-type"].partition(";")[0]
        assert (row.status, "application/json" if is_json else "text/plain") == (reply.code, kind), request
        if is_json:
            error = reply.body["error"]
            assert {"error"} == reply.body.keys()
            assert (row.status, row.code, True) == (error["status"], error["code"], bool(error["message"]))
        else:
            assert reply.text
            assert not reply.text.startswith("{")
        assert (row.status in (429, 503)) is ("retry-after" in reply.headers)
        method, _, path = request.partition("?")[0].partition(" ")
        operation = DOCUMENT.get(path, {}).get(method.lower())
        if operation is not None and row.status != 500:
            assert kind in operation["responses"][str(row.status)]["content"]


@pytest.mark.parametrize("path", ["/v1/plans", "/v1/pod/x/restart", "/v1/tasks", "/v1/state/files/a"])
def test_options_gets_405_and_allow(path: str) -> None:
    """No preflight of another site is ever granted."""
    reply = ask(an_app(), path, "OPTIONS")
    assert (405, True) == (reply.code, bool({"GET", "POST"} & set(reply.headers["allow"].split(", "))))
