"""Bounded queue of calls to Mesos, sent in order by a thread of its own.

The loop only enqueues, so a slow master does not delay it. Results come back as events. A call is enqueued only after
its decision is stored. A call that is lost with this process is repaired like a call that did not reach Mesos.

    accepted                    nothing; after a refusal CallsAccepted
    refused (HTTP status)       CallFailed; subscribe again, at most every 15 s
    not answered                CallFailed; send it again (not ACCEPT, TEARDOWN); after three in a row subscribe again
    its subscription has ended  not sent; CallFailed for an ACCEPT, so that its launches end

A new subscription voids all offers, and the scheduler then repeats what is missing: RECONCILE, KILL, REVIVE.
"""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

from mesos_client.backoff import Backoff
from mesos_client.results import Failed, NotConnected, Rejected, SendResult
from tf_scheduler.model import events
from tf_scheduler.model.effects import Accept, Acknowledge, Call, Kill, ShutdownExecutor, Teardown

#: An event in the inbox, decoded later in the runner's thread.
DecodeEvent = Callable[[], events.Event | None]

#: Maximum number of waiting calls. One decision may stop each of 10,000 tasks, and acknowledge as many updates.
MAX_CALLS = 50_000
#: Calls in a row without an answer after which the driver subscribes again: 30 s with a call timeout of 10 s.
MAX_UNANSWERED = 3
#: Delay after an unanswered call. It grows with new subscriptions, too: calls may fail at once while the stream lives.
RETRY = Backoff(first=0.25, maximum=10.0)
#: Minimum seconds between two subscriptions because calls were lost.
RESUBSCRIBE_INTERVAL = 15.0
#: Calls that the scheduler repeats until they have an effect: one in the queue is enough.
_REPEATED = Kill | Acknowledge | ShutdownExecutor | Teardown


@dataclass(frozen=True, slots=True)
class QueuedCall:
    """A call, its JSON, and the number of the subscription in which it was decided."""

    call: Call
    body: Mapping[str, Any]
    subscription: int


