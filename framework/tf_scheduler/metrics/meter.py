"""Measure the loop, its store and the API; serve metrics, and send them to StatsD."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from prometheus_client import CollectorRegistry, Histogram, ProcessCollector, generate_latest

from tf_scheduler.model.effects import ComputedPlans, Decision
from tf_scheduler.model.events import Event, OffersReceived
from tf_scheduler.model.plan import Plan
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.store.interface import StateStore, StoreError, Write
from tf_scheduler.store.retrying import SharedStore

from .prometheus import EventCounter, MetricFamilies, PlanStatusTimes, StateCollector
from .statsd import SdkMetrics, StatsdSender, StatsdTarget, gauges

#: Version of Dropwizard's metrics format that the SDK uses.
_VERSION = "3.1.3"
#: CPU seconds from which an answer counts as expensive; an expensive answer is cached for this multiple of its cost.
_COSTLY, _AGAIN = 0.002, 50
_PAUSE = 1.0  # seconds between two checks of the plans

Deadline = Callable[[SchedulerState], float | None]
Decide = Callable[[SchedulerState, Event, float, Callable[[], str], ComputedPlans | None], Decision]


class LoopMetrics:
    """Metrics of the loop, its store and the API. `state`: the loop's first state."""

    def __init__(self, state: SchedulerState) -> None:
        self.registry = CollectorRegistry()
        self._metrics = MetricFamilies(self.registry)
        self.sdk = SdkMetrics(time.monotonic())
        #: Observer of the loop.
        self.count = EventCounter(self._metrics, self.sdk, state)

    def decide(self, decide: Decide) -> Decide:
        """Wrap `decide` to measure it. Call the result in the loop's thread."""
        times: dict[str, Histogram] = {}

        def measured(
            state: SchedulerState, event: Event, now: float, new_id: Callable[[], str], view: ComputedPlans | None
        ) -> Decision:
            start = time.perf_counter()
            decision = decide(state, event, now, new_id, view)
            took = time.perf_counter() - start
            kind = event.kind
            if kind not in times:
                times[kind] = self._metrics.decisions.labels(kind)
            times[kind].observe(took)
            if isinstance(event, OffersReceived):
                self.sdk.processed(took, time.monotonic())
            return decision

        return measured

    def store(self, store: StateStore) -> StateStore:
        """Wrap the store to measure its transactions."""
        return _MeasuredStore(store, self._metrics)

    def deadline(self, deadline: Deadline) -> Deadline:
        """Wrap `deadline` to measure it. Call the result in the loop's thread."""

        def measured(state: SchedulerState) -> float | None:
            with self._metrics.deadlines.time():
                return deadline(state)

        return measured

    def watch_events(self, queued: Callable[[], int]) -> None:
        """Measure the number of events that wait for the loop."""
        self._metrics.events_queued.set_function(queued)

    def watch_calls(self, queued: Callable[[], int]) -> None:
        """Measure the number of calls that wait to be sent or answered."""
        self._metrics.calls_queued.set_function(queued)

    def request(self, method: str, code: int) -> None:
        """Count an answer of the API."""
        self._metrics.requests.labels(method, str(code)).inc()


class Meter:
    """All metrics of a scheduler; a thread times the plans and sends gauges to StatsD.

    The context manager runs the thread. `state` returns the current state, `plans` the plans as the API shows them,
    `reasons` the kinds of reasons that hinder the scheduler or the job.
    """

    def __init__(
        self,
        loop: LoopMetrics,
        state: Callable[[], SchedulerState],
        plans: Callable[[], Mapping[str, Plan]],
        statsd: StatsdTarget | None = None,
        version: str = "",
        reasons: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        self.loop = loop
        self._registry, self._sdk, self._state = loop.registry, loop.sdk, state
        self._watch = PlanStatusTimes(state, plans)
        loop.registry.register(StateCollector(state, self._watch, version, reasons))
        ProcessCollector(registry=loop.registry)
        self._statsd = None if statsd is None else StatsdSender(statsd)
        self.prometheus = _CachedAnswer(lambda: generate_latest(loop.registry))
        self.dropwizard = _CachedAnswer(self._dropwizard)
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="metrics", daemon=True)

    def values(self) -> Iterator[tuple[str, float]]:
        """Yield SDK and scheduler metrics under dotted names that end with label values."""
        yield from self._sdk.counters.items()
        timer = self._sdk.timer(time.monotonic())
        yield from ((f"offers.process.{name}", value) for name, value in timer.items() if not isinstance(value, str))
        yield from gauges(self._state(), self._watch.current()).items()
        yield from self._own()

    def _own(self) -> Iterator[tuple[str, float]]:
        for family in self._registry.collect():
            for sample in family.samples:
                if not sample.name.endswith("_bucket"):
                    yield ".".join((sample.name, *sample.labels.values())), sample.value

    def _dropwizard(self) -> dict[str, Any]:
        plans = self._watch.current()
        own = {name: {"value": value} for name, value in self._own() if abs(value) < float("inf")}
        sdk = {name: {"value": value} for name, value in gauges(self._state(), plans).items()}
        return {
            "version": _VERSION,
            "gauges": {**sdk, **own},
            "counters": {name: {"count": count} for name, count in sorted(self._sdk.counters.items())},
            "histograms": {},
            "meters": {},
            "timers": {"offers.process": self._sdk.timer(time.monotonic())},
        }

    def __enter__(self) -> Meter:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        due = 0.0
        while not self._end.wait(_PAUSE):
            self._watch.current()
            if self._statsd is not None and time.monotonic() >= due:
                due = time.monotonic() + self._statsd.to.every
                self._statsd.send(self.values())
        if self._statsd is not None:
            self._statsd.send(self.values())


class _CachedAnswer:
    """Cached answer; an expensive answer stays valid longer. Not thread-safe."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._answer: Any = None
        self._until = 0.0

    def __call__(self) -> Any:
        if time.monotonic() >= self._until:
            start = time.thread_time()
            self._answer = self._make()
            cost = time.thread_time() - start
            self._until = time.monotonic() + (_AGAIN * cost if cost > _COSTLY else 0.0)
        return self._answer


class _MeasuredStore(SharedStore):
    """Store with measured transactions."""

    def __init__(self, store: StateStore, metrics: MetricFamilies) -> None:
        super().__init__(store)
        self._metrics = metrics

    def apply(self, writes: Sequence[Write]) -> None:
        start = time.perf_counter()
        try:
            super().apply(writes)
        except StoreError:
            self._metrics.store_failures.inc()
            raise
        self._metrics.store.observe(time.perf_counter() - start)
