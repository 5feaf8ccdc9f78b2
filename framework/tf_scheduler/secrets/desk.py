"""Answers executors that ask for their secrets: the loop decides and stores, then the values are looked up.

executor -> API thread -> `Desk.give` -> event -> loop: decided, stored -> `Desk.observe` -> values -> answer
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass, field
from typing import Any

from tf_scheduler.errors import SecretError, SourceUnavailableError
from tf_scheduler.model.effects import Decision
from tf_scheduler.model.events import Event, SecretsRequested
from tf_scheduler.model.ids import TaskId, name_of
from tf_scheduler.model.plan import Answer, Reply
from tf_scheduler.model.secrets import SecretSpec
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.model.task import TaskRecord
from tf_scheduler.rate_limit import RateLimiter, client_key

from .sources import SecretSources

log = logging.getLogger(__name__)

#: Seconds that the loop may take to decide.
DECISION_TIMEOUT = 10.0
#: HTTP statuses. 424: the source does not have it, the executor need not ask again.
OK, BAD_REQUEST, FORBIDDEN, MISSING, RATE_LIMITED, UNAVAILABLE = 200, 400, 403, 424, 429, 503
#: Longest task id, token or nonce that is looked at.
_MAX_LENGTH = 400
_FIELDS = ("task_id", "token", "nonce")

DecodeEvent = Callable[[], Event | None]


@dataclass(slots=True)
class SecretService:
    """`put` is the loop's inbox, `given` says which secrets a launch gets now."""

    put: Callable[[DecodeEvent], None]
    sources: SecretSources
    given: Callable[[SchedulerState, TaskRecord], tuple[SecretSpec, ...]]
    #: Whether a question shows the token of its launch.
    is_known: Callable[[SchedulerState, SecretsRequested], bool]
    patience: float = DECISION_TIMEOUT
    rate_limiter: RateLimiter = field(default_factory=RateLimiter)
    #: Request id -> where the decision goes.
    _waiting: dict[int, Future[Decision]] = field(default_factory=dict)
    #: As the loop last left it.
    _state: SchedulerState | None = None

    def give(self, document: Any, address: str) -> tuple[int, Any]:
        """HTTP status and answer: {"secrets": [{"env", "file", "value", "reload"}]}, or a sentence. May take long."""
        if wrong := _wrong(document):
            return BAD_REQUEST, wrong
        event = SecretsRequested(TaskId(document["task_id"]), document["token"], document["nonce"], address)
        if not self.rate_limiter.acquire(self._asker(event)):
            return RATE_LIMITED, f"too many questions from {address}: ask again later"
        waiting: Future[Decision] = Future()
        self._waiting[event.request_id] = waiting
        self.put(lambda: event)
        try:
            decision = waiting.result(self.patience)
        except FutureTimeoutError:
            return UNAVAILABLE, "the scheduler does not decide now: it starts, stops, or waits for its store"
        finally:
            self._waiting.pop(event.request_id, None)
        if decision.answer is None or not decision.answer.is_ok:
            return _no(decision.answer)
        return self._values(decision, event)

    def observe(self, event: Event, decision: Decision) -> None:  # noqa: ARG002 - an Observer
        """The loop has decided and stored."""
        self._state = decision.state
        waiting = self._waiting.get(decision.request_id)
        if waiting is not None and not waiting.done():
            waiting.set_result(decision)

    def _asker(self, event: SecretsRequested) -> tuple[str, str]:
        """Whoever shows a good token does not wait for those at its address who have none."""
        known = self._state is not None and self.is_known(self._state, event)
        return client_key(event.address), event.task_id if known else ""

    def _values(self, decision: Decision, event: SecretsRequested) -> tuple[int, Any]:
        record = decision.state.stored.tasks[name_of(event.task_id)]
        try:
            found = [_item(item, self.sources) for item in self.given(decision.state, record)]
        except SecretError as error:
            log.warning("%s does not get its secrets: %s", record.name, error)
            return UNAVAILABLE if isinstance(error, SourceUnavailableError) else MISSING, str(error)
        return OK, {"secrets": found}


def _no(answer: Answer | None) -> tuple[int, str]:
    if answer is None:
        return FORBIDDEN, ""
    return UNAVAILABLE if answer.reply is Reply.RETRY else FORBIDDEN, answer.message


def _wrong(document: Any) -> str:
    if not isinstance(document, Mapping) or set(document) != set(_FIELDS):
        return f"must be a JSON object with {', '.join(_FIELDS)}"
    texts = all(isinstance(document[name], str) and _is_plain(document[name]) for name in _FIELDS)
    return (
        "" if texts else f"each of {', '.join(_FIELDS)} must be a text of 1 to {_MAX_LENGTH} printable ASCII characters"
    )


def _is_plain(text: str) -> bool:
    """Others have no digest: half a surrogate pair, which JSON can hold, cannot be encoded."""
    return 0 < len(text) <= _MAX_LENGTH and text.isascii() and text.isprintable()


def _item(item: SecretSpec, sources: SecretSources) -> Mapping[str, str | bool]:
    value = sources.value(item.source)
    if item.env and not item.file:
        # What editors and `echo` leave at the end of a file is no part of a variable.
        value = value.removesuffix(b"\n").removesuffix(b"\r")
    return {"env": item.env, "file": item.file, "value": base64.b64encode(value).decode(), "reload": item.reloads}
