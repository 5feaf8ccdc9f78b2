"""Endpoints of the metrics, and a counter of API requests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tf_scheduler.api.http.endpoint import ApiRequest, Endpoint
from tf_scheduler.api.views.base import ApiAnswer, View

#: Media type of Prometheus' text format.
_PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
#: Other methods count as `other`, because clients can send any.
_METHODS = ("GET", "HEAD", "OPTIONS", "POST", "PUT", "DELETE", "PATCH")


def metric_routes(prometheus: Callable[[], bytes], dropwizard: Callable[[], Any]) -> Iterator[Endpoint]:
    """Return the endpoints; both functions are called in the API's thread."""

    async def as_json(_request: ApiRequest) -> ApiAnswer:
        return View(dropwizard())

    async def as_text(_request: ApiRequest) -> Response:
        return Response(prometheus(), media_type=_PROMETHEUS)

    summary = "Metrics in Dropwizard's format: the SDK's, and the scheduler's own among the gauges."
    yield Endpoint("GET", "/v1/metrics", summary, {200: dict[str, Any]}, handler=as_json)
    summary = "Metrics in Prometheus' format."
    yield Endpoint("GET", "/v1/metrics/prometheus", summary, {200: str}, handler=as_text)


class RequestCounter:
    """ASGI middleware that calls `count` with method and status of each request; status 0: no answer was sent."""

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
