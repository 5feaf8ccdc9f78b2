"""HTTP in, an answer out: routes from the table, requests parsed by it, answers kept until the state changes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match, Route
from starlette.types import ASGIApp

from .backend import Backend
from .board import Board
from .bodies import parsed
from .clients import address_of
from .endpoint import Access, Act, BadRequest, Call, Endpoint
from .guard import Guard
from .openapi import document
from .policy import Policy
from .respond import JSON, rendered, respond, to_json, wants_json
from .table import endpoints
from .views.base import Answer, Problem, Snapshot

#: Seconds that a client may take to send its request.
_SLOW = 30.0
#: Answers that are kept.
_KEPT = 512
#: Seconds of work that make an answer costly; it is shown for so many times as long.
_COSTLY, _AGAIN = 0.002, 50
#: What DC/OS asks of a service that is taken down, until nothing is left of it; it has no token of ours to show.
_END = ("GET", "/v1/plans/deploy")


def create_app(
    stand: Backend | Callable[[], Snapshot],
    policy: Policy | None = None,
    more: Sequence[Endpoint] = (),
    routes: Sequence[BaseRoute] = (),
    pages: Sequence[Route] = (),
) -> ASGIApp:
    """The API. `stand`: what it stands on, or only the state to show.

    `more`: further rows of the table (metrics ...). `routes`: what else is no part of the API, behind the same guard.
    `pages`: files that hold nothing of the service; everybody may have them.
    """
    backend = stand if isinstance(stand, Backend) else Backend(stand)
    board = Board(backend.look)
    table = (*endpoints(backend), *board.rows(), *more)
    kept = _Kept(backend.look)
    spec = document(table)
    about = Endpoint("GET", "/v1/openapi.json", "This API, as a document.", {200: dict[str, Any]}, act=_always(spec))
    app = Starlette(
        routes=[*(_route(row, kept) for row in (*table, about)), *board.routes(), *routes, *pages],
        exception_handlers={HTTPException: _refused},
    )
    # They would lead to an address that does not hold below a prefix.
    app.router.redirect_slashes = False
    free = {(row.method, row.path) for row in table if row.access is Access.OPEN}
    free |= {(method, page.path) for page in pages for method in page.methods or ()}

    def is_open(method: str, path: str) -> bool:
        return (method, path) in free or board.lets_in(path) or ((method, path) == _END and backend.look().uninstalling)

    return Guard(app, policy or Policy(), is_open)


def _always(body: Any) -> Act:
    content = to_json(body)

    async def give(_call: Call) -> Response:
        return Response(content, media_type=JSON)

    return give


class _Kept:
    """Answers of pure views: many clients that ask for the same cost little more than one.

    One holds until the state changes; one that was costly, for a while longer: states may change many times a second.
    """

    def __init__(self, look: Callable[[], Snapshot]) -> None:
        self._look = look
        self._snapshot: Snapshot | None = None
        #: Grows with each state that is seen; what an answer is of, without keeping that state alive.
        self._version = 0
        self._answers: dict[Any, tuple[int, float, int, bytes, str | None]] = {}

    def snapshot(self) -> Snapshot:
        """The present one."""
        now, known = self._look(), self._snapshot
        if known is None or now.state is not known.state or now.about != known.about:
            self._snapshot, self._version = now, self._version + 1
            return now
        return known

    def forget(self) -> None:
        """Who has commanded something wants to see it."""
        self._answers.clear()

    def answer(self, row: Endpoint, given: Mapping[str, Any], *, as_json: bool) -> Response:
        snapshot = self.snapshot()
        key = (row.method, row.path, tuple(given.items()), as_json)
        found = self._answers.get(key)
        if found is None or (found[0] != self._version and time.monotonic() > found[1]):
            begin = time.thread_time()
            assert row.look is not None, "asked for rows that look only"
            answer = row.look(snapshot, given)
            content, kind = rendered(answer, as_json=as_json)
            cost = time.thread_time() - begin
            until = time.monotonic() + (_AGAIN * cost if cost > _COSTLY else 0.0)
            found = (self._version, until, answer.code, content, kind)
            if len(self._answers) >= _KEPT:
                self._answers.clear()
            self._answers[key] = found
        return Response(found[3], found[2], media_type=found[4])


def _route(row: Endpoint, kept: _Kept) -> Route:
    async def serve(request: Request) -> Response:
        headers = {name.lower(): value for name, value in request.headers.items()}
        as_json = row.ours or wants_json(headers)
        try:
            given = _given(row, request)
            if row.look is not None:
                return kept.answer(row, given, as_json=as_json)
            assert row.act is not None, f"{row.path} does nothing"
            body = None if row.takes is None else await _body(row, request)
            user = request.scope.get("api.user", "")
            answer = await row.act(Call(kept.snapshot(), given, body, headers, user, address_of(request.scope)))
            if row.access is Access.WRITE:
                kept.forget()
        except BadRequest as error:
            answer = error.problem
        return answer if isinstance(answer, Response) else respond(answer, as_json=as_json)

    return Route(row.path, serve, methods=[row.method], name=f"{row.method} {row.path}")


def _given(row: Endpoint, request: Request) -> dict[str, Any]:
    query = {item.name: item.parse(request.query_params.get(item.name)) for item in row.query}
    return {**request.path_params, **query}


async def _body(row: Endpoint, request: Request) -> Any:
    try:
        content = await asyncio.wait_for(request.body(), _SLOW)
    except asyncio.TimeoutError as error:
        raise BadRequest(Problem(400, f"the body did not come within {_SLOW:g} s")) from error
    except ClientDisconnect as error:
        raise BadRequest(Problem(400, "the body is cut off")) from error
    if row.takes is bytes:
        return content
    if row.optional and not content:
        return None
    try:
        return parsed(content)
    except ValueError as error:
        raise BadRequest(Problem(400, f"Couldn't parse parameters: the body is no JSON: {error}")) from error


async def _refused(request: Request, error: Exception) -> Response:
    """Paths and methods that there are not, and what was raised on the way."""
    assert isinstance(error, HTTPException)
    problem: Answer = Problem(error.status_code, error.detail)
    headers = error.headers
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        headers = {"Allow": ", ".join(sorted(_methods(request)))}
    return respond(problem, as_json=wants_json(dict(request.headers)), headers=headers)


def _methods(request: Request) -> set[str]:
    """Of all routes of the path: each has its own only."""
    routes = (route for route in request.app.routes if route.matches(request.scope)[0] is not Match.NONE)
    return {method for route in routes for method in getattr(route, "methods", None) or ()}