class Outbox:
    """Queue of calls with a sending thread. Only the runner's thread adds and closes.

    Args:
        send: Sends a call and waits for the answer.
        resubscribe: Subscribes again for a reason; returns False if the subscription with this number has ended.
        put: Enqueues an event for the runner.
        check_leadership: Raises if another scheduler may lead; then nothing is sent any more.
        max_calls: Maximum number of waiting calls.
    """

    def __init__(
        self,
        send: Callable[[QueuedCall], SendResult],
        resubscribe: Callable[[int, str], bool],
        put: Callable[[DecodeEvent], None],
        check_leadership: Callable[[], None],
        max_calls: int = MAX_CALLS,
    ) -> None:
        self._send, self._resubscribe, self._put = send, resubscribe, put
        self._check_leadership, self._max_calls = check_leadership, max_calls
        self._changed = threading.Condition()
        self._queue: deque[QueuedCall] = deque()
        self._repeated: set[tuple[Call, int]] = set()
        self._closing, self._is_sending = False, False
        #: Why the driver is to subscribe again, since calls of this subscription were lost; empty: it is not.
        self._lost, self._lost_of = "", 0
        #: Whether the calls in the queue are sent first.
        self._overflowed = False
        self._resubscribed_at = -RESUBSCRIBE_INTERVAL
        #: Subscription that was given up: its calls are not sent any more.
        self._void = -1
        self._unanswered, self._is_refused = 0, False
        self._thread = threading.Thread(target=self._run, name="mesos-calls", daemon=True)

    def __len__(self) -> int:
        """Return the number of calls that are waiting to be sent or answered."""
        return len(self._queue) + self._is_sending

    def start(self) -> None:
        self._thread.start()

    def add(self, item: QueuedCall) -> None:
        """Enqueue a call without waiting.

        A full queue does not block the loop, whose events would pile up. Instead, the call is reported as not sent.
        After the queue has been sent, a new subscription repeats what is missing; a slow master still makes progress.
        TEARDOWN is always accepted.
        """
        call = item.call
        with self._changed:
            if isinstance(call, _REPEATED) and (call, item.subscription) in self._repeated:
                return
            if is_full := len(self._queue) >= self._max_calls and not isinstance(call, Teardown):
                is_first, self._overflowed = not self._overflowed, True
                self._lost, self._lost_of = f"{self._max_calls} calls were waiting", item.subscription
            else:
                self._queue.append(item)
                if isinstance(call, _REPEATED):
                    self._repeated.add((call, item.subscription))
            self._changed.notify()
        if is_full and (is_first or isinstance(call, Accept)):
            self._report(call, f"{self._max_calls} calls are waiting for answers of the master")

    def close(self, timeout: float) -> None:
        """Wait up to `timeout` seconds for the thread to send all calls and end."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        if self._thread.ident is not None:
            self._thread.join(timeout)

    # For the sending thread

    def _run(self) -> None:
        try:
            while not (self._closing and not self._queue):
                if (item := self._next()) is not None:
                    self._handle(item)
                    self._is_sending = False
                self._repair()
        except Exception as error:
            # Ends the loop, as if the call had been sent there.
            self._put(partial(_fail, error))

    def _next(self) -> QueuedCall | None:
        """Await the next call; None when closing, or when a new subscription may be due."""
        with self._changed:
            if not self._queue and not self._closing:
                self._changed.wait(max(0.0, self._repair_in()) if self._lost else None)
            if not self._queue:
                return None
            # Before the call leaves the queue: a reader without the lock sees one call too many rather than too few.
            self._is_sending = True
            item = self._queue.popleft()
            if isinstance(item.call, _REPEATED):
                self._repeated.discard((item.call, item.subscription))
            return item

    def _handle(self, item: QueuedCall) -> None:
        """Send a call; without an answer, repeat it unless a repetition may do harm."""
        call = item.call
        while True:
            self._check_leadership()
            is_void = item.subscription <= self._void and not isinstance(call, Teardown)
            result = NotConnected() if is_void else self._send(item)
            if not isinstance(result, Failed):
                break
            self._unanswered += 1
            self._report(call, result.reason, may_be_done=result.may_be_done)
            if is_last := self._unanswered % MAX_UNANSWERED == 0:
                self._void = item.subscription
                reason = f"{self._unanswered} calls in a row were not answered: {result.reason}"
                self._resubscribe(item.subscription, reason)
            with self._changed:
                self._changed.wait_for(lambda: self._closing, RETRY.delay(self._unanswered - 1, random.uniform))
            if is_last or isinstance(call, Accept | Teardown):
                # TEARDOWN is repeated by the core. The launches of an ACCEPT may have begun.
                return
        if isinstance(result, NotConnected):
            if isinstance(call, Accept | Teardown):
                self._report(call, str(result))
            return
        self._unanswered = 0
        if isinstance(result, Rejected):
            self._is_refused = True
            # Offers of a refused ACCEPT or DECLINE are withheld, and a refused REVIVE is missing.
            self._lost, self._lost_of = f"Mesos refused a call: {result.status} {result.text}", item.subscription
            self._report(call, result.text, status=result.status)
        elif self._is_refused:
            self._is_refused = False
            self._put(events.CallsAccepted)

    def _report(self, call: Call, problem: str, **details: Any) -> None:
        self._put(partial(events.CallFailed, call, problem, **details))

    def _repair_in(self) -> float:
        return self._resubscribed_at + RESUBSCRIBE_INTERVAL - time.monotonic()

    def _repair(self) -> None:
        """Subscribe again if calls were lost; after an overflow, once the queue is empty."""
        if not self._lost or self._repair_in() > 0 or (self._overflowed and self._queue):
            return
        with self._changed:
            reason, self._lost, self._overflowed = self._lost, "", False
            self._void = max(self._void, self._lost_of)
        if self._resubscribe(self._lost_of, reason):
            self._resubscribed_at = time.monotonic()


def _fail(error: Exception) -> NoReturn:
    raise error
