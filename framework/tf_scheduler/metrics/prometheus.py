"""Prometheus metrics: count the loop's events, show the state, time the plans."""

from __future__ import annotations

import operator
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from tf_executor.contract.reports import PROGRESS_FIELDS
from tf_executor.contract.states import Status, TaskState
from tf_scheduler.core.connection_problems import call_name
from tf_scheduler.core.offers.rounds import REFUSE_LONG
from tf_scheduler.core.recovery.failure_causes import cause_of
from tf_scheduler.model import effects
from tf_scheduler.model.events import (
    CallFailed,
    Disconnected,
    Event,
    EventSkipped,
    OfferRescinded,
    OffersReceived,
    StatusUpdated,
    Subscribed,
)
from tf_scheduler.model.ids import name_of
from tf_scheduler.model.plan import Plan
from tf_scheduler.model.resources import UNIT
from tf_scheduler.model.spec import JobKind
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.model.task import Cause, LaunchEnd, TaskRecord, TaskStatus

from .statsd import SdkMetrics

# Disable the additional series with creation times.
disable_created_metrics()  # type: ignore[no-untyped-call]

#: Seconds. A decision takes microseconds; with thousands of offers, seconds.
_DECISIONS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
#: Seconds of a durable transaction: one disk write, or a ZooKeeper quorum.
_STORE = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
#: Seconds from a loss to the relaunch, including back-off and waiting for offers.
_RECOVERY = (0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0)


