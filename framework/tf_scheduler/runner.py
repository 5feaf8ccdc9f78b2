"""The scheduler loop: take events from a queue, decide, store, then act.

    inbox -> event -> core.handle -> 1. store the changes   (`commit`; if it fails, the process exits)
                                     2. replace the state
                                     3. send the calls      (acknowledgements among them)
                                     4. log the outcomes, call the observers

Status updates that wait in the inbox form a batch: decided one by one, stored in one transaction; plans are computed
once, with the last update. If the store fails, state and Mesos are as before the event, and the next start recovers.
"""

from __future__ import annotations

import logging
import math
import queue
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from .clock import SteadyClock, not_in_future
from .core.scheduler import handle, next_deadline
from .core.state.reducer import apply
from .interfaces import Driver, Observer
from .model.effects import Accept, ComputedPlans, Decision, Outcome, Teardown
from .model.events import (
    AgentFailed,
    ClockStepped,
    Event,
    ExecutorFailed,
    OfferRescinded,
    OffersReceived,
    ProgressReported,
    ResetRequested,
    SecretsRequested,
    StatusUpdated,
    StopRequested,
    Tick,
    UsageReported,
)
from .model.ids import OfferId, TaskId, name_of
from .model.spec import ServiceSpec
from .model.state import SchedulerState
from .store.interface import CommitHook, Leadership, StateStore, Write, commit_plain
from .store.records import changes, writes

log = logging.getLogger(__name__)

#: Decodes an event in the loop's thread, so that a malformed message does not raise in the driver.
DecodeEvent = Callable[[], Event | None]

#: `core.handle`, or a function that measures it.
Decide = Callable[[SchedulerState, Event, float, Callable[[], str], ComputedPlans | None], Decision]

#: Called at each crash point with ("before" | "after") and ("store" | type of the call | "outcomes").
Checkpoint = Callable[[str, str], None]

#: Maximum number of events stored in one transaction.
MAX_BATCH = 500


def no_checkpoint(_moment: str, _what: str) -> None:
    """Do nothing."""


def new_uuid() -> str:
    """Return a new random UUID."""
    return str(uuid.uuid4())


def restore(spec: ServiceSpec, store: StateStore, now: float = math.inf) -> SchedulerState:
    """Return the stored state, without times in the future of `now` (Unix time)."""
    return apply(
        SchedulerState(spec), *(not_in_future(change, spec, now) for change in changes(store.load(), store.place))
    )


class Runner:
    """Own the state: an immutable value, replaced as a whole. Any thread may read it.

    When `leadership` is lost, the runner sends no more calls, and `run` raises LeadershipLostError. None: the store has
    no leader election. `checkpoint` is for tests: an exception from it stops the loop at that point.
    """

    def __init__(
        self,
        state: SchedulerState,
        store: StateStore,
        *,
        clock: Callable[[], float] = time.time,
        new_id: Callable[[], str] = new_uuid,
        leadership: Leadership | None = None,
        decide: Decide = handle,
        deadline: Callable[[SchedulerState], float | None] = next_deadline,
        checkpoint: Checkpoint = no_checkpoint,
        commit: CommitHook = commit_plain,
    ) -> None:
        self.state = state
        self._store, self._leadership = store, leadership
        self._clock, self._new_id = clock, new_id
        self._observers: tuple[Observer, ...] = ()
        self._decide, self._deadline, self._decisions = decide, deadline, 0
        #: Plans of the last state, reused by the next decision.
        self.view: ComputedPlans | None = None
        self._checkpoint, self._commit = checkpoint, commit
        self._aborted, self._teardown, self._stop = False, False, ""
        self._inbox: queue.SimpleQueue[DecodeEvent] = queue.SimpleQueue()
        #: Taken from the inbox behind a batch; handled next.
        self._next: Event | None = None
        self._was_tick = False
        if leadership is not None:
            leadership.on_lost(lambda _: self.put(leadership.check))

    def attach(self, *observers: Observer) -> None:
        """Add observers before `run`; they may use `put` and `state`."""
        self._observers += observers

    def put(self, decode: DecodeEvent) -> None:
        """Enqueue an event. Safe for threads."""
        self._inbox.put(decode)

    @property
    def queued_events(self) -> int:
        """Number of events that wait in the inbox. Safe for threads."""
        return self._inbox.qsize()

    def request_stop(self, reason: str) -> None:
        """Request a graceful stop; before `run`, nothing is registered. Safe for threads."""
        self._stop = reason
        self.put(lambda: StopRequested(reason))

    def abort(self, *, teardown: bool = False) -> None:
        """Leave the loop; tasks keep running for the next scheduler. Safe for threads.

        With `teardown`, Mesos is asked to kill the tasks; this method does not wait.
        """
        self._aborted, self._teardown = True, teardown
        self.put(lambda: None)

    def forget(self) -> None:
        """Delete the stored state of the service, after `run`."""
        self._store.remove()
        self.state = replace(self.state, process=replace(self.state.process, is_erased=True))

    def reset(self, driver: Driver) -> None:
        """Forget a framework that Mesos has removed, before `run` with a new driver."""
        self.step(driver, ResetRequested())

    def run(self, driver: Driver) -> SchedulerState:
        """Handle events until the service is finished or aborted; return the final state."""
        self._check_leadership()
        self.step(driver, Tick())
        if self._stop:
            self.step(driver, StopRequested(self._stop))
        if self.state.process.finished:
            # The framework was torn down by an earlier process, or never registered.
            return self.state
        # Connect as the leader only: a connection takes the framework over.
        driver.start()
        try:
            while not self.state.process.finished and not self._aborted:
                event = self._next_event()
                if isinstance(self._clock, SteadyClock) and (seconds := self._clock.step()):
                    self.step(driver, ClockStepped(seconds))
                if event is not None:
                    self.process_batch(driver, self._collect_batch(event))
        finally:
            if self._teardown:
                driver.perform(Teardown())
            driver.stop()
        return self.state

    def _next_event(self) -> Event | None:
        """Return the next event of the inbox; a Tick at the next deadline of the state.

        While the inbox is never empty, at least every second event is a Tick if one is due.
        """
        deadline = self._deadline(self.state)
        timeout = None if deadline is None else max(0.0, deadline - self._clock())
        self._was_tick = timeout == 0.0 and not self._was_tick
        if self._was_tick:
            return Tick()
        if self._next is not None:
            waiting, self._next = self._next, None
            return waiting
        try:
            return self._inbox.get(timeout=timeout)()
        except queue.Empty:
            return Tick()

    def _collect_batch(self, event: Event) -> list[Event]:
        """Return a status update with the updates queued behind it; any other event alone."""
        batch = [event]
        while isinstance(event, StatusUpdated) and len(batch) < MAX_BATCH and not self._inbox.empty():
            another = self._inbox.get_nowait()()
            if isinstance(another, StatusUpdated | ExecutorFailed | ProgressReported | UsageReported):
                batch.append(another)
            elif another is not None:
                self._next = another
                break
        return batch

    def step(self, driver: Driver, event: Event) -> Decision:
        """Handle one event, in the loop's thread only."""
        return self.process_batch(driver, (event,))[0]

    def process_batch(self, driver: Driver, events: Sequence[Event]) -> list[Decision]:
        """Decide events, store their changes in one transaction, then send their calls."""
        before, view = self.state, self.view
        decisions: list[Decision] = []
        stored: list[Write] = []
        for event in mark_batch(events):
            decisions.append(self._decide(before, event, self._clock(), self._new_id, view))
            stored += [write for change in decisions[-1].changes for write in writes(change, before)]
            before, view = decisions[-1].state, decisions[-1].view
        if stored:
            self._checkpoint("before", "store")
        self._commit(self._store, stored, tuple(zip(events, decisions, strict=True)))
        if stored:
            self._checkpoint("after", "store")
        self.state, self.view = before, view
        for call in (call for decision in decisions for call in decision.calls):
            self._check_leadership()
            self._checkpoint("before", type(call).__name__)
            driver.perform(call)
            self._checkpoint("after", type(call).__name__)
        for event, decision in zip(events, decisions, strict=True):
            self._decisions += 1
            for outcome, fields in log_fields(self._decisions, event, decision):
                level = logging.WARNING if outcome.warning else logging.INFO
                log.log(level, "%s", outcome.message, extra=fields)
            for observer in self._observers:
                observer(event, decision)
        self._checkpoint("after", "outcomes")
        return decisions

    def _check_leadership(self) -> None:
        if self._leadership is not None:
            self._leadership.check()


