"""In front of every route: who asks, may they, how much do they send, and what a browser may do with the answer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tf_scheduler.allowance import Allowance

from .clients import address_of
from .policy import Policy, Visitor
from .respond import respond, wants_json
from .views.base import Problem

log = logging.getLogger("tf_scheduler.audit")

#: Bytes of a body at most.
BODY_LIMIT = 64 * 1024
#: Seconds that a client may take to read a part of an answer.
STALLED = 30.0
SECURITY = {
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
    b"referrer-policy": b"no-referrer",
    b"content-security-policy": b"default-src 'none'; frame-ancestors 'none'",
    b"cache-control": b"no-store",
}
_CHALLENGE = {"www-authenticate": 'Basic realm="tensorflow", charset="UTF-8"'}
#: For scripts of a page, which ask for the token themselves: the browser's own form would come before theirs.
_QUIET_CHALLENGE = {"www-authenticate": 'Bearer realm="tensorflow"'}
#: Marathon would restart a scheduler that refuses it.
HEALTH = "/v1/health"
_READING = ("GET", "HEAD", "OPTIONS")


class Guard:
    """An ASGI app around another. `is_open`: whether everybody may have this path."""

    def __init__(self, app: ASGIApp, policy: Policy, is_open: Callable[[str, str], bool]) -> None:
        self._app, self._policy, self._is_open = app, policy, is_open
        #: Of wrong tokens, by address.
        self._guesses = Allowance()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        visitor = self._policy.visitor(headers, scope.get("state", {}).get("peer"))
        answer = Answered(send)
        problem = self._problem(scope, headers, visitor)
        try:
            if problem is None:
                scope["api.user"] = visitor.name
                await self._app(scope, _limited(receive), answer)
            else:
                as_json = wants_json(headers) or problem.code in (401, 429)
                response = respond(problem, as_json=as_json, headers=_more(problem, headers))
                await response(scope, receive, answer)
        finally:
            if scope["method"] not in _READING and not scope.get("api.quiet"):
                _audit(scope, visitor, answer.code)

    def _problem(self, scope: Scope, headers: dict[str, str], visitor: Visitor) -> Problem | None:
        crowded: Problem | None = scope.get("state", {}).get("crowded")
        if crowded is not None and _path(scope) != HEALTH:
            return crowded
        declared = headers.get("content-length", "0")
        if declared.isdecimal() and int(declared) > BODY_LIMIT:
            return Problem(413, f"the body may have {BODY_LIMIT} bytes at most")
        if self._is_open(scope["method"], _path(scope)):
            return None
        refusal = self._policy.refusal(scope["method"], headers, visitor)
        # Who shows nothing is asked for it; the right token is let in, for others may have the same address.
        guesses = refusal is not None and refusal.code == 401 and "authorization" in headers
        if guesses and not self._guesses.take(address_of(scope)):
            return Problem(429, "too many wrong tokens from this address: ask again later")
        return refusal


class Answered:
    """Sends, with headers of ours, and notes the status."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.code = 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.code = message["status"]
            given: list[Any] = list(message.get("headers", ()))
            names = {name.lower() for name, _ in given}
            more = [(name, value) for name, value in SECURITY.items() if name not in names]
            message = {**message, "headers": [*given, *more]}
        # A client that does not read is not waited for: its connection is given up.
        await asyncio.wait_for(self._send(message), STALLED)


def _more(problem: Problem, headers: dict[str, str]) -> dict[str, str]:
    if problem.code != 401:
        return {}
    return _QUIET_CHALLENGE if headers.get("x-requested-with") == "XMLHttpRequest" else _CHALLENGE


def _path(scope: Scope) -> str:
    """As the table has it: without the prefix that the app is mounted at."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", ""))


def _limited(receive: Receive) -> Receive:
    """A body that does not tell its length is counted."""
    seen = 0

    async def counted() -> Message:
        nonlocal seen
        message = await receive()
        seen += len(message.get("body", b""))
        if seen > BODY_LIMIT:
            raise HTTPException(413, f"the body may have {BODY_LIMIT} bytes at most")
        return message

    return counted


def _audit(scope: Scope, visitor: Visitor, code: int) -> None:
    client = scope.get("client")
    query = scope.get("query_string", b"").decode("latin-1")
    what = f"{scope['method']} {scope['path']}{f'?{query}' if query else ''}"
    place = client[0] if client else "somewhere"
    # A pod of that name is there, and its task has the same.
    pod = scope.get("path_params", {}).get("pod") if code not in (404, 0) else None
    facts = {} if pod is None else {"task": _one_line(pod)}
    log.info("audit: %s by %s from %s: %s", _one_line(what), visitor.name, place, code or "cut off", extra=facts)


def _one_line(text: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in text[:500])