class MetricFamilies:
    """Counters and histograms; they start at 0 with each start of the scheduler."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"tensorflow_{name}", text, labels, registry=registry)

        def histogram(name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
            return Histogram(f"tensorflow_{name}", text, labels, buckets=buckets, registry=registry)

        self.offers = counter("offers", "Offers by outcome; the outcome `received` counts all.", "outcome")
        self.operations = counter("operations", "Operations in accepted offers.", "operation")
        self.revives = counter("revives", "REVIVE calls.")
        self.throttled = counter("revives_throttled", "REVIVE calls delayed by the rate limit.")
        self.suppresses = counter("suppresses", "SUPPRESS calls.")
        self.skipped_events = counter("skipped_events", "Events of Mesos that could not be decoded.", "type")
        text = "Calls that Mesos refused (HTTP status), did not answer (unanswered), or that were not sent (unsent)."
        self.failed_calls = counter("failed_calls", text, "call", "result")
        text = "Calls that wait to be sent to Mesos, or for its answer."
        self.calls_queued = Gauge("tensorflow_calls_queued", text, registry=registry)
        self.launches = counter("launches", "Task launches.", "job_name")
        self.statuses = counter("task_statuses", "Status updates from Mesos.", "state")
        self.failures = counter("failures", "Failed launches by cause; see docs/explanation/recovery.md.", "cause")
        self.recoveries = counter("recoveries", "Relaunches by the cause of the loss.", "cause")
        text = "Seconds between the decision to relaunch a task and its launch."
        self.recovery_seconds = histogram("recovery_seconds", text, _RECOVERY)
        self.subscriptions = counter("subscriptions", "Subscriptions to Mesos.")
        self.disconnections = counter("disconnections", "Lost connections to Mesos.")
        text = "Reconciliation requests, for some tasks (explicit) or for all tasks (implicit)."
        self.reconciliations = counter("reconciliations", text, "kind")
        text = "Seconds to make one decision of the loop, not including its storage."
        self.decisions = histogram("decision_seconds", text, _DECISIONS, "event")
        self.deadlines = histogram("deadline_seconds", "Seconds to find the time of the next check.", _DECISIONS)
        self.events_queued = Gauge("tensorflow_events_queued", "Events that wait for the loop.", registry=registry)
        self.store = histogram("store_seconds", "Seconds to store one transaction of the loop.", _STORE)
        self.store_failures = counter("store_failures", "Failed transactions of the state store.")
        self.requests = counter("api_requests", "Answered requests to the HTTP API.", "method", "code")


class EventCounter:
    """Observer of the loop that counts events, calls and changes.

    Counting takes microseconds per decision, because only changes are read. `state`: first state of the loop.
    """

    def __init__(self, families: MetricFamilies, sdk: SdkMetrics, state: SchedulerState) -> None:
        self._to, self._sdk, self._before = families, sdk, state

    def __call__(self, event: Event, decision: effects.Decision) -> None:
        before, self._before = self._before, decision.state
        self._event(event)
        if before.session.revive_at is None and decision.state.session.revive_at is not None:
            self._to.throttled.inc()
            self._sdk.count("revives.throttles")
        for call in decision.calls:
            self._call(call)
        self._changed(before, decision.changes)

    def _event(self, event: Event) -> None:
        if isinstance(event, OffersReceived):
            self._to.offers.labels("received").inc(len(event.offers) + len(event.malformed))
            self._sdk.count("offers.received", len(event.offers))
            self._sdk.count("offers.processed", len(event.offers))
        elif isinstance(event, StatusUpdated):
            self._to.statuses.labels(event.status.state.value).inc()
            self._sdk.count(f"task_status.{event.status.state.value.lower()}")
        elif isinstance(event, OfferRescinded):
            self._to.offers.labels("rescinded").inc()
        elif isinstance(event, EventSkipped):
            self._to.skipped_events.labels(event.type).inc()
        elif isinstance(event, CallFailed):
            result = str(event.status) if event.status else "unanswered" if event.may_be_done else "unsent"
            self._to.failed_calls.labels(call_name(event.call), result).inc()
        elif isinstance(event, Subscribed):
            self._to.subscriptions.inc()
        elif isinstance(event, Disconnected):
            self._to.disconnections.inc()

    def _call(self, call: effects.Call) -> None:
        if isinstance(call, effects.Accept):
            self._to.offers.labels("accepted").inc(len(call.offer_ids))
            self._to.operations.labels("launch").inc(len(call.launches))
            self._sdk.count("operation.launch", len(call.launches))
        elif isinstance(call, effects.Decline):
            length = "long" if call.refuse_seconds >= REFUSE_LONG else "short"
            self._to.offers.labels(f"declined_{length}").inc(len(call.offer_ids))
            self._sdk.count(f"declines.{length}", len(call.offer_ids))
        elif isinstance(call, effects.Revive):
            self._to.revives.inc()
            self._sdk.count("revives")
        elif isinstance(call, effects.Suppress):
            self._to.suppresses.inc()
            self._sdk.count("suppresses")
        elif isinstance(call, effects.Reconcile):
            self._to.reconciliations.labels("explicit" if call.tasks else "implicit").inc()

    def _changed(self, before: SchedulerState, changes: Iterable[effects.Change]) -> None:
        for change in changes:
            if isinstance(change, effects.TaskLaunched):
                self._launched(before, change.record)
            elif isinstance(change, effects.StatusStored) and change.status.state.has_ended:
                if cause := failure_cause(before, change.status, changes):
                    self._to.failures.labels(cause.value).inc()
            elif isinstance(change, effects.RecoveryDecided) and change.recovery.cause is Cause.NOT_JOINED:
                previous = before.stored.recoveries.get(change.recovery.task)
                if previous is None or previous.launch != change.recovery.launch:
                    self._to.failures.labels(Cause.NOT_JOINED.value).inc()

    def _launched(self, before: SchedulerState, record: TaskRecord) -> None:
        self._to.launches.labels(record.job.value).inc()
        recovery, last = before.stored.recoveries.get(record.name), before.stored.tasks.get(record.name)
        if recovery is not None and last is not None and recovery.launch == last.id:
            self._to.recoveries.labels(recovery.cause.value).inc()
            self._to.recovery_seconds.observe(record.launched_at - recovery.since)


def failure_cause(before: SchedulerState, status: TaskStatus, changes: Iterable[effects.Change]) -> Cause | None:
    """Return the cause of a failed launch; None for a success and for a requested end."""
    name = name_of(status.id)
    recovery = before.stored.recoveries.get(name)
    is_requested = (
        before.stored.result is not None or status.id in before.stored.retired or status.id in before.session.kills
    )
    if status.state is TaskState.FINISHED or is_requested or (recovery is not None and recovery.launch == status.id):
        return None
    decided = (item.recovery for item in changes if isinstance(item, effects.RecoveryDecided))
    judged = next((item.cause for item in decided if item.launch == status.id), None)
    hung = status.healthy is False
    end = LaunchEnd(status.state.value, status.reason, status.end, was_unhealthy=hung)
    return judged or cause_of(end)


#: Minimum seconds between two evaluations of the plans, and the minimum multiple of their CPU time.
_PAUSE, _AGAIN = 1.0, 50.0


class PlanStatusTimes:
    """Samples how long plans have each status, as no event reports it. Thread-safe."""

    def __init__(
        self,
        state: Callable[[], SchedulerState],
        plans: Callable[[], Mapping[str, Plan]],
        *,
        clock: Callable[[], float] = time.monotonic,
        cost: Callable[[], float] = time.thread_time,
    ) -> None:
        self._state, self._plans, self._clock, self._cost = state, plans, clock, cost
        self._lock = threading.Lock()
        self._evaluated: tuple[object, ...] = ()
        self._statuses: dict[str, Status] = {}
        self._at, self._next = clock(), 0.0
        self._seconds: dict[tuple[str, Status], float] = {}

    def current(self) -> Mapping[str, Status]:
        """Update the times and return the status of each plan as of the last evaluation."""
        with self._lock:
            now = self._clock()
            for item in self._statuses.items():
                self._seconds[item] += now - self._at
            self._at, state = now, self._state()
            # What plans depend on: with many tasks, progress comes all the time.
            process = state.process.rejected, state.process.finished, state.process.is_erased
            parts = (state.spec, state.stored, state.derived, state.session, *process)
            is_same = all(map(operator.is_, parts, self._evaluated))
            if not self._evaluated or (not is_same and now >= self._next):
                self._evaluated, self._statuses = parts, self._evaluate(now)
                self._seconds = dict.fromkeys(self._statuses.items(), 0.0) | self._seconds
            return dict(self._statuses)

    def seconds(self) -> Mapping[tuple[str, Status], float]:
        """Return the seconds by plan and status since the start of the scheduler."""
        with self._lock:
            return dict(self._seconds)

    def _evaluate(self, now: float) -> dict[str, Status]:
        start = self._cost()
        current = {name: plan.status for name, plan in self._plans().items()}
        self._next = now + max(_PAUSE, _AGAIN * (self._cost() - start))
        return current


_SCALARS = ("cpus", "mem", "disk", "gpus")
_MEGABYTES = ("mem", "disk")


class StateCollector(Collector):
    """Prometheus collector of the state.

    `version`: version of the scheduler. `reasons`: returns the kinds of reasons that hinder the scheduler or the job.
    """

    def __init__(
        self,
        state: Callable[[], SchedulerState],
        watch: PlanStatusTimes,
        version: str,
        reasons: Callable[[], Iterable[str]],
    ) -> None:
        self._state, self._watch, self._version, self._reasons = state, watch, version, reasons

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """Return nothing, so that the registry's duplicate check does not call `collect`."""
        return iter(())

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        state = self._state()
        yield _gauge("subscribed", "1 while the scheduler is subscribed to Mesos.", state.session.connected)
        yield _gauge("suppressed", "1 while offers are suppressed.", state.session.suppressed)
        yield _gauge("offers_held", "Offers that the scheduler holds.", len(state.session.round.offers))
        yield _gauge("tasks_wanted", "Tasks of the spec.", state.spec.task_count)
        yield _gauge("tasks_pending", "Tasks that have not been placed.", len(state.session.round.reasons))
        suspected = sum(bool(item.failures) for item in state.stored.agent_failures.values())
        yield _gauge("agents_suspected", "Agents with counted launch failures.", suspected)
        text = "Agents on which another process may have taken secrets, until an operator acknowledges it."
        yield _gauge("agents_exposed", text, len(state.stored.exposures))
        generation = max((record.generation for record in state.stored.tasks.values()), default=0)
        yield _gauge("cluster_generation", "Generation of the ClusterSpec.", generation)
        text = "Always 1; labels: service, strategy, version of the scheduler."
        service = (state.spec.name, state.spec.strategy.value, self._version)
        yield _labelled("service_info", text, ("service", "strategy", "version"), [(service, 1)])
        counts = [((each.value,), state.derived.state_counts.get(each, 0)) for each in TaskState]
        yield _labelled("tasks", "Launched tasks by their last Mesos state.", ("state",), counts)
        text = "1 for each kind of reason why the scheduler cannot act, or the job does not run as it should."
        yield _labelled("reasons", text, ("kind",), [((kind,), 1) for kind in sorted(set(self._reasons()))])
        yield _allocated(state)
        yield _memory(state)
        yield from _training(state)
        yield from self._plans()

    def _plans(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        labels = ("plan", "status")
        current = (
            ((name, each.value), each is status) for name, status in self._watch.current().items() for each in Status
        )
        yield _labelled("plan_status", "1 for the current status of a plan.", labels, current)
        text = "Seconds that a plan has spent in a status."
        times = CounterMetricFamily("tensorflow_plan_status_seconds", text, labels=labels)
        for (name, status), seconds in self._watch.seconds().items():
            times.add_metric((name, status.value), seconds)
        yield times


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"tensorflow_{name}", text, value=value)


