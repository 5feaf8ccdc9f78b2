"""The loop: one thread, one queue.

    inbox -> event -> core.handle -> 1. store the changes   (must succeed, else nothing has happened; `keep` does it)
                                     2. state := the new state
                                     3. make the calls       (acknowledgements among them: after the store)
                                     4. tell the outcomes

Status updates that wait in the inbox together are a burst: decided one by one, stored in one transaction, and what the
plans make of them is decided once, with the last.

Store before you act, acknowledge after you store. When the store fails, the exception ends the process: state and
Mesos are as before the event, and the next start recovers.
"""

from __future__ import annotations

import logging
import queue
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from .core.deadlines import next_deadline
from .core.reduce import apply
from .core.scheduler import handle
from .interfaces import Driver, Observer
from .model.effects import Decision, Outcome, Teardown
from .model.events import (
    Event,
    ExecutorFailed,
    ProgressReported,
    ResetRequested,
    StatusUpdated,
    StopRequested,
    Tick,
)
from .model.spec import ServiceSpec
from .model.state import SchedulerState
from .store.interface import Leadership, StateStore, Write
from .store.keeping import Keep, alone
from .store.records import changes, writes
from .telling.facts import told

log = logging.getLogger(__name__)

#: Decoded in the loop's thread: a malformed message raises here, not inside the driver.
Thunk = Callable[[], Event | None]

#: `core.handle`, or what does the same and measures it.
Decide = Callable[[SchedulerState, Event, float, Callable[[], str]], Decision]

#: Told of each point where the process may die: ("before" | "after", "store" | a call's kind | "outcomes").
Checkpoint = Callable[[str, str], None]


#: So many events are stored together at most: then it is time to act.
BURST = 500


def _pass(_moment: str, _what: str) -> None:
    """Go on."""


def unique() -> str:
    """A new id, unique for ever."""
    return str(uuid.uuid4())


def restore(spec: ServiceSpec, store: StateStore) -> SchedulerState:
    """The state that the scheduler before us left."""
    return apply(SchedulerState(spec), *changes(store.load()))


