"""What a scheduler decides becomes lines, and lines become launches and curves."""

from hypothesis import given, settings
from hypothesis import strategies as st

from builders import a_spec, with_fields
from runs import a_run
from tf_scheduler.history.model import encode_line, recording_lines
from tf_scheduler.history.record import MAX_POINTS, Recorder, Recording, fold_lines, read_recording
from tf_scheduler.model.effects import Decision, Outcome, RecoveryDecided, StatusStored, TaskLaunched
from tf_scheduler.model.events import ProgressReported, Tick
from tf_scheduler.model.resources import Resource
from tf_scheduler.model.spec import JobKind
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.model.task import Cause, Progress, Recovery, TaskRecord, TaskState, TaskStatus, downsample

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


def test_a_launch_is_followed_to_its_end(tmp_path):
    """When it was launched, ran and ended; what it took; why it was replaced."""
    record = recorder(tmp_path, (100.0, 101.0, 109.0))
    lost = Recovery("worker-0", "id-1", Cause.INFRASTRUCTURE, "agent a was lost", 109.0, 109.0, 110.0)

    record(Tick(), Decision(STATE, (TaskLaunched(RECORD),)))
    record(Tick(), Decision(STATE, (a_status(TaskState.RUNNING),)))
    failed = (a_status(TaskState.FAILED, message="exit code 3", exit_code=3), RecoveryDecided(lost))
    record(Tick(), Decision(STATE, failed, outcomes=(Outcome("worker-0 failed", warning=True), Outcome("fine"))))

    found = read_recording(tmp_path / "recording.jsonl")
    (launch,) = found.launches
    assert (100.0, 101.0, 109.0) == (launch.launched, launch.running, launch.ended)
    assert ("failed", 3, "exit code 3", "agent a was lost") == (
        launch.state,
        launch.exit_code,
        launch.message,
        launch.replaced,
    )
    assert (1.5, 512.0, 0.0, 2, "host") == (launch.cpus, launch.mem, launch.gpus, launch.generation, launch.agent)
    assert ["worker-0 failed"] == [item.message for item in found.warnings]


def test_progress_becomes_a_curve_of_fewer_points(tmp_path):
    """At most two a second; a loss that is no number is left out of it."""
    record = recorder(tmp_path, (1.0, 1.1, 1.6, 2.5))

    record(a_report(1, loss=4.0, steps_per_second=2.0), Decision(STATE))
    record(a_report(2), Decision(STATE))
    record(a_report(3, loss=float("nan"), examples_per_second=64.0, steps_per_second=2.0), Decision(STATE))
    record(ProgressReported("another", Progress(1, 0.0, step=1)), Decision(STATE))

    found = read_recording(tmp_path / "recording.jsonl")
    points = found.curves["worker-0"]
    assert [(1.0, 1, 4.0, 2.0), (1.6, 3, None, 64.0)] == [
        (point.time, point.step, point.loss, point.speed) for point in points
    ]
    assert "examples" == found.unit


def test_each_task_has_its_own_unit():
    """Of several, that of the leader is the run's, whoever told last; one may change when it begins to count."""
    told = (
        {"t": 1.0, "progress": "worker-0", "step": 1, "speed": 2.0, "unit": "steps"},
        {"t": 2.0, "progress": "worker-0", "step": 2, "speed": 64.0, "unit": "examples"},
        {"t": 3.0, "progress": "worker-1", "step": 2, "speed": 2.0, "unit": "steps"},
        {"t": 4.0, "progress": "worker-0", "step": 3, "speed": None, "unit": "steps"},
    )

    found = fold_lines(told)

    assert "examples" == found.unit
    assert {"worker-0": ["steps", "examples", ""], "worker-1": ["steps"]} == {
        task: [point.unit for point in points] for task, points in found.curves.items()
    }


def test_the_first_step_is_when_it_was_made(tmp_path):
    """Not when we heard of it, where event files say it better."""
    record = recorder(tmp_path, (20.0, 30.0))

    record(a_report(40, begun=12.5), Decision(STATE))
    record(a_report(50, begun=12.5), Decision(STATE))

    assert 11.5 == a_run(submitted=1.0, curves=read_recording(tmp_path / "recording.jsonl").curves).first_step