def _labelled(
    name: str, text: str, labels: tuple[str, ...], values: Iterable[tuple[tuple[str, ...], float]]
) -> GaugeMetricFamily:
    family = GaugeMetricFamily(f"tensorflow_{name}", text, labels=labels)
    for key, value in values:
        family.add_metric(key, value)
    return family


def _allocated(state: SchedulerState) -> GaugeMetricFamily:
    """Return the allocation of every job and resource, zeros included."""
    totals = {(job.kind.value, name): 0 for job in state.spec.jobs for name in _SCALARS}
    for record in state.live():
        for resource in record.resources:
            if isinstance(resource.value, int) and resource.name in _SCALARS:
                key = (record.job.value, resource.name)
                totals[key] = totals.get(key, 0) + resource.value
    text = "Allocated resources of tasks and executors: CPUs, GPUs, bytes of memory and disk."
    amounts = ((key, total / UNIT * (2**20 if key[1] in _MEGABYTES else 1)) for key, total in sorted(totals.items()))
    return _labelled("allocated", text, ("job_name", "resource"), amounts)


def _memory(state: SchedulerState) -> GaugeMetricFamily:
    """Return the memory that each task uses, and the limit of the task and executor."""
    amounts: list[tuple[tuple[str, ...], float]] = []
    for record in state.live():
        (launch, usage), own = state.process.usage.get(record.name, (None, None)), (record.name, record.job.value)
        mem = (item.value for item in record.resources if item.name == "mem" and isinstance(item.value, int))
        amounts.append(((*own, "limit"), sum(mem) / UNIT * 2**20))
        if usage is not None and launch == record.id and usage.memory_used_mb is not None:
            amounts.append(((*own, "used"), usage.memory_used_mb * 2**20))
    text = "Memory that a task uses, and that it and its executor may use, if agents enforce limits."
    return _labelled("task_memory_bytes", text, ("task", "job_name", "kind"), amounts)


def _training(state: SchedulerState) -> Iterator[GaugeMetricFamily]:
    reports = [
        ((record.name, record.job.value), state.process.progress[record.id])
        for record in state.stored.tasks.values()
        if record.id in state.process.progress
    ]
    # Each task may report the examples of the whole job; they count once.
    jobs = [key for key, progress in reports if progress.of == "job"]
    repeated = set(jobs) - {min(jobs, key=lambda key: (key[1] != JobKind.CHIEF.value, key), default=None)}
    for field in (field for field in PROGRESS_FIELDS if field.metric):
        left_out = repeated if "examples" in field.name else ()
        numbers = ((key, getattr(progress, field.name)) for key, progress in reports if key not in left_out)
        values = [(key, number) for key, number in numbers if number is not None]
        yield _labelled(field.metric, field.about, ("task", "job_name"), values)
