"""The HTTP API as an ASGI app: routing, request parsing, and caching of views."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from http import HTTPStatus
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Match, Route, compile_path
from starlette.types import ASGIApp

from tf_scheduler.errors import SchedulerError

from .http import endpoint
from .http.auth import Guard, Policy
from .http.backend import Backend
from .http.openapi import openapi_document
from .http.server import BODY_TIMEOUT
from .routes.operations import service_routes
from .routes.operator_files import file_routes
from .routes.sdk import sdk_routes
from .routes.tensorboard import TensorBoardProxy
from .views.base import ApiProblem, Snapshot

#: Maximum number of cached answers.
_MAX_CACHED = 512
#: CPU seconds from which an answer counts as expensive; an expensive answer is cached for this multiple of its cost.
_EXPENSIVE, _VALIDITY = 0.002, 50
#: DC/OS polls this path during an uninstall without a token.
_UNINSTALL_STATUS = ("GET", "/v1/plans/deploy")


def create_app(
    backend_or_snapshot: Backend | Callable[[], Snapshot],
    policy: Policy | None = None,
    more: Sequence[endpoint.Endpoint] = (),
    pages: Sequence[Route] = (),
) -> ASGIApp:
    """Return the API as an ASGI app.

    Args:
        backend_or_snapshot: The scheduler's backend, or a function that returns the state to show.
        policy: Access rules.
        more: Further endpoints, for example metrics.
        pages: Static files that need no authentication.
    """
    backend = backend_or_snapshot if isinstance(backend_or_snapshot, Backend) else Backend(backend_or_snapshot)
    board = TensorBoardProxy(backend.snapshot)
    # In matching order: fixed paths before patterns.
    table = (*sdk_routes(), *file_routes(), *service_routes(), board.endpoint(), *more)
    return app_of(table, backend, policy or Policy(), board.routes(), pages, board.is_authorized_path)


def app_of(
    table: Sequence[endpoint.Endpoint],
    backend: Backend,
    policy: Policy,
    routes: Sequence[Route] = (),
    pages: Sequence[Route] = (),
    is_authorized_path: Callable[[str], bool] = lambda _path: False,
) -> ASGIApp:
    """Return an app of endpoints and an OpenAPI document.

    Args:
        table: The endpoints, in matching order.
        backend: Parts of the process that their handlers use.
        policy: Access rules.
        routes: Further routes.
        pages: Static files that need no authentication.
        is_authorized_path: Whether a path needs no authentication because it is its own.
    """
    document = cache(lambda: endpoint.to_json(openapi_document(table)))

    async def openapi(_request: endpoint.ApiRequest) -> Response:
        return Response(document(), media_type=endpoint.JSON)

    about = endpoint.Endpoint("GET", "/v1/openapi.json", "OpenAPI document.", {200: dict[str, Any]}, handler=openapi)
    views = _ViewCache(backend.snapshot)
    app = Starlette(
        routes=[*(_route(row, backend, views) for row in (about, *table)), *routes, *pages],
        exception_handlers={HTTPException: _http_error, Exception: _server_error},
    )
    # A redirect would not contain the prefix of a proxy.
    app.router.redirect_slashes = False
    free = {(row.method, row.path) for row in table if row.access is endpoint.EndpointAccess.OPEN}
    free |= {(method, page.path) for page in pages for method in page.methods or ()}

    def is_open(method: str, path: str) -> bool:
        return (
            (method, path) in free
            or is_authorized_path(path)
            or ((method, path) == _UNINSTALL_STATUS and backend.snapshot().uninstalling)
        )

    sdk_paths = [compile_path(row.path)[0] for row in table if row.text_errors]

    def has_text_errors(path: str) -> bool:
        return any(pattern.match(path) for pattern in sdk_paths)

    return Guard(app, policy, is_open, has_text_errors)


class _ViewCache:
    """Cache of answers, valid until the state changes, or longer if expensive to make."""

    def __init__(self, look: Callable[[], Snapshot]) -> None:
        self._look = look
        self._snapshot: Snapshot | None = None
        #: Incremented for each new state; identifies a state without keeping it alive.
        self._version = 0
        self._answers: dict[Any, tuple[int, float, int, bytes, str | None]] = {}

    def snapshot(self) -> Snapshot:
        """Return the current snapshot, or the previous object if nothing has changed."""
        now, previous = self._look(), self._snapshot
        if previous is None or now.state is not previous.state or now.service_flags != previous.service_flags:
            self._snapshot, self._version = now, self._version + 1
            return now
        return previous

    def clear(self) -> None:
        """Clear the cache after a command, so that clients see its effect."""
        self._answers.clear()

    def answer(self, row: endpoint.Endpoint, params: Mapping[str, Any], *, as_json: bool) -> Response:
        snapshot = self.snapshot()
        key = (row.method, row.path, tuple(params.items()), as_json)
        cached = self._answers.get(key)
        if cached is None or (cached[0] != self._version and time.monotonic() > cached[1]):
            begin = time.thread_time()
            assert row.view is not None, f"{row.path} has no view"
            answer = row.view(snapshot, params)
            content, kind = endpoint.render(answer, as_json=as_json)
            cost = time.thread_time() - begin
            until = time.monotonic() + (_VALIDITY * cost if cost > _EXPENSIVE else 0.0)
            cached = (self._version, until, answer.code, content, kind)
            if len(self._answers) >= _MAX_CACHED:
                self._answers.clear()
            self._answers[key] = cached
        return Response(cached[3], cached[2], media_type=cached[4])


def _route(row: endpoint.Endpoint, backend: Backend, views: _ViewCache) -> Route:
    async def serve(request: Request) -> Response:
        headers = {name.lower(): value for name, value in request.headers.items()}
        as_json = request.scope["api.json_errors"]
        try:
            query = row.parse_query(request.query_params)
            params = {**request.path_params, **query}
            if row.view is not None:
                return views.answer(row, params, as_json=as_json)
            assert row.handler is not None, f"{row.path} has no handler"
            body = None if row.body_type is None else await _body(row, request)
            if isinstance(body, dict):
                request.scope["api.names"] = [*body]  # for the audit log, which must not contain values
            principal = request.scope["api.principal"]
            answer = await row.handler(endpoint.ApiRequest(backend, views.snapshot(), params, body, headers, principal))
            if row.access is endpoint.EndpointAccess.WRITE:
                views.clear()
        except SchedulerError as error:
            answer = ApiProblem(error.http_status, str(error))
        return answer if isinstance(answer, Response) else endpoint.respond(answer, as_json=as_json)

    return Route(row.path, serve, methods=[row.method], name=f"{row.method} {row.path}")


async def _body(row: endpoint.Endpoint, request: Request) -> Any:
    try:
        content = await asyncio.wait_for(request.body(), BODY_TIMEOUT)
    except asyncio.TimeoutError as error:
        raise endpoint.BadRequestError(f"request body not received within {BODY_TIMEOUT:g} s") from error
    except ClientDisconnect as error:
        raise endpoint.BadRequestError("request body incomplete") from error
    if row.body_type is bytes:
        return content
    if row.body_optional and not content:
        return None
    try:
        value = endpoint.parse_body(content)
    except ValueError as error:
        raise endpoint.BadRequestError(f"Couldn't parse parameters: invalid JSON: {error}") from error
    if value is None:
        raise endpoint.BadRequestError("Couldn't parse parameters: null is not allowed")
    return value


async def _http_error(request: Request, error: Exception) -> Response:
    """Answer requests with unknown paths or methods, and HTTP exceptions of handlers."""
    assert isinstance(error, HTTPException)
    headers = error.headers
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        routes = (route for route in request.app.routes if route.matches(request.scope)[0] is not Match.NONE)
        headers = {"Allow": ", ".join(sorted({method for route in routes for method in route.methods or ()}))}
    problem = ApiProblem(error.status_code, error.detail)
    return endpoint.respond(problem, as_json=request.scope["api.json_errors"], headers=headers)


async def _server_error(request: Request, _error: Exception) -> Response:
    """Answer a request that fails by a defect; the server logs the exception."""
    problem = ApiProblem(500, "internal error of the scheduler; see its log")
    return endpoint.respond(problem, as_json=request.scope["api.json_errors"])
