"""Sends calls one after the other and turns each outcome into a value."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass
from typing import Any, Callable, Mapping

from mesos_client.results import Failed, NotConnected, Rejected, SendResult, Sent
from mesos_client.transport import MAX_TEXT, Reply, Request, Transport, TransportError

JSON_HEADERS = {"Content-Type": "application/json", "Accept": "application/json"}


@dataclass(frozen=True)
class Session:
    """One subscription: where calls go while it lasts."""

    url: str
    #: Mesos-Stream-Id of the subscription's answer; agents send none.
    stream_id: str

    @property
    def headers(self) -> dict[str, str]:
        """What ties a call to the subscription. A new dict each time: nothing is shared between calls or drivers."""
        return {"Mesos-Stream-Id": self.stream_id} if self.stream_id else {}


class CallSender:
    """Keeps the order of calls: one at a time, each answered before the next is sent."""

    def __init__(self, transport: Transport, timeout: float) -> None:
        self._transport = transport
        self._timeout = timeout
        self._turn = threading.Lock()

    def send(
        self,
        session: Session,
        present: Callable[[], Session | None],
        headers: Mapping[str, str],
        body: Mapping[str, Any],
    ) -> SendResult:
        """POST `body`. Waits at most `timeout` seconds for its turn, and as long again for the answer.

        Nothing is sent when `session` is not the `present` one any more when the turn comes.
        """
        request = Request(session.url, {**JSON_HEADERS, **headers, **session.headers}, encode(body), self._timeout)
        if not self._turn.acquire(timeout=self._timeout):
            return Failed("earlier calls are still waiting for their answers")
        try:
            return _result(self._transport.post(request)) if present() is session else NotConnected()
        except TransportError as error:
            return Failed(str(error))
        finally:
            self._turn.release()


def encode(body: Mapping[str, Any]) -> bytes:
    """As the body of a POST."""
    return json.dumps(body).encode()


def _result(reply: Reply) -> SendResult:
    if not 200 <= reply.status < 300:
        return Rejected(reply.status, reply.text[:MAX_TEXT])
    try:
        answer = json.loads(reply.body)
    except ValueError:
        return Sent()
    return Sent(answer) if isinstance(answer, dict) else Sent()
