"""Routes: HTTP in, a view of the snapshot out."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from . import views
from .overview import overview, to_json
from .views import Snapshot, View

#: Called for every request: the state as it is then.
Look = Callable[[], Snapshot]

_NO_BODY = (204, 304)


def create_app(look: Look) -> Starlette:
    """The API over whatever `look` gives."""

    async def plans(_request: Request) -> Response:
        return _response(views.plans(look()))

    async def plan(request: Request) -> Response:
        return _response(views.plan(look(), request.path_params["name"]))

    async def health(request: Request) -> Response:
        return _response(views.health(look(), verbose=request.query_params.get("verbose") == "true"))

    async def framework_id(_request: Request) -> Response:
        return _response(views.framework_id(look()))

    async def overall(_request: Request) -> Response:
        return _response(View(to_json(overview(look().state))))

    return Starlette(
        routes=[
            Route("/v1/plans", plans),
            Route("/v1/plans/{name}", plan),
            Route("/v1/health", health),
            Route("/v1/state/frameworkId", framework_id),
            Route("/v1/tf/overview", overall),
        ]
    )


def _response(view: View) -> Response:
    """The SDK's habits: JSON with an indent of 2, errors as plain text. HTTP allows some codes no body."""
    if view.code in _NO_BODY:
        return Response(status_code=view.code)
    if isinstance(view.body, str):
        return PlainTextResponse(view.body, view.code)
    return Response(_json(view.body), view.code, media_type="application/json")


def _json(body: Any) -> str:
    return json.dumps(body, indent=2)
