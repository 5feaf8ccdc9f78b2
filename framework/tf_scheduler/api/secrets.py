"""The one route for executors: what they say is no operator's login, but the token of their launch."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from tf_scheduler.core.handover import PATH

from .guard import Answered

#: (document, peer's address) -> (HTTP status, JSON value or text); may take long.
Give = Callable[[Any, str], tuple[int, Any]]

_MOST_BYTES = 4096
#: Seconds that the whole question may take to come.
_SLOW = 10.0


def with_secrets(app: ASGIApp, give: Give) -> ASGIApp:
    """The API and that route beside it: what guards the rest asks for logins that no executor has."""
    own = secrets_app(give)

    async def choose(scope: Scope, receive: Receive, send: Send) -> None:
        mine = scope["type"] == "http" and scope["path"] == PATH
        await (own if mine else app)(scope, receive, send)

    return choose


def secrets_app(give: Give) -> ASGIApp:
    """Nothing but that route."""
    route = Starlette(routes=[secrets_route(give)])

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        await route(scope, receive, Answered(send) if scope["type"] == "http" else send)

    return answer


def secrets_route(give: Give) -> Route:
    """`POST /v1/secrets`; the peer's address is the connection's, whatever a header says."""

    async def secrets(request: Request) -> Response:
        code, answer = await _answer(request, give)
        return (PlainTextResponse if isinstance(answer, str) else JSONResponse)(answer, code)

    return Route(PATH, secrets, methods=["POST"])


async def _answer(request: Request, give: Give) -> tuple[int, Any]:
    try:
        body = await asyncio.wait_for(_body(request), _SLOW)
    except asyncio.TimeoutError:
        return 408, f"the question did not come within {_SLOW:g} s"
    except ClientDisconnect:
        return 400, "the question is cut off"
    if len(body) > _MOST_BYTES:
        return 413, f"at most {_MOST_BYTES} bytes"
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return 400, "must be JSON"
    return await run_in_threadpool(give, document, request.client.host if request.client else "")


async def _body(request: Request) -> bytes:
    """Not much more than may be."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > _MOST_BYTES:
            break
    return body
