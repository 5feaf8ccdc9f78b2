"""One HTTP request to a task, as a client: the answer is read piece by piece, and costs no thread."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass

import h11

#: Seconds until there is a connection; until the head of the answer; between two pieces of its body.
CONNECT, HEAD, SILENCE = 5.0, 60.0, 60.0
_PIECE = 64 * 1024

Headers = Sequence[tuple[str, str]]


class Unanswered(Exception):  # noqa: N818 - it names the condition
    """Nobody is there, it takes too long, or it is no HTTP; the text says which."""


@dataclass(slots=True)
class Fetched:
    """An answer, whose body is not read yet. To be closed, or its `pieces` read to the end."""

    status: int
    #: Names in lower case.
    headers: dict[str, str]
    _http: h11.Connection
    _reader: asyncio.StreamReader
    _writer: asyncio.StreamWriter

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """The body, without what chunks it. Raise Unanswered when it is cut off."""
        try:
            while isinstance(event := await _next(self._http, self._reader, SILENCE), h11.Data):
                yield bytes(event.data)
        finally:
            self.close()

    def close(self) -> None:
        """At once, whatever is still to come."""
        self._writer.transport.abort()


async def fetch(address: str, method: str, target: str, headers: Headers, body: bytes = b"") -> Fetched:
    """Ask `host:port` for `target`, a path with its query. Redirects are not followed. Raise Unanswered."""
    host, _, port = address.rpartition(":")
    try:
        connecting = asyncio.open_connection(host.strip("[]"), int(port))
        reader, writer = await asyncio.wait_for(connecting, CONNECT)
    except (OSError, asyncio.TimeoutError) as error:
        raise Unanswered(f"{address} cannot be reached: {error or 'no answer'}") from error
    try:
        http = h11.Connection(h11.CLIENT)
        own = [("host", address), ("connection", "close"), ("content-length", str(len(body)))]
        writer.write(_bytes(http, h11.Request(method=method, target=target, headers=[*own, *headers])))
        writer.write(_bytes(http, h11.Data(data=body)) + _bytes(http, h11.EndOfMessage()))
        answer = await asyncio.wait_for(_head(http, reader), HEAD)
    except BaseException as error:
        writer.transport.abort()
        if isinstance(error, asyncio.TimeoutError):
            raise Unanswered(f"{address} has not answered within {HEAD:g} s") from error
        if isinstance(error, (OSError, h11.ProtocolError)):
            raise Unanswered(f"{address} does not answer: {error}") from error
        raise
    found: dict[str, str] = {}
    for name, value in ((name.decode("ascii"), value.decode("latin-1")) for name, value in answer.headers):
        found[name] = f"{found[name]}, {value}" if name in found else value
    return Fetched(answer.status_code, found, http, reader, writer)


def _bytes(http: h11.Connection, event: h11.Event) -> bytes:
    return http.send(event) or b""


async def _head(http: h11.Connection, reader: asyncio.StreamReader) -> h11.Response:
    while not isinstance(event := await _next(http, reader, HEAD), h11.Response):
        if not isinstance(event, h11.InformationalResponse):
            raise Unanswered("the connection was closed without an answer")
    return event


async def _next(http: h11.Connection, reader: asyncio.StreamReader, patience: float) -> object:
    try:
        while (event := http.next_event()) is h11.NEED_DATA:
            http.receive_data(await asyncio.wait_for(reader.read(_PIECE), patience))
    except (OSError, asyncio.TimeoutError, h11.ProtocolError) as error:
        raise Unanswered(f"the answer is cut off: {error or 'it takes too long'}") from error
    return event
