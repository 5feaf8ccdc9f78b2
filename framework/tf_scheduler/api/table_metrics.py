"""Rows of the metrics, and the count of the API's own requests. What they show comes from whoever measures."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .endpoint import Act, Call, Endpoint
from .views.base import Answer, View

#: Of Prometheus' text format (Prometheus documentation, exposition formats).
_PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
#: Others count as `other`: clients make up what they like.
_METHODS = ("GET", "HEAD", "OPTIONS", "POST", "PUT", "DELETE", "PATCH")


def metrics(prometheus: Callable[[], bytes], dropwizard: Callable[[], Any]) -> Iterator[Endpoint]:
    """Both are called in the API's thread."""
    what = "Metrics, as Dropwizard writes them: the SDK's, and ours among the gauges."
    yield Endpoint("GET", "/v1/metrics", what, {200: dict[str, Any]}, act=_json(dropwizard))
    what = "Metrics for Prometheus."
    yield Endpoint("GET", "/v1/metrics/prometheus", what, {200: str}, act=_text(prometheus))


def _json(make: Callable[[], Any]) -> Act:
    async def act(_call: Call) -> Answer:
        return View(make())

    return act


def _text(make: Callable[[], bytes]) -> Act:
    async def act(_call: Call) -> Response:
        return Response(make(), media_type=_PROMETHEUS)

    return act


class Counted:
    """An ASGI app around another. `count`: told method and status of each answer; 0: nothing was answered."""

    def __init__(self, app: ASGIApp, count: Callable[[str, int], None]) -> None:
        self._app, self._count = app, count

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        code = 0

        async def counted(message: Message) -> None:
            nonlocal code
            if message["type"] == "http.response.start":
                code = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, counted)
        finally:
            method = scope["method"]
            self._count(method if method in _METHODS else "other", code)
