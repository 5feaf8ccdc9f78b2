"""The table of everything that the API answers. docs/api.md tells it to people, /v1/openapi.json to programs."""

from __future__ import annotations

from typing import Any

from .backend import Backend
from .endpoint import Endpoint
from .overview import overview, to_json
from .table_ours import ours
from .table_sdk import commands, sdk
from .views.base import View

#: What `local run` asks, again and again.
_OVERVIEW = Endpoint(
    "GET",
    "/v1/tf/overview",
    "Plan, tasks, progress and result at a glance.",
    {200: dict[str, Any]},
    look=lambda snapshot, _given: View(to_json(overview(snapshot.state))),
    ours=True,
)


def endpoints(backend: Backend) -> tuple[Endpoint, ...]:
    """Rows in the order in which they are tried: what has a name of its own before what takes any."""
    return (*sdk(), *commands(backend), _OVERVIEW, *ours(backend))
