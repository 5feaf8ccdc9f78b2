"""Answer executors' requests for secrets after the loop approves.

executor -> API thread -> `give` -> event -> loop: decided, stored -> `observe` -> values -> answer
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
from tf_scheduler.model.plan import Reply
from tf_scheduler.model.secrets import SecretSpec
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.model.task import TaskRecord
from tf_scheduler.rate_limit import RateLimiter, client_key
from tf_scheduler.secrets.sources import SecretSources

log = logging.getLogger(__name__)

#: Timeout of the loop's decision in seconds.
DECISION_TIMEOUT = 10.0
#: HTTP statuses. 424: the source has no such value, the executor must not retry.
OK, BAD_REQUEST, FORBIDDEN, MISSING, RATE_LIMITED, UNAVAILABLE = 200, 400, 403, 424, 429, 503
#: Maximum length of a task id, token or nonce.
_MAX_LENGTH = 400
_FIELDS = ("task_id", "token", "nonce")

DecodeEvent = Callable[[], Event | None]


@dataclass(slots=True)
class SecretService:
    """Answer executors. `put`: the loop's inbox; `secrets_of`: secrets of a launch."""

    put: Callable[[DecodeEvent], None]
    sources: SecretSources
    secrets_of: Callable[[SchedulerState, TaskRecord], tuple[SecretSpec, ...]]
    #: Whether a request has the token of its launch.
    is_known: Callable[[SchedulerState, SecretsRequested], bool]
    patience: float = DECISION_TIMEOUT
    rate_limiter: RateLimiter = field(default_factory=RateLimiter)
    #: Request id -> its pending decision.
    _waiting: dict[int, Future[Decision]] = field(default_factory=dict)
    #: State after the last decision.
    _state: SchedulerState | None = None

    def give(self, document: Any, address: str) -> tuple[int, Any]:
        """Return status and {"secrets": [{"env", "file", "value", "reload"}]}. Blocks."""
        if problem := _problem(document):
            return BAD_REQUEST, problem
        event = SecretsRequested(TaskId(document["task_id"]), document["token"], document["nonce"], address)
        if not self.rate_limiter.acquire(self._client_key(event)):
            return RATE_LIMITED, f"too many requests from {address}: retry later"
        waiting: Future[Decision] = Future()
        self._waiting[event.request_id] = waiting
        self.put(lambda: event)
        try:
            decision = waiting.result(self.patience)
        except FutureTimeoutError:
            return UNAVAILABLE, "the scheduler is starting, stopping, or waiting for its store; retry later"
        finally:
            self._waiting.pop(event.request_id, None)
        answer = decision.answer
        if answer is None:
            return FORBIDDEN, ""
        if answer.reply is not Reply.OK:
            return UNAVAILABLE if answer.reply is Reply.RETRY else FORBIDDEN, answer.message
        record = decision.state.stored.tasks[name_of(event.task_id)]
        try:
            secrets = [_item(item, self.sources) for item in self.secrets_of(decision.state, record)]
        except SecretError as error:
            log.warning("secrets of %s not delivered: %s", record.name, error)
            return UNAVAILABLE if isinstance(error, SourceUnavailableError) else MISSING, str(error)
        return OK, {"secrets": secrets}

    def observe(self, event: Event, decision: Decision) -> None:  # noqa: ARG002 - an Observer
        """Observe the loop: pass a stored decision to the request that waits for it."""
        self._state = decision.state
        waiting = self._waiting.get(decision.request_id)
        if waiting is not None and not waiting.done():
            waiting.set_result(decision)

    def _client_key(self, event: SecretsRequested) -> tuple[str, str]:
        """Return the rate limit's key: a launch with a valid token has a key of its own."""
        is_known = self._state is not None and self.is_known(self._state, event)
        return client_key(event.address), event.task_id if is_known else ""


def _problem(document: Any) -> str:
    if not isinstance(document, Mapping) or set(document) != set(_FIELDS):
        return f"the request must be a JSON object with {', '.join(_FIELDS)}"
    if all(_is_plain(document[name]) for name in _FIELDS):
        return ""
    return f"each of {', '.join(_FIELDS)} must be a text of 1 to {_MAX_LENGTH} printable ASCII characters"


def _is_plain(text: Any) -> bool:
    """Whether `text` has a valid length and no lone surrogate, which JSON allows."""
    return isinstance(text, str) and 0 < len(text) <= _MAX_LENGTH and text.isascii() and text.isprintable()


def _item(item: SecretSpec, sources: SecretSources) -> Mapping[str, str | bool]:
    value = sources.value(item.source)
    if item.env and not item.file:
        # A variable does not include the line end that editors and `echo` add to a file.
        value = value.removesuffix(b"\n").removesuffix(b"\r")
    return {"env": item.env, "file": item.file, "value": base64.b64encode(value).decode(), "reload": item.reloads}
