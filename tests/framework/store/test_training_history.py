"""Training curves survive restarts of the scheduler."""

import math
import threading
from dataclasses import replace
from itertools import pairwise

import pytest

from builders import a_spec, a_status, with_fields
from kit.memory_store import MemoryDisk, MemoryStore
from kit.worlds import deployed
from tf_executor.contract.reports import Progress
from tf_executor.contract.states import TaskState, Verdict
from tf_scheduler.api.http.backend import MAX_METRIC_CURVES, MAX_POINTS, CurveRecorder
from tf_scheduler.api.views import training
from tf_scheduler.api.views.base import Snapshot
from tf_scheduler.model.effects import Decision, ResultDecided, StatusStored
from tf_scheduler.model.events import ProgressReported, Tick
from tf_scheduler.model.ids import TaskId, TaskName
from tf_scheduler.model.state import Result, SchedulerState
from tf_scheduler.model.task import TrainingCurve
from tf_scheduler.store import training_history
from tf_scheduler.store.training_history import TrainingHistory, decode_curves, decode_progress, encode_history

PATIENCE = 30


def hear(curves, steps, task="worker-0", **fields) -> None:
    decision = Decision(SchedulerState(a_spec()))
    for step in steps:
        progress = Progress(step, 1000.0 + step, step=step, **{"loss": 1 / (1 + step), **fields})
        curves(ProgressReported(TaskId(f"{task}__1"), progress), decision)


def steps(curves, points=MAX_POINTS, task="worker-0"):
    """As the API returns them."""
    progress = training.progress(Snapshot(SchedulerState(a_spec())), curves.current(), points).body
    return [point["step"] for entry in progress["tasks"] if entry["name"] == task for point in entry["points"]]


