"""Answers -> bytes. The SDK's habits: JSON with an indent of 2, errors as plain text; ours: docs/api.md."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from .views.base import Answer, Problem

JSON, TEXT = "application/json", "text/plain; charset=utf-8"
#: HTTP allows them no body.
_NO_BODY = (204, 205, 304)
#: This client has too much of something; when to ask again, in seconds.
TOO_MANY, RETRY_AFTER = 429, 5


def respond(answer: Answer, *, as_json: bool, headers: Mapping[str, str] | None = None) -> Response:
    """`as_json`: errors, too."""
    if answer.code == TOO_MANY:
        headers = {**(headers or {}), "retry-after": str(RETRY_AFTER)}
    content, kind = rendered(answer, as_json=as_json)
    if kind is None:
        return Response(status_code=answer.code, headers=headers)
    return Response(content, answer.code, headers, kind)


def rendered(answer: Answer, *, as_json: bool) -> tuple[bytes, str | None]:
    """Body and media type; None: an answer without a body."""
    if answer.code in _NO_BODY:
        return b"", None
    if isinstance(answer, Problem):
        return (to_json(answer.body), JSON) if as_json else (answer.message.encode(), TEXT)
    return (answer.body.encode(), TEXT) if isinstance(answer.body, str) else (to_json(answer.body), JSON)


def to_json(body: Any) -> bytes:
    """Indented; texts as they are. Raise ValueError for numbers that JSON does not have."""
    return json.dumps(body, indent=2, allow_nan=False, ensure_ascii=False).encode(errors="replace")


def wants_json(headers: Mapping[str, str]) -> bool:
    """Whether the client says so itself; `*/*` says nothing."""
    return JSON in headers.get("accept", "")
