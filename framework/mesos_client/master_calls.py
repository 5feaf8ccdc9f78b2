"""Ask the leading master's operator API, without a framework."""

from __future__ import annotations

from contextlib import closing
from typing import Any, Mapping

from .credentials import Credentials, Tls
from .http import JSON_HEADERS, HttpRequest, TransportError, encode
from .masters import Leader, MasterList, parse_masters
from .results import Failed, NotConnected, SendResult
from .scheduler import OPERATOR_PATH, detector_of, exchange
from .stream import UNAUTHORIZED, authorization
from .transport import Transport, result_of

_REDIRECTS = (307, 308)
#: Attempts of one question: a redirect to the leader, new credentials, and the answer.
_ATTEMPTS = 3


class MasterCalls:
    """Client of the operator API that follows the leader; for one thread.

    `master`: as for SchedulerDriver; `timeout`: seconds for each step of a call. Raises ValueError as SchedulerDriver.
    """

    def __init__(
        self, master: str, credentials: Credentials | None = None, tls: Tls | None = None, timeout: float = 10.0
    ) -> None:
        self._scheme, self._timeout = "https" if tls else "http", timeout
        self._credentials, self._transport = credentials or Credentials(), Transport(tls, timeout)
        self._detector = detector_of(master)
        self._masters = MasterList(() if self._detector else parse_masters(master, self._scheme))
        if self._detector is not None:
            self._detector.start(self._detected)

    def ask(self, call: Mapping[str, Any]) -> SendResult:
        """Send a call such as {"type": "GET_AGENTS"} to the leader."""
        result: SendResult = NotConnected()
        for _ in range(_ATTEMPTS):
            master = self._masters.current
            if master is None:
                return result
            try:
                header = authorization(self._credentials.header())
                request = HttpRequest(master + OPERATOR_PATH, {**JSON_HEADERS, **header}, encode(call), self._timeout)
                with closing(self._transport.stream()) as stream:
                    reply, location = exchange(request, stream)
                result = result_of(reply)
                if reply.status in _REDIRECTS and location:
                    self._masters.follow(master, location)
                elif reply.status != UNAUTHORIZED or not self._credentials.renew(header.get("Authorization")):
                    return result
            except (TransportError, OSError, ValueError) as error:
                result = Failed(str(error))
                self._masters.failed(master)
        return result

    def close(self) -> None:
        """Stop following the leader."""
        if self._detector is not None:
            self._detector.stop()
        self._transport.close()

    def _detected(self, leader: Leader | None, _reason: str) -> None:
        self._masters.replace((leader.url(self._scheme),) if leader else ())
