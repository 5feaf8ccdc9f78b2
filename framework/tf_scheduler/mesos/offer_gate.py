"""Hold offers until it is known whether their agents authenticate executors.

    OFFERS -> flags of all agents known: to the loop
           -> else held, while threads read the flags of the agents; then to the loop

Only a service that delivers secrets has a gate. Other services send no requests to agents.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from http import HTTPStatus
from typing import Any

from mesos_client.credentials import Credentials, Tls
from tf_executor.contract.http import HttpClient, HttpReply, SocketHandle
from tf_scheduler.errors import SchedulerError
from tf_scheduler.model import events
from tf_scheduler.model.offer import NOT_ASKED, ExecutorLogin, authenticates_executors

from . import decode
from .decode import part

Json = Mapping[str, Any]

#: Seconds for which an answer counts; a restarted agent may have other flags.
ANSWER_SECONDS = 60.0
#: Seconds for which the answer counts that an agent does not authenticate executors, or no answer.
_REFUSED_SECONDS = 10.0
#: Agents that are asked at the same time.
_THREADS = 16


@dataclass(eq=False, slots=True)
class _HeldOffers:
    """Offers of one event, held until all their agents have answered."""

    offers: list[Json]
    #: Addresses (IP:PORT) of the agents without an answer.
    unanswered: set[str]
    #: Answers by address, kept while the offers wait for others.
    answers: dict[str, ExecutorLogin]


class OfferGate:
    """Gate that holds offers until their agents' flags are known. Thread-safe.

    `put` enqueues events; `read` returns the flags of the agent at IP:PORT.
    """

    def __init__(
        self, put: Callable[[Callable[[], events.Event | None]], None], read: Callable[[str], Mapping[str, str]]
    ) -> None:
        self._put, self._read = put, read
        self._threads = ThreadPoolExecutor(_THREADS, "agent-flags")
        self._lock = threading.Lock()
        self._held: list[_HeldOffers] = []
        #: Address -> (monotonic time until which the answer counts, answer).
        self._answers: dict[str, tuple[float, ExecutorLogin]] = {}
        self._asked: set[str] = set()

    def take(self, raw: Json) -> bool:
        """Take OFFERS, or RESCIND of a held offer; return whether the event was taken."""
        if raw.get("type") == "OFFERS" and isinstance(offers := part(raw, "offers", "offers"), list):
            self._hold(offers)
            return True
        return raw.get("type") == "RESCIND" and self._drop(part(raw, "rescind", "offer_id", "value"))

    def clear(self) -> None:
        """Drop all held offers: they are void without the connection."""
        with self._lock:
            self._held.clear()

    def close(self) -> None:
        """Drop all held offers, and send no further requests to agents."""
        self.clear()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _hold(self, offers: list[Json]) -> None:
        now = time.monotonic()
        with self._lock:
            self._answers = {key: item for key, item in self._answers.items() if now < item[0]}
            addresses = {_address(offer) for offer in offers} - {""}
            answers = {address: self._answers[address][1] for address in addresses & self._answers.keys()}
            held = _HeldOffers(offers, addresses - answers.keys(), answers)
            self._held.append(held)
            unasked = held.unanswered - self._asked
            self._asked |= unasked
            if not held.unanswered:
                self._release(held)
        for address in unasked:
            self._threads.submit(self._ask, address)

    def _drop(self, offer_id: object) -> bool:
        with self._lock:
            for held in self._held:
                left = [offer for offer in held.offers if part(offer, "id", "value") != offer_id]
                if len(left) < len(held.offers):
                    held.offers = left
                    return True
        return False

    def _ask(self, address: str) -> None:
        """Read the flags of an agent, and release the offers that waited for them."""
        try:
            login = ExecutorLogin(authenticates_executors(self._read(address)), "")
        except Exception as error:
            # Also if a login service fails: offers must not wait forever.
            login = ExecutorLogin(problem=decode.sanitize_text(str(error) or type(error).__name__))
        with self._lock:
            seconds = ANSWER_SECONDS if login.is_required else _REFUSED_SECONDS
            self._answers[address] = (time.monotonic() + seconds, login)
            self._asked.discard(address)
            for held in tuple(self._held):
                if address in held.unanswered:
                    held.unanswered.discard(address)
                    held.answers[address] = login
                if not held.unanswered:
                    self._release(held)

    def _release(self, held: _HeldOffers) -> None:
        """Enqueue offers and answers; needs the lock, so that no RESCIND overtakes them."""
        self._held.remove(held)
        if held.offers:
            answers = ((offer, held.answers.get(_address(offer))) for offer in held.offers)
            logins = {part(offer, "agent_id", "value"): answer for offer, answer in answers if answer}
            self._put(partial(_decoded, held.offers, logins))


def _decoded(offers: list[Json], logins: Mapping[object, ExecutorLogin]) -> events.Event | None:
    """Decode offers and add their agents' answers. Runs in the loop's thread."""
    event = decode.event({"type": "OFFERS", "offers": {"offers": offers}})
    if not isinstance(event, events.OffersReceived):
        return event
    return replace(
        event, offers=tuple(replace(item, login=logins.get(item.agent_id, NOT_ASKED)) for item in event.offers)
    )


def _address(offer: Json) -> str:
    """Return IP:PORT of the offer's agent; empty if it is missing or malformed."""
    address = part(offer, "url", "address")
    host, port = part(address, "ip") or part(address, "hostname"), part(address, "port")
    if not host or not port:
        return ""
    return f"[{host}]:{port}" if ":" in str(host) else f"{host}:{port}"


# --- Flags of an agent (Mesos documentation, endpoint /flags)

#: Seconds for one read from the agent, and for the whole answer.
_SOCKET_TIMEOUT, _ANSWER_TIMEOUT = 2.0, 4.0
#: Maximum size of an answer in bytes; that of Mesos 1.11 has about 10,000.
_MAX_ANSWER = 1 << 20


class AgentFlagsError(SchedulerError):
    """The flags of an agent are unknown."""

    kind = "agent_flags_unknown"
    http_status = 502


def read_flags(agent: str, credentials: Credentials | None = None, tls: Tls | None = None) -> Mapping[str, str]:
    """Return an agent's flags by name, without dashes. `agent`: `http://IP:PORT`.

    Blocks for up to 6 seconds. Credentials are sent over https only, because the agent or a listener on the network
    could use them. Raises AgentFlagsError.
    """
    try:
        is_encrypted = agent.startswith("https:")
        header = credentials.header() if credentials and is_encrypted else None
        context = (tls or Tls()).context(SocketHandle()) if is_encrypted else None
        client = HttpClient(_ANSWER_TIMEOUT, _SOCKET_TIMEOUT, context, max_bytes=_MAX_ANSWER)
        reply = client.fetch(f"{agent}/flags", {"Authorization": header} if header else {})
    except (OSError, ValueError) as error:
        raise AgentFlagsError(f"{agent}/flags does not answer: {error}") from error
    return parse_flags(f"{agent}/flags", reply)


def parse_flags(server: str, reply: HttpReply) -> Mapping[str, str]:
    """Return the flags in an agent's reply. Raises AgentFlagsError."""
    if reply.status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        raise AgentFlagsError(f"{server} returned HTTP {reply.status}: no permission to view the agent's flags")
    if reply.status != HTTPStatus.OK:
        raise AgentFlagsError(f"{server} returned HTTP {reply.status}")
    try:
        flags = json.loads(reply.body)["flags"]
        return {str(name): str(value) for name, value in flags.items()}
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise AgentFlagsError(f"{server} did not return the flags of an agent") from error