@pytest.mark.parametrize("count", [1, 2, 5, 511, 512, 815, 5000])
def test_curve_spans_the_whole_training(count: int) -> None:
    """With evenly spaced points, however few are requested."""
    curves = CurveRecorder()
    hear(curves, range(count))

    assert [] == steps(curves, 0)
    assert [count - 1] == steps(curves, 1)
    for points in (2, 60, 240, MAX_POINTS):
        reported = steps(curves, points)
        assert (0, count - 1) == (min(reported), reported[-1]) if count > 1 else [0] == reported
        assert min(count, points, MAX_POINTS // 2) <= len(reported) <= points
        gaps = [after - before for before, after in pairwise(reported[:-1])]
        assert not gaps or max(gaps) <= 2 * min(gaps) + 1


def test_output_adds_nothing_to_the_curve_of_reports() -> None:
    """A relaunched program prints its own count of steps before it reports."""
    curves = CurveRecorder()
    for step, source in [(1, "output"), (264, "report"), (18, "output"), (968, "report")]:
        progress = Progress(step, 0.0, step=step, source=source)
        curves(ProgressReported(TaskId("worker-0__1"), progress), Decision(SchedulerState(a_spec())))

    assert [1, 264, 968] == steps(curves, 60)


def test_report_about_storage_is_not_on_the_curve() -> None:
    curves = CurveRecorder()
    progress = Progress(1, 0.0, storage_error="timeout")
    curves(ProgressReported(TaskId("worker-0__1"), progress), Decision(SchedulerState(a_spec())))
    assert {} == curves.current()


def test_next_scheduler_continues_the_curve() -> None:
    """The start of the curve is kept after many restarts."""
    disk = MemoryDisk()
    for begin in range(0, 3000, 300):
        store = MemoryStore("service", disk)
        curves = CurveRecorder(decode_curves(store.load()))
        hear(curves, range(begin, begin + 300))
        with TrainingHistory(store, curves.current):
            pass

    reported = steps(CurveRecorder(decode_curves(MemoryStore("service", disk).load())), 60)

    assert (0, 2999, 60) == (reported[0], reported[-1], len(reported))
    gaps = [after - before for before, after in pairwise(reported)]
    assert max(gaps) < 4 * 3000 / 60


def test_next_scheduler_continues_curves_of_metrics() -> None:
    """Of the first tasks only, to keep the value small; reports may lack metrics."""
    curves = CurveRecorder()
    hear(curves, [1], metrics={"accuracy": 0.5, "nan": math.nan})
    hear(curves, [2])
    for number in range(1, 6):
        hear(curves, [1], task=f"worker-{number}", metrics={"accuracy": 0.1})
    put = encode_history(curves.current(), {})

    restored = decode_curves({put.key: put.value})

    assert [{"accuracy": 0.5}, {}] == [point.metrics for point in restored[TaskName("worker-0")].points]
    assert 4 == sum(bool(curve.points[0].metrics) for curve in restored.values())
    assert {} == restored[TaskName("worker-5")].points[0].metrics
    assert 6 == len(restored)


def test_next_scheduler_continues_numbers_of_workers() -> None:
    """Of the leading task only; a curve of an earlier scheduler has none."""
    state = deployed(a_spec(workers=2)).state
    curves = CurveRecorder()
    hear(curves, [1], task="chief-0")
    for name in ("chief-0", "worker-0"):
        curves(ProgressReported(state.stored.tasks[name].id, Progress(2, 2.0, step=2)), Decision(state))
    put = encode_history(curves.current(), {})

    restored = decode_curves({put.key: put.value})

    assert {"chief-0": [None, 2], "worker-0": [None]} == {
        name: [point.workers for point in curve.points] for name, curve in restored.items()
    }


class WatchedStore(MemoryStore):
    """Sets `written` at each write."""

    def __init__(self, disk: MemoryDisk) -> None:
        super().__init__("service", disk)
        self.written = threading.Event()

    def apply(self, writes) -> None:
        super().apply(writes)
        self.written.set()


def test_curve_is_stored_periodically() -> None:
    """Because the scheduler may be killed."""
    store, curves = WatchedStore(MemoryDisk()), CurveRecorder()
    store.load()
    hear(curves, [1, 2])
    with TrainingHistory(store, curves.current, interval=0.01):
        assert store.written.wait(PATIENCE)
        assert [1, 2] == [point.step for point in decode_curves(store.load())["worker-0"].points]


LAUNCH = TaskId("worker-0__1")
SAID = Progress(
    7, 1763759990.5, 8, 8, 0.25, 512, 2.0, 128.0, 1763759986.0, 2, 2, 1.5, "job", "report", {"accuracy": 0.5}
)
STATE = SchedulerState(a_spec())


@pytest.mark.parametrize(
    "decision",
    [
        (Tick(), Decision(STATE, changes=(ResultDecided(Result(Verdict.SUCCEEDED, "done", 1.0)),))),
        (Tick(), Decision(STATE, changes=(StatusStored(a_status(LAUNCH, TaskState.FINISHED)),))),
        (
            ProgressReported(LAUNCH, SAID),
            Decision(with_fields(STATE, statuses={LAUNCH: a_status(LAUNCH, TaskState.FINISHED)})),
        ),
    ],
    ids=["the job", "a task", "what it had still to tell"],
)
def test_end_of_task_is_stored_immediately(decision) -> None:
    """The last progress of an ended task is not reported again."""
    disk, curves = MemoryDisk(), CurveRecorder()
    store = WatchedStore(disk)
    store.load()
    with TrainingHistory(store, curves.current, lambda: {LAUNCH: SAID}) as kept:
        kept(Tick(), Decision(STATE))
        kept(ProgressReported(LAUNCH, SAID), Decision(STATE))
        assert not store.written.is_set()
        kept(*decision)
        assert store.written.wait(PATIENCE)
        after_a_kill = MemoryStore("service", disk).load()
    assert {LAUNCH: replace(SAID, sequence=0)} == decode_progress(after_a_kill)


def test_last_progress_is_stored_with_metrics_that_are_nan() -> None:
    """JSON has no NaN, but the next scheduler shows that the metric is."""
    said = replace(SAID, sequence=0, metrics={"accuracy": 0.5, "nan": math.nan})
    put = encode_history({}, {LAUNCH: said})
    assert {LAUNCH: said} == decode_progress({put.key: put.value})


def test_curves_include_metrics_of_the_first_tasks() -> None:
    """10,000 tasks with 16 metrics each would need gigabytes."""
    curves = CurveRecorder()
    for number in range(MAX_METRIC_CURVES + 1):
        hear(curves, [1, 2], task=f"worker-{number}", metrics={"accuracy": 0.5})

    metrics = [[point.metrics for point in curve.points] for curve in curves.current().values()]

    assert [[{"accuracy": 0.5}] * 2] * MAX_METRIC_CURVES + [[{}] * 2] == metrics


@pytest.mark.parametrize("value", [b"", b"[]", b'{"schema": 2}', b'{"schema": 1, "tasks": {"a": {"points": [[1]]}}}'])
def test_unreadable_curve_is_logged_and_skipped(value: bytes, caplog: pytest.LogCaptureFixture) -> None:
    assert ({}, {}) == (decode_curves({training_history.CURVES: value}), decode_curves({}))
    assert "training curves ignored" in caplog.text


def test_stored_history_is_small() -> None:
    """Only tasks that report a loss; without numbers that JSON lacks."""
    metrics = {f"metric_{number}": math.e / (1 + number) for number in range(16)}
    points = tuple(
        Progress(n, 1763759990.123456 + n, step=n, loss=math.pi * n, metrics=metrics) for n in range(MAX_POINTS)
    )
    silent = {f"a-{n}": TrainingCurve(tuple(Progress(0, 1.0, step=1) for _ in points)) for n in range(50)}
    diverged = TrainingCurve((Progress(0, 1.0, loss=math.inf, steps_per_second=math.nan),))
    by_name = {**silent, **{f"z-{n}": TrainingCurve(points) for n in range(15)}, "z-diverged": diverged}
    put = encode_history({TaskName(name): curve for name, curve in by_name.items()}, {})

    curves = decode_curves({put.key: put.value})

    assert len(put.value) < 250_000
    assert {"z-diverged", *(f"z-{n}" for n in range(15))} == set(curves)
    assert (None, None) == (curves["z-diverged"].points[0].loss, curves["z-diverged"].points[0].steps_per_second)
    assert (4, 129) == (curves["z-0"].stride, len(curves["z-0"].points))
