"""Cost of metrics in the loop: many decisions with and without a meter.

Run with `-s` to see the numbers. It first checks that the result is right.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from benchmarks.services import a_service, launched, status_of
from tf_executor.contract.states import TaskState
from tf_scheduler.core.scheduler import handle
from tf_scheduler.metrics.meter import LoopMetrics
from tf_scheduler.model.effects import Acknowledge
from tf_scheduler.model.events import StatusUpdated

TASKS, ROUNDS = 1_000, 3


def seconds(action: Callable[[], object]) -> float:
    """Return the minimal time of a few rounds."""
    times = []
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        action()
        times.append(time.perf_counter() - begun)
    return min(times)


def test_counting_costs_little_beside_deciding() -> None:
    """A status update of each of a thousand tasks."""
    state = launched(a_service(TASKS), None)
    events = [StatusUpdated(status_of(record, TaskState.RUNNING, "now")) for record in state.stored.tasks.values()]
    meter = LoopMetrics(state)
    measured = meter.decide(handle)
    plain = [handle(state, event, 2.0, lambda: "id") for event in events]
    counted = [measured(state, event, 2.0, lambda: "id", None) for event in events]
    for event, decision in zip(events, counted, strict=True):
        meter.count(event, decision)

    assert plain == counted
    assert all(isinstance(decision.calls[0], Acknowledge) for decision in counted)
    samples = [sample for family in meter.registry.collect() for sample in family.samples]
    counts = {(sample.name, *sample.labels.values()): sample.value for sample in samples}
    assert TASKS == counts["tensorflow_task_statuses_total", "TASK_RUNNING"]
    assert TASKS == counts["tensorflow_decision_seconds_count", "StatusUpdated"]

    deciding = seconds(lambda: [handle(state, event, 2.0, lambda: "id") for event in events])
    counting = seconds(lambda: [*map(meter.count, events, counted)])
    idle = meter.decide(lambda *_: plain[0])
    measuring = seconds(lambda: [idle(state, event, 2.0, lambda: "id", None) for event in events])
    each = 1e6 / TASKS
    print(f"\ndecide {deciding * each:.1f} us, count {counting * each:.1f} us, measure {measuring * each:.1f} us")
    # Compare by ratio, because other processes slow both alike.
    assert counting + measuring < deciding