class Runner:
    """Owns the state. `state` may be read from any thread: it is an immutable value, swapped whole.

    When the `leadership` (None: nobody else could have it) is lost, nothing is sent any more, and `run` raises
    LeadershipLost. `checkpoint` is for tests: what it raises ends the loop at that very point.
    """

    def __init__(
        self,
        state: SchedulerState,
        store: StateStore,
        *,
        clock: Callable[[], float] = time.time,
        new_id: Callable[[], str] = unique,
        observers: Iterable[Observer] = (),
        leadership: Leadership | None = None,
        decide: Decide = handle,
        checkpoint: Checkpoint = _pass,
        keep: Keep = alone,
    ) -> None:
        self.state = state
        self._store = store
        self._leadership = leadership
        self._clock, self._new_id = clock, new_id
        self._observers = tuple(observers)
        self._decide, self._decisions = decide, 0
        self._checkpoint, self._keep = checkpoint, keep
        self._aborted, self._teardown, self._stop = False, False, ""
        self._inbox: queue.SimpleQueue[Thunk] = queue.SimpleQueue()
        #: Taken from the inbox, and to be handled next.
        self._next: Event | None = None
        if leadership is not None:
            leadership.on_lost(lambda _: self.put(leadership.check))

    def put(self, thunk: Thunk) -> None:
        """Enqueue an event, from any thread."""
        self._inbox.put(thunk)

    def request_stop(self, reason: str) -> None:
        """Ask for a graceful end, from any thread; before `run`: before anybody connects, and a framework is made."""
        self._stop = reason
        self.put(lambda: StopRequested(reason))

    def abort(self, *, teardown: bool = False) -> None:
        """Leave the loop at once, from any thread: the tasks go on, and the next start takes them over.

        With `teardown` Mesos is asked to end them instead; nobody waits for that.
        """
        self._aborted, self._teardown = True, teardown
        self.put(lambda: None)

    def forget(self) -> None:
        """Erase what is stored, after `run`: nothing of the service is left."""
        self._store.remove()
        self.state = replace(self.state, forgotten=True)

    def reset(self, driver: Driver) -> None:
        """Forget the framework, if Mesos has removed it, before `run` with another driver."""
        self.step(driver, ResetRequested())

    def run(self, driver: Driver) -> SchedulerState:
        """Handle events until nothing is left to do; the final state."""
        self._check_leadership()
        self.step(driver, Tick())
        if self._stop:
            self.step(driver, StopRequested(self._stop))
        if self.state.over:
            # Torn down in an earlier life, or never registered: there is nobody to connect as.
            return self.state
        # To connect is to act: it would take the framework away from whoever leads.
        driver.start()
        try:
            while not self.state.over and not self._aborted:
                event = self._next_event()
                if event is not None:
                    self.burst(driver, self._with_those_behind(event))
        finally:
            if self._teardown:
                driver.perform(Teardown())
            driver.stop()
        return self.state

    def _next_event(self) -> Event | None:
        """The next from the inbox, or a Tick when a deadline of the state comes first."""
        waiting, self._next = self._next, None
        if waiting is not None:
            return waiting
        deadline = next_deadline(self.state)
        timeout = None if deadline is None else max(0.0, deadline - self._clock())
        try:
            return self._inbox.get(timeout=timeout)()
        except queue.Empty:
            return Tick()

    def _with_those_behind(self, event: Event) -> list[Event]:
        """A status update with all that wait behind it already; any other event alone."""
        found = [event]
        while isinstance(event, StatusUpdated) and len(found) < BURST and not self._inbox.empty():
            another = self._inbox.get_nowait()()
            if isinstance(another, StatusUpdated | ExecutorFailed | ProgressReported):
                found.append(another)
            elif another is not None:
                self._next = another
                break
        return found

    def step(self, driver: Driver, event: Event) -> Decision:
        """Handle one event; in the loop's thread only."""
        return self.burst(driver, (event,))[0]

    def burst(self, driver: Driver, events: Sequence[Event]) -> list[Decision]:
        """Handle events as one: all that they change is stored, or nothing, and only then anything is done."""
        before = self.state
        decisions: list[Decision] = []
        stored: list[Write] = []
        for event in together(events):
            decisions.append(self._decide(before, event, self._clock(), self._new_id))
            stored += transaction(before, decisions[-1])
            before = decisions[-1].state
        if stored:
            self._checkpoint("before", "store")
        self._keep(self._store, stored, tuple(zip(events, decisions, strict=True)))
        if stored:
            self._checkpoint("after", "store")
        self.state = before
        for call in (call for decision in decisions for call in decision.calls):
            self._check_leadership()
            self._checkpoint("before", type(call).__name__)
            driver.perform(call)
            self._checkpoint("after", type(call).__name__)
        for event, decision in zip(events, decisions, strict=True):
            self._tell(event, decision)
        self._checkpoint("after", "outcomes")
        return decisions

    def _tell(self, event: Event, decision: Decision) -> None:
        self._decisions += 1
        for outcome, facts in told(self._decisions, event, decision):
            _log(outcome, facts)
        for observer in self._observers:
            observer(event, decision)

    def _check_leadership(self) -> None:
        if self._leadership is not None:
            self._leadership.check()


def transaction(before: SchedulerState, decision: Decision) -> list[Write]:
    """Everything that one decision stores, all or none; empty when it changes nothing that is stored."""
    return [write for change in decision.changes for write in writes(change, before)]


def together(events: Sequence[Event]) -> list[Event]:
    """The same, each update but the last knowing that another one follows."""
    updates = [place for place, event in enumerate(events) if isinstance(event, StatusUpdated)]
    early = frozenset(updates[:-1])
    return [
        replace(event, more=True) if place in early and isinstance(event, StatusUpdated) else event
        for place, event in enumerate(events)
    ]


def _log(outcome: Outcome, facts: Mapping[str, str]) -> None:
    level = logging.WARNING if outcome.warning else logging.INFO
    log.log(level, "%s", outcome.message, extra=facts)
