"""Requests of `doctor`, with limits on time and size."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPException, InvalidURL
from typing import Any

from dcos_command.transport import TimeLimit
from mesos_client.http import MALFORMED, clock_offset

from .facts import is_loopback
from .files import TIMEOUT

_MAX_ANSWER = 256 << 20  # bytes
_ANSWER_TIMEOUT = 2 * TIMEOUT


class FactError(Exception):
    """A fact cannot be gathered; the text is the reason."""


@contextmanager
def reading(server: str) -> Iterator[None]:
    """Raise FactError if an answer does not have the expected form."""
    try:
        yield
    except MALFORMED as error:
        raise FactError(f"{server} returned an invalid answer") from error


@dataclass(frozen=True, slots=True)
class Access:
    """Base URL of a server, and how to authenticate."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    context: ssl.SSLContext | None = None


@dataclass(frozen=True, slots=True)
class ServerReply:
    """Status, clock offset in seconds, body, and target of a redirect."""

    status: int
    clock_offset: float | None
    body: bytes
    location: str = ""

    def json(self, server: str) -> Any:
        """Return the body of a successful answer. Raises FactError."""
        if self.status in (401, 403):
            raise FactError(f"{server} requires a login (HTTP {self.status})")
        if self.status != 200:
            raise FactError(f"{server} returned HTTP {self.status}")
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError) as error:
            raise FactError(f"{server} did not return JSON") from error


def send(access: Access, path: str, body: bytes | None = None, limit: int = _MAX_ANSWER) -> ServerReply:
    """Send a GET, or with a body a POST. Raises FactError without an answer."""
    headers = {"Accept": "application/json", **access.headers}
    headers |= {} if body is None else {"Content-Type": "application/json"}
    try:
        request = urllib.request.Request(f"{access.url}{path}", body, headers)  # noqa: S310 - http(s): the callers
        with TimeLimit(_ANSWER_TIMEOUT) as time_limit, _open(request, time_limit.handler(access.context)) as response:
            date, status = response.headers.get("Date"), int(response.status)
            # The header has whole seconds, rounded down.
            offset = clock_offset(date)
            offset = None if offset is None else offset + 0.5
            return ServerReply(status, offset, response.read(limit), response.headers.get("Location", ""))
    except (OSError, HTTPException, ValueError) as error:
        if isinstance(error, (ValueError, InvalidURL)) and not isinstance(error, OSError):
            raise FactError(f"{access.url!a}: invalid address or token") from error
        reason = getattr(error, "reason", error)
        raise FactError(f"{access.url} does not answer: {getattr(reason, 'strerror', None) or reason}") from error


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Return redirects as answers: urllib would send the token to the other host."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _open(request: urllib.request.Request, handler: urllib.request.BaseHandler) -> Any:
    handlers: list[urllib.request.BaseHandler] = [handler, _NoRedirect()]
    if is_loopback(request.full_url):
        handlers.append(urllib.request.ProxyHandler({}))  # a proxy cannot reach this machine
    try:
        return urllib.request.build_opener(*handlers).open(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        return error
