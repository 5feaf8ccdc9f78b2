"""The table of everything that the API answers. docs/api.md tells it to people, /v1/openapi.json to programs."""

from __future__ import annotations

from .backend import Backend
from .endpoint import Endpoint
from .kept import kept_files
from .table_ours import ours
from .table_pods import pod_commands
from .table_sdk import commands, sdk
from .table_secrets import secret_commands


def endpoints(backend: Backend) -> tuple[Endpoint, ...]:
    """Rows in the order in which they are tried: what has a name of its own before what takes any."""
    commanded = (*commands(backend), *pod_commands(backend), *secret_commands(backend))
    return (*sdk(), *commanded, *kept_files(backend), *ours(backend))
