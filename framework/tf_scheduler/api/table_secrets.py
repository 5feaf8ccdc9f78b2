"""What operators command about secrets. No value of one goes through here; executors ask at a desk of their own."""

from __future__ import annotations

from collections.abc import Iterator

from tf_scheduler.model.events import RenewSecrets

from .backend import Backend
from .commanding import CODES, ask
from .endpoint import Access, Act, Call, Endpoint
from .views.base import Answer


def secret_commands(backend: Backend) -> Iterator[Endpoint]:
    """One verb."""
    what = "Have programs that run get the new values of secrets with reload now."
    yield Endpoint("POST", "/v1/tf/secrets/refresh", what, CODES, act=_refresh(backend), access=Access.WRITE)


def _refresh(backend: Backend) -> Act:
    async def act(_call: Call) -> Answer:
        return await ask(backend, RenewSecrets())

    return act
