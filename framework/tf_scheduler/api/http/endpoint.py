"""Types of endpoints and requests; parse bodies, render answers as JSON or text."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from starlette.responses import Response

from tf_scheduler.api.views.base import NO_BODY, ApiAnswer, ApiProblem, Snapshot
from tf_scheduler.errors import SchedulerError

from .backend import Backend


class EndpointAccess(Enum):
    """Permission that an endpoint requires."""

    #: No permission: health, and endpoints with their own authentication.
    OPEN = "open"
    READ = "read"
    WRITE = "write"


#: Largest integer that every JSON parser represents exactly.
NO_MAXIMUM = 2**53


@dataclass(frozen=True, slots=True)
class QueryParameter:
    """Query parameter of an endpoint."""

    name: str
    description: str
    kind: type = str
    default: Any = None
    #: Limits of an integer, or of the length of a text.
    minimum: int = 0
    maximum: int = NO_MAXIMUM
    #: Another parameter that must be present, too.
    requires: str = ""
    #: Regular expression (ECMA-262) for the OpenAPI document; handlers validate the value themselves.
    pattern: str = ""

    def parse(self, text: str | None) -> Any:
        """Parse the parameter's text; None: its default. Raises BadRequestError."""
        if text is None:
            return self.default
        if self.kind is bool:
            if text not in ("true", "false"):
                raise BadRequestError(f"{self.name}: {text!r}: expected true or false")
            return text == "true"
        if self.kind is int:
            # int() also accepts '1_0' and digits of other scripts.
            digits = text.isascii() and text.isdecimal() and len(text) < 17
            if not digits or not self.minimum <= int(text) <= self.maximum:
                expected = f"expected an integer from {self.minimum} to {self.maximum}"
                raise BadRequestError(f"{self.name}: {text[:40]!r}: {expected}")
            return int(text)
        if len(text) < self.minimum:
            # A script with an unset variable must not select everything.
            hint = f"give a name, or omit the parameter to select every {self.name}"
            raise BadRequestError(f"{self.name}: empty; {hint}")
        return text


class BadRequestError(SchedulerError):
    """The request is invalid; it is answered with status 400."""

    kind = "bad_request"
    http_status = 400


@dataclass(frozen=True, slots=True)
class Principal:
    """Authenticated client and its permissions.

    The name of a client that may write is verified, except of an operator, who may act for every owner.
    """

    name: str
    can_read: bool
    can_write: bool
    is_operator: bool = False

    def owns(self, owner: str) -> bool:
        """Whether the client may act for the owner: it is the owner or an operator."""
        return self.is_operator or (self.can_write and self.name == owner)


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """Parsed request to an endpoint."""

    backend: Backend
    snapshot: Snapshot
    #: Path and query parameters.
    params: Mapping[str, Any]
    #: Parsed JSON, or bytes for `body_type=bytes`; None without a body.
    body: Any
    #: Header fields, names in lower case.
    headers: Mapping[str, str]
    principal: Principal

    @property
    def wants_stream(self) -> bool:
        """Whether the client asks for server-sent events."""
        return bool(self.params.get("follow")) or "text/event-stream" in self.headers.get("accept", "")


#: Pure function of the snapshot; its answers are cached until the state changes.
PureHandler = Callable[[Snapshot, Mapping[str, Any]], ApiAnswer]
#: Runs in the API's thread and must not block. A SchedulerError is answered with its `http_status`.
AsyncHandler = Callable[[ApiRequest], Awaitable[ApiAnswer | Response]]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Method and path of the API, with their handler and their documentation.

    `responses` maps a status to the type of the JSON body. `str` means plain text or an error; None means no body.
    """

    method: str
    path: str
    summary: str
    responses: Mapping[int, Any]
    view: PureHandler | None = None
    handler: AsyncHandler | None = None
    query: tuple[QueryParameter, ...] = ()
    #: Type of the JSON request body; `bytes`: form with a file; None: no body.
    body_type: Any = None
    body_optional: bool = False
    access: EndpointAccess = EndpointAccess.READ
    #: Answer errors as the DC/OS SDK does, in plain text, to clients that do not accept JSON.
    text_errors: bool = False
    #: Event names of the server-sent events, with the types of their data.
    events: Mapping[str, Any] = field(default_factory=dict)
    #: JSON Schema of path parameters, in addition to their type.
    path_schemas: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    #: Path of other endpoints -> path parameter -> JSON pointer to its value in the answer with status 200.
    links: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def parse_query(self, values: Mapping[str, str]) -> dict[str, Any]:
        """Return the value of each query parameter. Raises BadRequestError.

        Endpoints of the SDK ignore unknown parameters. An endpoint without parameters ignores all parameters.
        """
        names = [item.name for item in self.query]
        unknown = [] if self.text_errors or not names else [name for name in values if name not in names]
        if unknown:
            raise BadRequestError(f"unknown parameter {unknown[0][:40]!r}: expected {', '.join(names)}")
        return {item.name: item.parse(values.get(item.name)) for item in self.query}


JSON, TEXT = "application/json", "text/plain; charset=utf-8"
#: Default header fields of every answer.
SECURITY_HEADERS = {
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
    b"referrer-policy": b"no-referrer",
    b"content-security-policy": b"default-src 'none'; frame-ancestors 'none'",
    b"cache-control": b"no-store",
}
#: Statuses for exceeded limits, and seconds for Retry-After.
TOO_MANY_REQUESTS, UNAVAILABLE, RETRY_AFTER = 429, 503, 5


def respond(answer: ApiAnswer, *, as_json: bool, headers: Mapping[str, str] | None = None) -> Response:
    """Return the HTTP response; with `as_json`, errors are JSON instead of plain text."""
    if answer.code in (TOO_MANY_REQUESTS, UNAVAILABLE):
        headers = {**(headers or {}), "retry-after": str(RETRY_AFTER)}
    content, kind = render(answer, as_json=as_json)
    return Response(content, answer.code, headers, kind)


def render(answer: ApiAnswer, *, as_json: bool) -> tuple[bytes, str | None]:
    """Return body and media type; the media type is None without a body."""
    if answer.code in NO_BODY:
        return b"", None
    if isinstance(answer, ApiProblem):
        return (to_json(answer.body), JSON) if as_json else (answer.message.encode(), TEXT)
    return (answer.body.encode(), TEXT) if isinstance(answer.body, str) else (to_json(answer.body), JSON)


def to_json(body: Any) -> bytes:
    """Encode as indented JSON in UTF-8. Raises ValueError for NaN and infinities."""
    return json.dumps(body, indent=2, allow_nan=False, ensure_ascii=False).encode(errors="replace")


def wants_json(headers: Mapping[str, str]) -> bool:
    """Whether the Accept header names JSON explicitly; `*/*` does not count."""
    return JSON in headers.get("accept", "")


def parse_body(content: bytes) -> Any:
    """Parse a JSON body. Raises ValueError, also for a body that Mesos would reject."""
    try:
        value = json.loads(content)
        # JSON can contain lone surrogates, which cannot be encoded as UTF-8; Mesos rejects them.
        json.dumps(value, ensure_ascii=False).encode()
    except json.JSONDecodeError:
        raise
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8: invalid byte at position {error.start}") from error
    except UnicodeEncodeError as error:
        half = f"\\u{ord(error.object[error.start]):04x}"
        raise ValueError(f"lone surrogate {half}") from error
    except ValueError as error:
        raise ValueError("number with too many digits") from error
    return value
