"""The one route for executors: what they say is no operator's login, but the token of their launch."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from tf_scheduler.core.handover import PATH

#: (document, peer's address) -> (HTTP status, JSON value or text); may take long.
Give = Callable[[Any, str], tuple[int, Any]]

_MOST_BYTES = 4096
#: Values are for one reader.
_HEADERS = {"Cache-Control": "no-store"}


def with_secrets(app: ASGIApp, give: Give) -> ASGIApp:
    """The API and that route beside it: what guards the rest asks for logins that no executor has."""
    own = secrets_app(give)

    async def choose(scope: Scope, receive: Receive, send: Send) -> None:
        mine = scope["type"] == "http" and scope["path"] == PATH
        await (own if mine else app)(scope, receive, send)

    return choose


def secrets_app(give: Give) -> Starlette:
    """Nothing but that route."""
    return Starlette(routes=[secrets_route(give)])


def secrets_route(give: Give) -> Route:
    """`POST /v1/secrets`; the peer's address is the connection's, whatever a header says."""

    async def secrets(request: Request) -> Response:
        body = b""
        async for chunk in request.stream():
            body += chunk
            if len(body) > _MOST_BYTES:
                return PlainTextResponse(f"at most {_MOST_BYTES} bytes", 413)
        try:
            document = json.loads(body)
        except (ValueError, RecursionError):
            return PlainTextResponse("must be JSON", 400)
        address = request.client.host if request.client else ""
        code, answer = await run_in_threadpool(give, document, address)
        if isinstance(answer, str):
            return PlainTextResponse(answer, code, _HEADERS)
        return JSONResponse(answer, code, _HEADERS)

    return Route(PATH, secrets, methods=["POST"])
