"""All metrics of one scheduler, put together: what the loop feeds, and what the API and StatsD get."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any

from prometheus_client import CollectorRegistry, Histogram, ProcessCollector, generate_latest

from tf_scheduler.model.effects import Decision
from tf_scheduler.model.events import Event, OffersReceived
from tf_scheduler.model.plan import Plan
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.store.interface import StateStore, StoreError, Write
from tf_scheduler.store.shared import SharedStore

from .counting import Counting
from .families import Families
from .present import Present
from .sdk import Sdk, gauges
from .statsd import Statsd, Target
from .watch import PlanWatch

#: Dropwizard's, of which the SDK's answer is.
_VERSION = "3.1.3"
#: Processor seconds that make an answer costly; it is shown for so many times as long.
_COSTLY, _AGAIN = 0.002, 50
_PAUSE = 1.0  # seconds between two looks at the plans

Decide = Callable[[SchedulerState, Event, float, Callable[[], str]], Decision]


class Meter:
    """A context manager: inside, a thread of its own watches the plans and, with `statsd`, sends.

    `begin`: what the loop begins with; `state`: that of the loop now; `plans`: as the API shows them.
    """

    def __init__(
        self,
        begin: SchedulerState,
        state: Callable[[], SchedulerState],
        plans: Callable[[], Mapping[str, Plan]],
        statsd: Target | None = None,
        version: str = "",
    ) -> None:
        self.registry = CollectorRegistry()
        self._families = Families(self.registry)
        self._sdk = Sdk(time.monotonic())
        self._state = state
        self._watch = PlanWatch(state, plans)
        self.registry.register(Present(state, self._watch, version))
        ProcessCollector(registry=self.registry)
        #: An observer of the loop.
        self.count = Counting(self._families, self._sdk, begin)
        self._statsd = None if statsd is None else Statsd(statsd)
        self.prometheus = _Kept(lambda: generate_latest(self.registry))
        self.dropwizard = _Kept(self._dropwizard)
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch_on, name="metrics", daemon=True)

    def decide(self, decide: Decide) -> Decide:
        """The same, measured. In the loop's thread."""
        times: dict[type, Histogram] = {}

        def measured(state: SchedulerState, event: Event, now: float, new_id: Callable[[], str]) -> Decision:
            begun = time.perf_counter()
            decision = decide(state, event, now, new_id)
            took = time.perf_counter() - begun
            kind = type(event)
            if kind not in times:
                times[kind] = self._families.decisions.labels(kind.__name__)
            times[kind].observe(took)
            if kind is OffersReceived:
                self._sdk.processed(took, time.monotonic())
            return decision

        return measured

    def store(self, store: StateStore) -> StateStore:
        """The same, measured."""
        return _Measured(store, self._families)

    def request(self, method: str, code: int) -> None:
        """The API has answered."""
        self._families.requests.labels(method, str(code)).inc()

    def values(self) -> Iterator[tuple[str, float]]:
        """All of it under names with dots: the SDK's, and ours, whose labels' values follow their name."""
        yield from self._sdk.counters.items()
        timer = self._sdk.timer(time.monotonic())
        yield from ((f"offers.process.{name}", value) for name, value in timer.items() if not isinstance(value, str))
        yield from gauges(self._state(), self._watch.look()).items()
        yield from self._ours()

    def _ours(self) -> Iterator[tuple[str, float]]:
        for family in self.registry.collect():
            for sample in family.samples:
                if not sample.name.endswith("_bucket"):
                    yield ".".join((sample.name, *sample.labels.values())), sample.value

    def _dropwizard(self) -> dict[str, Any]:
        plans = self._watch.look()
        ours = {name: {"value": value} for name, value in self._ours() if abs(value) < float("inf")}
        sdk = {name: {"value": value} for name, value in gauges(self._state(), plans).items()}
        return {
            "version": _VERSION,
            "gauges": {**sdk, **ours},
            "counters": {name: {"count": count} for name, count in sorted(self._sdk.counters.items())},
            "histograms": {},
            "meters": {},
            "timers": {"offers.process": self._sdk.timer(time.monotonic())},
        }

    # --- in a thread of its own

    def __enter__(self) -> Meter:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end.set()
        self._thread.join()

    def _watch_on(self) -> None:
        due = 0.0
        while not self._end.wait(_PAUSE):
            self._watch.look()
            if self._statsd is not None and time.monotonic() >= due:
                due = time.monotonic() + self._statsd.to.every
                self._statsd.send(self.values())
        if self._statsd is not None:
            self._statsd.send(self.values())


class _Kept:
    """An answer; one that was costly is given again for a while. In one thread only."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._answer: Any = None
        self._until = 0.0

    def __call__(self) -> Any:
        if time.monotonic() >= self._until:
            begun = time.thread_time()
            self._answer = self._make()
            cost = time.thread_time() - begun
            self._until = time.monotonic() + (_AGAIN * cost if cost > _COSTLY else 0.0)
        return self._answer


class _Measured(SharedStore):
    """A store whose transactions are measured."""

    def __init__(self, store: StateStore, families: Families) -> None:
        super().__init__(store)
        self._families = families

    def apply(self, writes: Sequence[Write]) -> None:
        begun = time.perf_counter()
        try:
            super().apply(writes)
        except StoreError:
            self._families.store_failures.inc()
            raise
        self._families.store.observe(time.perf_counter() - begun)