def mark_batch(events: Sequence[Event]) -> list[Event]:
    """Mark all status updates but the last with `more`, to compute plans only once."""
    last = max((place for place, event in enumerate(events) if isinstance(event, StatusUpdated)), default=0)
    return [
        replace(event, more=True) if isinstance(event, StatusUpdated) and place < last else event
        for place, event in enumerate(events)
    ]


def log_fields(number: int, event: Event, decision: Decision) -> Iterator[tuple[Outcome, dict[str, str]]]:
    """Yield outcomes with their log fields. `number` counts decisions since the start."""
    if not decision.outcomes:
        return
    accepts = (call for call in decision.calls if isinstance(call, Accept))
    used = {launch.record.id: call.offer_ids for call in accepts for launch in call.launches}
    cause = _event_fields(event)
    name = f"{event.kind}-{number}"
    for outcome in decision.outcomes:
        # An event of one task may have an outcome for another task.
        shared = cause if outcome.task in (None, cause.get("task")) else {}
        own = {} if outcome.task is None else _task_fields(decision.state, outcome, used)
        yield outcome, {**own, **shared, "decision": name, "outcome": outcome.kind}


def _task_fields(state: SchedulerState, outcome: Outcome, used: Mapping[TaskId, tuple[OfferId, ...]]) -> dict[str, str]:
    assert outcome.task is not None, "called for outcomes of a task"
    record = state.stored.tasks.get(outcome.task)
    if record is None:
        return {"task": outcome.task}
    offers = {"offer_id": ",".join(used[record.id])} if record.id in used else {}
    return {"task": outcome.task, "task_id": record.id, "agent_id": record.agent_id, **offers}


def _event_fields(event: Event) -> dict[str, str]:
    if isinstance(event, StatusUpdated):
        status = event.status
        agent = {} if status.agent_id is None else {"agent_id": status.agent_id}
        return {"task": name_of(status.id), "task_id": status.id, **agent}
    if isinstance(event, ProgressReported | UsageReported | SecretsRequested):
        return {"task": name_of(event.task_id), "task_id": event.task_id}
    if isinstance(event, OfferRescinded):
        return {"offer_id": event.offer_id}
    if isinstance(event, OffersReceived) and len(event.offers) == 1:
        return {"offer_id": event.offers[0].id, "agent_id": event.offers[0].agent_id}
    return {"agent_id": event.agent_id} if isinstance(event, AgentFailed | ExecutorFailed) else {}
