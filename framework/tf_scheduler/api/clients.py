"""Whom a request counts for, where clients share what there is."""

from __future__ import annotations

from collections.abc import Hashable

from starlette.types import Scope

from tf_scheduler.allowance import network_of

from .policy import Policy


def line_of(scope: Scope, policy: Policy) -> tuple[Hashable, ...]:
    """Where it waits: its address, then what it may do there, then whom a proxy names.

    What comes first cannot be made up; what a header says divides the turns of one address among those that share it,
    as all do behind a proxy. Of X-Forwarded-For the last counts: that is what the nearest proxy has added.
    """
    headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
    peer = scope.get("state", {}).get("peer")
    visitor = policy.visitor(headers, peer)
    behind = headers.get("x-forwarded-for", "").rpartition(",")[2].strip()
    return address_of(scope), (peer, visitor.reads, visitor.writes), behind


def address_of(scope: Scope) -> str:
    """Of the connection."""
    client = scope.get("client")
    return network_of(client[0]) if client else ""
