"""Proxy for services, which streams events without buffering."""

from __future__ import annotations

import http.client
from collections.abc import Iterator, Mapping

from starlette.responses import PlainTextResponse, Response, StreamingResponse

from .connecting import connection_to
from .mesos import TIMEOUT, end_to_end

_STREAM = "text/event-stream"


def passed_on(scheme: str, address: str, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Response:
    """Forward the request to "IP:PORT"; 502 if it does not answer."""
    connection = connection_to(scheme, address, TIMEOUT)
    try:
        connection.request(method, path, body or None, end_to_end(headers))
        answer = connection.getresponse()
        found = end_to_end(dict(answer.getheaders()))
        if _STREAM in found.get("content-type", ""):
            return StreamingResponse(_lines(connection, answer), answer.status, found)
        content = answer.read()
    except (OSError, http.client.HTTPException) as error:
        connection.close()
        return PlainTextResponse(f"{address} does not answer: {error}", 502)
    connection.close()
    return Response(content, answer.status, found)


def _lines(connection: http.client.HTTPConnection, answer: http.client.HTTPResponse) -> Iterator[bytes]:
    try:
        while line := answer.readline():
            yield line
    except (OSError, http.client.HTTPException):
        return  # the service has ended; its clients retry
    finally:
        connection.close()