def test_a_recording_is_bounded(tmp_path):
    """Progress stops at half of the room, so that the end of the run still has its place."""
    path = tmp_path / "recording.jsonl"
    record = recorder(tmp_path, range(1, 100), most_bytes=2000)
    for step in range(50):
        record(a_report(step), Decision(STATE))
    half = path.stat().st_size
    for _ in range(40):
        record(Tick(), Decision(STATE, (a_status(TaskState.RUNNING),)))

    assert 800 < half <= 1000
    assert 1800 < path.stat().st_size <= 2000


def test_a_recording_that_cannot_be_written_stops_nobody(tmp_path, caplog):
    """It is told once."""
    record = Recorder(tmp_path / "missing" / "recording.jsonl", lambda: 1.0)

    for _ in range(3):
        record(Tick(), Decision(STATE, (TaskLaunched(RECORD),)))

    assert 1 == caplog.text.count("is not recorded")


def test_what_can_be_written_again_is(tmp_path):
    """The disk was full: what comes later is not lost for that."""
    record = Recorder(tmp_path / "missing" / "recording.jsonl", lambda: 1.0)
    record(Tick(), Decision(STATE, (a_status(TaskState.RUNNING),)))
    (tmp_path / "missing").mkdir()
    record(Tick(), Decision(STATE, (TaskLaunched(RECORD),)))

    assert 1 == len(read_recording(tmp_path / "missing" / "recording.jsonl").launches)


def test_a_scheduler_adds_what_the_one_before_it_had_stored_only(tmp_path):
    """That one was killed between the two; and in the middle of a line."""
    path = tmp_path / "recording.jsonl"
    (line,) = recording_lines(Tick(), Decision(STATE, (TaskLaunched(RECORD),)), 1.0)
    path.write_text(encode_line(line) + encode_line(line)[:20])
    lost = Recovery("worker-0", "id-1", Cause.INFRASTRUCTURE, "agent a was lost", 109.0, 109.0, 110.0)
    failed = TaskStatus("id-1", TaskState.FAILED, exit_code=3)
    state = with_fields(STATE, statuses={"id-1": failed}, recoveries={"worker-0": lost})

    for now in (200.0, 300.0):
        Recorder(path, lambda now=now: now).resume(state)

    (launch,) = read_recording(path).launches
    assert (100.0, 200.0, 3, "agent a was lost") == (launch.launched, launch.ended, launch.exit_code, launch.replaced)
    assert 4 == len(path.read_text().splitlines()), "each once"


def test_a_line_that_was_cut_off_is_left_out(tmp_path):
    """The scheduler may be killed in the middle of it; a missing file has recorded nothing."""
    path = tmp_path / "recording.jsonl"
    (line,) = recording_lines(Tick(), Decision(STATE, (TaskLaunched(RECORD),)), 1.0)
    path.write_text(encode_line(line) + encode_line(line)[:20])

    assert 1 == len(read_recording(path).launches)
    assert Recording() == read_recording(tmp_path / "none")


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(), min_size=1, max_size=3000), st.integers(2, MAX_POINTS))
def test_thinning_keeps_both_ends_and_the_order(items, most):
    """Evenly, and never more than asked for."""
    indexed = list(enumerate(items))
    found = downsample(indexed, most)

    assert len(found) == min(most, len(items))
    assert (indexed[0], indexed[-1]) == (found[0], found[-1])
    assert sorted(set(found)) == found


def test_a_status_without_its_launch_is_no_launch():
    """Of a recording that begins later."""
    assert () == fold_lines([{"t": 1, "status": "x", "state": "running"}]).launches


def test_a_status_tells_when_it_was_made_and_whether_the_server_answers():
    """For who measures how long healing takes: the line's own time is when it was stored and acted upon."""
    (line,) = recording_lines(Tick(), Decision(STATE, (a_status(TaskState.RUNNING, timestamp=8.5, healthy=True),)), 9.0)

    assert (9.0, 8.5, True) == (line["t"], line["said"], line["healthy"])
