"""Requests of `doctor`, with limits on time and size."""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from mesos_client.http import MALFORMED, clock_offset
from tf_executor.contract.http import HttpClient, HttpReply, NoReplyError

from .files import TIMEOUT

_ANSWER_TIMEOUT = 2 * TIMEOUT


class FactError(Exception):
    """A fact cannot be gathered. The text of the error is the reason."""


@contextmanager
def reading(server: str) -> Iterator[None]:
    """Raise FactError if the block finds that an answer has an unexpected form."""
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


def send(access: Access, path: str, body: bytes | None = None) -> HttpReply:
    """Send a GET, or a POST if there is a body. Raises FactError without an answer."""
    headers = {"Accept": "application/json", **access.headers}
    headers |= {} if body is None else {"Content-Type": "application/json"}
    client = HttpClient(_ANSWER_TIMEOUT, TIMEOUT, access.context, uses_proxies=True)
    try:
        return client.fetch(f"{access.url}{path}", headers, body)
    except NoReplyError as error:
        raise FactError(f"{access.url} does not answer: {error}") from error
    except ValueError as error:
        raise FactError(f"{access.url!a}: invalid address or token") from error


def offset_of(reply: HttpReply) -> float | None:
    """Return the seconds by which the server's clock is ahead; None if unknown."""
    # The header has whole seconds, rounded down.
    offset = clock_offset(reply.headers.get("Date"))
    return None if offset is None else offset + 0.5


def parse(reply: HttpReply, server: str) -> Any:
    """Return the JSON of a successful answer. Raises FactError."""
    if reply.status in (401, 403):
        raise FactError(f"{server} requires a login (HTTP {reply.status})")
    if reply.status != 200:
        raise FactError(f"{server} returned HTTP {reply.status}")
    try:
        return json.loads(reply.body)
    except (ValueError, RecursionError) as error:
        raise FactError(f"{server} did not return JSON") from error
