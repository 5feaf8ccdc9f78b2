"""Types and errors of requests to Mesos; helpers for JSON and base64."""

from __future__ import annotations

import base64
import json
import time
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, Mapping

#: What reading JSON of another form than expected raises.
MALFORMED = (AttributeError, LookupError, OverflowError, RecursionError, TypeError, ValueError)
#: Maximum seconds to connect. The kernel repeats the first packet after 1 s and 3 s; then try another master.
CONNECT_TIMEOUT = 4.0


class TransportError(Exception):
    """The answer is missing or broken. The message omits the content of the request."""


class NotSentError(TransportError):
    """The request was certainly not sent."""


@dataclass(frozen=True)
class HttpRequest:
    """One POST; `timeout`: seconds for each socket wait up to the response head."""

    url: str
    headers: Mapping[str, str]
    body: bytes
    timeout: float


def clock_offset(date: str | None) -> float | None:
    """Return the seconds by which a Date header is ahead of now; None if unknown."""
    try:
        return parsedate_to_datetime(date).timestamp() - time.time() if date else None
    except (TypeError, ValueError, OverflowError):  # TypeError: Python before 3.10
        return None


JSON_HEADERS = {"Content-Type": "application/json", "Accept": "application/json"}


@dataclass(frozen=True)
class Subscription:
    """URL and stream id for the calls during one subscription."""

    url: str
    #: Mesos-Stream-Id header of the response; agents do not send one.
    stream_id: str

    @property
    def headers(self) -> dict[str, str]:
        """A new dict of the headers that bind a call to the subscription."""
        return {"Mesos-Stream-Id": self.stream_id} if self.stream_id else {}


def encode(body: Mapping[str, Any]) -> bytes:
    return json.dumps(body).encode()


def encode_data(data: bytes) -> str:
    """Encode a `bytes` field of Mesos' JSON as base64."""
    return base64.b64encode(data).decode()


def decode_data(text: str) -> bytes:
    """Decode a base64 field. Raises ValueError."""
    return base64.b64decode(text, validate=True)
