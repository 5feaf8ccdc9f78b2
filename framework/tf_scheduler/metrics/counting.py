"""An observer of the loop that counts. Microseconds a decision: it looks at what changed, never at the whole state."""

from __future__ import annotations

from collections.abc import Iterable

from tf_scheduler.core.declines import REFUSE_LONG
from tf_scheduler.core.recovery.causes import cause_of
from tf_scheduler.model.effects import (
    Accept,
    Change,
    Decision,
    Decline,
    Reconcile,
    RecoveryDecided,
    Revive,
    StatusStored,
    Suppress,
    TaskLaunched,
)
from tf_scheduler.model.events import Disconnected, Event, OfferRescinded, OffersReceived, StatusUpdated, Subscribed
from tf_scheduler.model.failure import Cause, Ended
from tf_scheduler.model.ids import name_of
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.model.task import TaskRecord, TaskState, TaskStatus

from .families import Families
from .sdk import Sdk


class Counting:
    """`state`: what the loop begins with. In the loop's thread."""

    def __init__(self, families: Families, sdk: Sdk, state: SchedulerState) -> None:
        self._to, self._sdk, self._before = families, sdk, state

    def __call__(self, event: Event, decision: Decision) -> None:
        before, self._before = self._before, decision.state
        self._event(event)
        if before.revive_at is None and decision.state.revive_at is not None:
            self._to.throttled.inc()
            self._sdk.count("revives.throttles")
        for call in decision.calls:
            if isinstance(call, Accept):
                self._accepted(call)
            elif isinstance(call, Decline):
                self._declined(call)
            elif isinstance(call, Revive):
                self._to.revives.inc()
                self._sdk.count("revives")
            elif isinstance(call, Suppress):
                self._to.suppresses.inc()
                self._sdk.count("suppresses")
            elif isinstance(call, Reconcile):
                self._to.reconciliations.labels("explicit" if call.tasks else "implicit").inc()
        if decision.changes:
            self._changed(before, decision.changes)

    def _event(self, event: Event) -> None:
        if isinstance(event, OffersReceived):
            self._to.offers.labels("received").inc(len(event.offers))
            self._sdk.count("offers.received", len(event.offers))
            self._sdk.count("offers.processed", len(event.offers))
        elif isinstance(event, StatusUpdated):
            self._to.statuses.labels(event.status.state.value).inc()
            self._sdk.count(f"task_status.{event.status.state.value.lower()}")
        elif isinstance(event, OfferRescinded):
            self._to.offers.labels("rescinded").inc()
        elif isinstance(event, Subscribed):
            self._to.subscriptions.inc()
        elif isinstance(event, Disconnected):
            self._to.disconnections.inc()

    def _accepted(self, call: Accept) -> None:
        self._to.offers.labels("accepted").inc(len(call.offer_ids))
        for name, count in (("unreserve", call.unreserve), ("reserve", call.reserve), ("launch", call.launches)):
            if count:
                self._to.operations.labels(name).inc(len(count))
                self._sdk.count(f"operation.{name}", len(count))

    def _declined(self, call: Decline) -> None:
        long = call.refuse_seconds >= REFUSE_LONG
        self._to.offers.labels("declined_long" if long else "declined_short").inc(len(call.offer_ids))
        self._sdk.count("declines.long" if long else "declines.short", len(call.offer_ids))

    def _changed(self, before: SchedulerState, changes: Iterable[Change]) -> None:
        for change in changes:
            if isinstance(change, TaskLaunched):
                self._launched(before, change.record)
            elif isinstance(change, StatusStored) and change.status.state.ended:
                if cause := failure(before, change.status, changes):
                    self._to.failures.labels(cause.value).inc()
            elif isinstance(change, RecoveryDecided) and change.recovery.cause is Cause.NOT_JOINED:
                known = before.recoveries.get(change.recovery.task)
                if known is None or known.launch != change.recovery.launch:
                    self._to.failures.labels(Cause.NOT_JOINED.value).inc()

    def _launched(self, before: SchedulerState, record: TaskRecord) -> None:
        self._to.launches.labels(record.job.value).inc()
        recovery, last = before.recoveries.get(record.name), before.tasks.get(record.name)
        if recovery is not None and last is not None and recovery.launch == last.id:
            self._to.recoveries.labels(recovery.cause.value).inc()
            self._to.recovery_seconds.observe(record.launched_at - recovery.since)


def failure(before: SchedulerState, status: TaskStatus, changes: Iterable[Change]) -> Cause | None:
    """Why a launch failed; None: it did what it should, or was told to end."""
    name = name_of(status.id)
    known = before.recoveries.get(name)
    told_to_end = before.result is not None or status.id in before.retired or status.id in before.kills
    if status.state is TaskState.FINISHED or told_to_end or (known is not None and known.launch == status.id):
        return None
    decided = (item.recovery for item in changes if isinstance(item, RecoveryDecided))
    judged = next((item.cause for item in decided if item.launch == status.id), None)
    hung = status.healthy is False
    end = Ended(status.state.value, status.reason, status.exit_code, status.signal, hung=hung)
    return judged or cause_of(end)
