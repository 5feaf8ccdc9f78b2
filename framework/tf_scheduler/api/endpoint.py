"""One row of the table of routes: routing, parsing and the OpenAPI document all come from it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from starlette.responses import Response

from .views.base import Answer, Problem, Snapshot


class Access(Enum):
    """Who may use an endpoint."""

    #: Everybody: health, which Marathon asks; what has an authentication of its own.
    OPEN = "open"
    READ = "read"
    WRITE = "write"


@dataclass(frozen=True, slots=True)
class Query:
    """A parameter in the query."""

    name: str
    what: str
    kind: type = str
    default: Any = None
    least: int = 0
    most: int = 2**53
    #: Of a text (ECMA-262); for the document: who parses it tells more.
    pattern: str = ""

    def parse(self, text: str | None) -> Any:
        """Its value; raise BadRequest with a sentence."""
        if text is None:
            return self.default
        if self.kind is bool:
            if text not in ("true", "false"):
                raise BadRequest(Problem(400, f"{self.name} must be true or false, not {text!r}"))
            return text == "true"
        return self._number(text) if self.kind is int else text

    def _number(self, text: str) -> int:
        # Not int(): that takes '1_0' and digits of other scripts, too.
        digits = text.isascii() and text.isdecimal() and len(text) < 17
        if not digits or not self.least <= int(text) <= self.most:
            problem = f"{self.name} must be a whole number from {self.least} to {self.most}, not {text[:40]!r}"
            raise BadRequest(Problem(400, problem))
        return int(text)


class BadRequest(Exception):  # noqa: N818 - it names the condition
    """The request cannot be taken; answered with its problem."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


@dataclass(frozen=True, slots=True)
class Call:
    """One request, parsed."""

    snapshot: Snapshot
    #: Parameters of the path and of the query, by name.
    given: Mapping[str, Any]
    #: Parsed JSON, or bytes where it takes a file; None where the endpoint takes nothing.
    body: Any
    #: Names in lower case.
    headers: Mapping[str, str]
    #: Who asks, as far as that is known: for the audit log.
    user: str = ""
    #: The address that it came from.
    client: str = ""

    @property
    def follows(self) -> bool:
        """Whether the client wants to hear what comes next, too, as server-sent events."""
        return bool(self.given.get("follow")) or "text/event-stream" in self.headers.get("accept", "")


#: A pure function of the snapshot: its answer is kept until the state changes.
Look = Callable[[Snapshot, Mapping[str, Any]], Answer]
#: Anything else. Runs in the API's thread, and must not block it.
Act = Callable[[Call], Awaitable[Answer | Response]]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """`bodies`: status -> type of the JSON body; `str`: plain text; None: no body."""

    method: str
    path: str
    what: str
    bodies: Mapping[int, Any]
    look: Look | None = None
    act: Act | None = None
    query: tuple[Query, ...] = ()
    #: Type of the JSON that it takes; `bytes`: a form with a file; None: nothing.
    takes: Any = None
    #: The body may be left out.
    optional: bool = False
    access: Access = Access.READ
    #: Errors are JSON, whatever the client accepts.
    ours: bool = False
    #: It may also answer with server-sent events: name of an event -> type of its data.
    streams: Mapping[str, Any] = field(default_factory=dict)
    #: Path parameter -> format of it, as JSON Schema has it.
    formats: Mapping[str, str] = field(default_factory=dict)
