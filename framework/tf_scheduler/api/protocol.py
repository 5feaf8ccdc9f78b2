"""One connection of the API's server: who is at its other end, and how long it may take to say what it wants."""

from __future__ import annotations

import asyncio
import ssl
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from tf_scheduler.allowance import network_of

from .guard import SECURITY
from .places import Places

#: Seconds from the connection, or from an answer, to the end of the next request's head.
PATIENCE = 20.0
#: Bytes of a request's head: the default of h11, and of uvicorn.
_MOST_HEAD = 16 * 1024


class _Http(h11.Connection):
    """h11's, which takes a request whose end somebody before us may have seen elsewhere: what is behind it is another.

    RFC 9112, 6.1: with a length and a coding, or with a coding in HTTP/1.0, it is refused, and the connection ends.
    """

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        """Raise RemoteProtocolError, as for what is no HTTP."""
        event = super().next_event()
        if isinstance(event, h11.Request):
            names = {name for name, _ in event.headers}
            if b"transfer-encoding" in names and (b"content-length" in names or event.http_version < b"1.1"):
                raise h11.RemoteProtocolError("nobody can tell where the request ends")
        return event


class Connection(H11Protocol):
    """uvicorn's, with the common name of a client certificate in the scope, and an end for those who dawdle.

    uvicorn itself waits for ever for the head of a request: a client that sends a byte a minute keeps its connection.
    One that finds no place has `crowded` in the scope, why not.
    """

    def __init__(self, places: Places, **given: Any) -> None:
        super().__init__(**given)
        self.conn = _Http(h11.SERVER, _MOST_HEAD)
        self._places = places
        self._client = ""

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._client = network_of(self.client[0]) if self.client else ""
        crowded = self._places.take(self._client, self)
        self.app_state = {**self.app_state, "peer": _common_name(transport), "crowded": crowded}
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._places.leave(self._client, self)
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        self._expect_head()
        super().on_response_complete()

    def _expect_head(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = self.loop.call_later(PATIENCE, self._overdue)

    def _overdue(self) -> None:
        if self.is_idle():
            self.cut_off()

    def send_400_response(self, msg: str) -> None:
        """As uvicorn's, with the headers that every answer has."""
        headers = [*SECURITY.items(), (b"content-type", b"text/plain; charset=utf-8"), (b"connection", b"close")]
        for event in (h11.Response(status_code=400, headers=headers), h11.Data(data=msg.encode()), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def is_idle(self) -> bool:
        """It has asked nothing, or nothing more."""
        return self.cycle is None or self.cycle.response_complete

    def cut_off(self) -> None:
        """At once."""
        self.transport.abort()


def _common_name(transport: asyncio.Transport) -> str | None:
    """Of a certificate that the handshake has verified; None: there is none."""
    connection: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
    certificate: Any = None if connection is None else connection.getpeercert()
    if not certificate:
        return None
    names = [value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"]
    return names[0] if names else ""
