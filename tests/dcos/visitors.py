"""Access to the local DC/OS: local programs, but not pages of other sites.

It takes no token: who has a login on this machine can register with the cluster's Mesos, too
(docs/evidence/security.md).
"""

from __future__ import annotations

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from tf_scheduler.api.http.auth import Policy
from tf_scheduler.api.http.endpoint import Principal

from .task import HOST

_POLICY = Policy(loopback_only=HOST == "127.0.0.1")
_ANYONE = Principal("anyone", can_read=True, can_write=True)
_JSON = ("application/json", "+json")


def refuse_pages(app: ASGIApp) -> ASGIApp:
    """Middleware: 403 for foreign names in `Host`, and for cross-site writes."""

    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        problem = _POLICY.check_host(headers) or _POLICY.authorize(scope["method"], headers, _ANYONE)
        if problem is None:
            await app(scope, receive, send)
        else:
            answer = JSONResponse({"message": problem.message}, problem.code)
            await answer(scope, receive, send)

    return guarded


def is_json(content_type: str) -> bool:
    """Whether a cross-site request of this type needs a preflight (W3C Fetch, CORS)."""
    return content_type.partition(";")[0].strip().lower().endswith(_JSON)
