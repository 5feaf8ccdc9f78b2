"""Recording of decisions as lines, and lines as launches and curves."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from builders import a_spec, with_fields
from runs import a_run
from tf_executor.contract.reports import EVENT_FILES, OUTPUT, REPORT, Progress, TaskEnd
from tf_executor.contract.states import TaskState
from tf_scheduler.api.http.backend import CurveRecorder
from tf_scheduler.core.state.reducer import apply
from tf_scheduler.history.model import speed_of
from tf_scheduler.history.record import encode_line, fold_lines, read_recording, service_run
from tf_scheduler.history.recorder import Recorder, recording_lines
from tf_scheduler.model.effects import (
    Decision,
    FrameworkRegistered,
    Outcome,
    RecoveryDecided,
    StatusStored,
    TaskLaunched,
)
from tf_scheduler.model.events import ProgressReported, Tick
from tf_scheduler.model.ids import TaskName, name_of
from tf_scheduler.model.resources import Resource
from tf_scheduler.model.spec import JobKind
from tf_scheduler.model.state import Configuration, SchedulerState
from tf_scheduler.model.task import Cause, Recovery, TaskRecord, TaskStatus, TrainingCurve

RESOURCES = (Resource("cpus", 1500), Resource("mem", 512_000))
RECORD = TaskRecord("worker-0", "id-1", JobKind.WORKER, 0, "a", "host", "host:31000", 2, RESOURCES, 100.0)
STATE = with_fields(SchedulerState(a_spec()), tasks={"worker-0": RECORD})


def a_status(state, **others):
    return StatusStored(TaskStatus("id-1", state, **others))


def a_report(step, **others):
    return ProgressReported("id-1", Progress(step, 0.0, step=step, **others))


def recorder(tmp_path, times, **others):
    clock = iter(times)
    return Recorder(tmp_path / "recording.jsonl", lambda: next(clock), **others)


def test_recording_has_times_resources_and_end_of_launch(tmp_path: Path) -> None:
    """And why it was replaced."""
    record = recorder(tmp_path, (100.0, 101.0, 109.0))
    lost = Recovery("worker-0", "id-1", Cause.INFRASTRUCTURE, "agent a was lost", 109.0, 109.0, 110.0)

    record(Tick(), Decision(STATE, (TaskLaunched(RECORD),)))
    record(Tick(), Decision(STATE, (a_status(TaskState.RUNNING),)))
    failed = (a_status(TaskState.FAILED, message="exit code 3", end=TaskEnd(3)), RecoveryDecided(lost))
    record(
        Tick(),
        Decision(
            STATE,
            failed,
            outcomes=(Outcome("TaskRecovers", "worker-0 failed", warning=True), Outcome("TaskStatus", "fine")),
        ),
    )

    recording = read_recording(tmp_path / "recording.jsonl")
    (launch,) = recording.launches
    assert (100.0, 101.0, 109.0) == (launch.launched, launch.running, launch.ended)
    assert ("failed", 3, "exit code 3", "agent a was lost") == (
        launch.state,
        launch.exit_code,
        launch.message,
        launch.replaced,
    )
    assert (1.5, 512.0, 0.0, 2, "host") == (launch.cpus, launch.mem, launch.gpus, launch.generation, launch.agent)
    assert ["worker-0 failed"] == [item.message for item in recording.warnings]


def test_recording_has_metrics_of_the_leading_task(tmp_path: Path) -> None:
    """Those of all tasks would be too large."""
    other = replace(RECORD, name="worker-1", id="id-2")
    state = with_fields(SchedulerState(a_spec()), tasks={"worker-0": RECORD, "worker-1": other})
    record = recorder(tmp_path, (1.0, 2.0))
    metrics = {"accuracy": 0.5, "x": float("nan")}
    for launch in ("id-1", "id-2"):
        progress = Progress(1, 0.0, step=1, examples_per_second=64.0, of="job", metrics=metrics)
        record(ProgressReported(launch, progress), Decision(state))

    curves = read_recording(tmp_path / "recording.jsonl").curves

    assert {"worker-0": [("{'accuracy': 0.5, 'x': nan}", "job")], "worker-1": [("{}", "job")]} == {
        task: [(str(point.metrics), point.of) for point in points] for task, points in curves.items()
    }


def test_progress_is_downsampled_to_a_curve(tmp_path: Path) -> None:
    """Up to two points per second; a loss that is not finite stays what it is."""
    record = recorder(tmp_path, (1.0, 1.1, 1.6, 2.5))

    record(a_report(1, loss=4.0, steps_per_second=2.0), Decision(STATE))
    record(a_report(2), Decision(STATE))
    record(a_report(3, loss=float("nan"), examples_per_second=64.0, steps_per_second=2.0), Decision(STATE))
    record(ProgressReported("another", Progress(1, 0.0, step=1)), Decision(STATE))

    recording = read_recording(tmp_path / "recording.jsonl")
    points = recording.curves["worker-0"]
    assert [(1.0, 1, "4.0", (2.0, "steps")), (1.6, 3, "nan", (64.0, "examples"))] == [
        (point.time, point.step, str(point.loss), speed_of(point)) for point in points
    ]
    assert (64.0, "examples") == recording.speed


def test_last_progress_is_kept(tmp_path: Path) -> None:
    """However soon it comes after the one before, and also after the end."""
    record = recorder(tmp_path, (1.0, 1.1, 1.2, 1.3, 1.4))
    end = a_status(TaskState.FINISHED)
    ended = apply(SchedulerState(a_spec()), TaskLaunched(RECORD), end)
    for step in (1, 2, 3):
        record(a_report(step, metrics={"accuracy": step / 10}), Decision(STATE))
    record(Tick(), Decision(ended, (end,)))
    record(a_report(4), Decision(ended))

    recording = read_recording(tmp_path / "recording.jsonl")
    assert [(1.0, 1), (1.2, 3), (1.4, 4)] == [(point.time, point.step) for point in recording.curves["worker-0"]]
    assert {"accuracy": 0.3} == recording.best


def test_progress_of_a_week_fits(tmp_path: Path) -> None:
    """Its beginning has every report."""
    times = [float(second) for second in range(0, 7 * 86_400, 10)]
    record = recorder(tmp_path, times)
    for step in range(len(times)):
        record(a_report(step), Decision(STATE))
    text = (tmp_path / "recording.jsonl").read_text()
    assert 4_000 < len(text.splitlines()) < 6_000
    assert all(f'"step":{step}}}' in text for step in range(60))


def test_unit_of_run_is_that_of_its_leader() -> None:
    """Each task has its own unit, which may change during the run."""
    lines = (
        {"t": 1.0, "progress": "worker-0", "step": 1, "steps_per_second": 2.0},
        {"t": 2.0, "progress": "worker-0", "step": 2, "examples_per_second": 64.0},
        {"t": 3.0, "progress": "worker-1", "step": 2, "steps_per_second": 2.0},
        {"t": 4.0, "progress": "worker-0", "step": 3},
    )

    assert (64.0, "examples") == fold_lines(lines).speed


F, P, R = EVENT_FILES, OUTPUT, REPORT


@pytest.mark.parametrize(
    ("reports", "steps"),
    [
        ([(1, P), (264, F), (18, P), (968, F)], [1, 264, 968]),
        ([(5, R), (1, P), (9, P), (6, R)], [5, 6]),
        ([(50, F), (100, F), (120, P), (1000, P)], [50, 100, 120, 1000]),
        ([(100, F), (120, P), (130, F), (140, P)], [100, 120, 130, 140]),
        ([(100, R), (3, P)], [100, 3]),
    ],
    ids=["relaunch counts epochs", "relaunch reports", "files stop", "both by turns", "relaunch only prints"],
)
def test_curves_end_with_the_last_report(reports, steps) -> None:
    """A relaunched program prints its own count of steps before it reports.

    These printed points are no part of the curve, but output that is ahead of event files is: otherwise the run would
    end at an old step, in the history and on the page.
    """
    lines, live = [], CurveRecorder()
    state = with_fields(SchedulerState(a_spec()), tasks={RECORD.name: RECORD})
    for time, (step, source) in enumerate(reports):
        lines.append({"t": float(time), "progress": RECORD.name, "step": step, "source": source})
        live(ProgressReported(RECORD.id, Progress(time, float(time), step, source=source)), Decision(state))

    run = fold_lines(lines)
    assert (steps, steps[-1]) == ([point.step for point in run.curves[RECORD.name]], run.last.step)
    assert steps == [point.step for point in live.current()[name_of(RECORD.id)].points]


def test_first_step_uses_time_of_event_file(tmp_path: Path) -> None:
    """Which is earlier than the time of the report."""
    record = recorder(tmp_path, (20.0, 30.0))

    record(a_report(40, begun=12.5), Decision(STATE))
    record(a_report(50, begun=12.5), Decision(STATE))

    assert 11.5 == a_run(submitted=1.0, curves=read_recording(tmp_path / "recording.jsonl").curves).first_step


def test_recording_is_bounded(tmp_path: Path) -> None:
    """Progress uses up to half of the size, so that the end of the run still fits."""
    path = tmp_path / "recording.jsonl"
    record = recorder(tmp_path, range(1, 100), most_bytes=2000)
    for step in range(50):
        record(a_report(step), Decision(STATE))
    half = path.stat().st_size
    for _ in range(40):
        record(Tick(), Decision(STATE, (a_status(TaskState.RUNNING),)))

    assert 800 < half <= 1000
    assert 1800 < path.stat().st_size <= 2000


def test_unwritable_recording_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    record = Recorder(tmp_path / "missing" / "recording.jsonl", lambda: 1.0)

    for _ in range(3):
        record(Tick(), Decision(STATE, (TaskLaunched(RECORD),)))

    assert 1 == caplog.text.count("is not recorded")


def test_recording_continues_after_write_error(tmp_path: Path) -> None:
    """Such as a full disk."""
    record = Recorder(tmp_path / "missing" / "recording.jsonl", lambda: 1.0)
    record(Tick(), Decision(STATE, (a_status(TaskState.RUNNING),)))
    (tmp_path / "missing").mkdir()
    record(Tick(), Decision(STATE, (TaskLaunched(RECORD),)))

    assert 1 == len(read_recording(tmp_path / "missing" / "recording.jsonl").launches)


def test_resume_adds_stored_but_unrecorded_changes(tmp_path: Path) -> None:
    """The previous scheduler was killed in the middle of a line."""
    path = tmp_path / "recording.jsonl"
    (line,) = recording_lines(Tick(), Decision(STATE, (TaskLaunched(RECORD),)), 1.0)
    path.write_text(encode_line(line) + encode_line(line)[:20])
    lost = Recovery("worker-0", "id-1", Cause.INFRASTRUCTURE, "agent a was lost", 109.0, 109.0, 110.0)
    failed = TaskStatus("id-1", TaskState.FAILED, end=TaskEnd(3))
    state = with_fields(STATE, statuses={"id-1": failed}, recoveries={"worker-0": lost})

    for now in (200.0, 300.0):
        Recorder(path, partial(float, now)).resume(state)

    (launch,) = read_recording(path).launches
    assert (100.0, 200.0, 3, "agent a was lost") == (launch.launched, launch.ended, launch.exit_code, launch.replaced)
    assert 4 == len(path.read_text().splitlines()), "each line once"


def test_new_recording_of_a_service_continues_its_curves(tmp_path: Path) -> None:
    """The next scheduler of a cluster has an empty sandbox; the run keeps its id."""
    configuration = Configuration("c", 1, 50.0, "", {})
    state = with_fields(STATE, framework_id="framework-1", configurations={"c": configuration})
    registered = FrameworkRegistered("framework-1")
    first, second = tmp_path / "first", tmp_path / "second"
    record = Recorder(first, iter((90.0, 100.0, 101.0, 102.0)).__next__)
    points = tuple(a_report(step, metrics={"accuracy": step / 10}).progress for step in (1, 2))

    for change in (registered, TaskLaunched(RECORD)):
        record(Tick(), Decision(state, (change,)))
    Recorder(first, lambda: 300.0).resume(state, {TaskName("worker-0"): TrainingCurve(points)})
    for now in (200.0, 250.0):
        Recorder(second, partial(float, now)).resume(
            state, {TaskName("worker-0"): TrainingCurve(points), TaskName("gone"): TrainingCurve(points)}
        )

    before, after = service_run(first, "mnist", {}), service_run(second, "mnist", {})
    assert before.id == after.id
    assert 50.0 == before.submitted == after.submitted
    assert [1, 2] == [point.step for point in after.curves["worker-0"]]
    assert {"accuracy": 0.2} == after.best
    assert {"worker-0"} == set(after.curves)


def test_incomplete_line_is_ignored(tmp_path: Path) -> None:
    """A missing file is an empty recording."""
    path = tmp_path / "recording.jsonl"
    (line,) = recording_lines(Tick(), Decision(STATE, (TaskLaunched(RECORD),)), 1.0)
    path.write_text(encode_line(line) + encode_line(line)[:20])

    assert 1 == len(read_recording(path).launches)
    assert a_run() == read_recording(tmp_path / "none", a_run())


def test_status_without_launch_is_ignored() -> None:
    """The recording started after the launch."""
    assert () == fold_lines([{"t": 1, "status": "x", "state": "running"}]).launches


def test_status_line_has_time_of_status_and_readiness() -> None:
    """To measure recovery times: the time of the line is when the status was stored."""
    (line,) = recording_lines(Tick(), Decision(STATE, (a_status(TaskState.RUNNING, timestamp=8.5, healthy=True),)), 9.0)

    assert (9.0, 8.5, True) == (line["t"], line["said"], line["healthy"])
