"""HTTP route for executors that fetch secrets; it skips the API's access control."""

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

from tf_scheduler.api.http.auth import ResponseRecorder
from tf_scheduler.core.launch.secret_tokens import PATH

#: Maps (document, peer's address) to (HTTP status, JSON value or text); may block.
SecretHandler = Callable[[Any, str], tuple[int, Any]]

_MAX_BYTES = 4096
#: Seconds until the request body is complete.
_READ_TIMEOUT = 10.0


def with_secrets(app: ASGIApp, give: SecretHandler) -> ASGIApp:
    """Add the route, without access control, because executors have no API token."""

    async def secrets(request: Request) -> Response:
        code, answer = await _answer(request, give)
        return (PlainTextResponse if isinstance(answer, str) else JSONResponse)(answer, code)

    own = Starlette(routes=[Route(PATH, secrets, methods=["POST"])])

    async def choose(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] == PATH:
            await own(scope, receive, ResponseRecorder(send))
        else:
            await app(scope, receive, send)

    return choose


async def _answer(request: Request, give: SecretHandler) -> tuple[int, Any]:
    try:
        body = await asyncio.wait_for(_body(request), _READ_TIMEOUT)
    except asyncio.TimeoutError:
        return 408, f"request body not received within {_READ_TIMEOUT:g} s"
    except ClientDisconnect:
        return 400, "request body incomplete"
    if len(body) > _MAX_BYTES:
        return 413, f"request body too large: the limit is {_MAX_BYTES} bytes"
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return 400, "invalid JSON"
    # The peer's address is the connection's: a client could set any header.
    return await run_in_threadpool(give, document, request.client.host if request.client else "")


async def _body(request: Request) -> bytes:
    """Read the body, up to the first chunk above the limit."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > _MAX_BYTES:
            break
    return body
