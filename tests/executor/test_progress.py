from __future__ import annotations

import base64
import json
import math
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tf_executor.contract.reports import EVENT_FILES, OUTPUT, REPORT, Message, Progress, decode_message
from tf_executor.progress.tracking import (
    MAX_ENTRIES,
    WINDOW,
    ProgressReader,
    Tracker,
    checkpoint_files,
    is_written,
    lacks_index,
    last_change,
)

DEEP = b"[" * 60_000
losses = st.none() | st.floats(allow_nan=False)
times = st.floats(allow_nan=False, allow_infinity=False)
speeds = st.none() | times
whole = st.none() | st.integers(0, 1 << 60)
counts = st.integers(0, 1 << 60)
said: st.SearchStrategy[Any] = (
    st.none() | st.booleans() | st.integers(-(10**30), 10**30) | st.floats() | st.text(max_size=3) | st.just([])
)
ids = st.from_regex(r"[a-z0-9_.-]{1,100}", fullmatch=True)


def decoded(progress: Progress) -> Progress:
    """Return what the scheduler receives."""
    message = decode_message(progress.encode("worker-0__1"))
    assert message is not None
    assert isinstance(message.report, Progress)
    return message.report


@given(ids, st.builds(Progress, counts, times, whole, whole, losses, whole, speeds, speeds))
def test_progress_round_trips(task_id: str, progress: Progress) -> None:
    data = progress.encode(task_id)
    json.loads(data, parse_constant=lambda text: pytest.fail(f"{text} is not JSON"))
    assert Message(task_id, progress) == decode_message(data)


def test_non_finite_loss_is_sent_as_text() -> None:
    """A diverging training looks like this."""
    assert math.isnan(decoded(Progress(1, 0.0, loss=math.nan)).loss or 0.0)


@pytest.mark.parametrize(("step", "total"), [(50, 50), (200, None)])
def test_step_never_exceeds_total(step: int, total: int | None) -> None:
    """A total of another count would show 400 %."""
    tracker = Tracker()
    tracker.note({"step": 1, "total": 50, "source": OUTPUT}, 1.0)
    tracker.note({"step": step, "source": OUTPUT}, 2.0)
    message = tracker.message(3.0)
    assert (step, total) == (message.step, message.total)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"\xff",
        b'{"version": 2, "kind": "progress"}',
        b'{"version": 1, "kind": "other", "task_id": "t", "sequence": 1, "time": 0}',
        b'{"version": 1, "kind": "progress", "task_id": "t"}',
        b'{"version": 1, "kind": "progress", "task_id": "t", "sequence": 1, "time": 0, "step": "many"}',
        b'{"version": 1, "kind": "progress", "task_id": "t", "sequence": 1, "time": 0, "step": 1e999}',
    ],
)
def test_other_message_is_not_progress(data: bytes) -> None:
    assert decode_message(data) is None


def test_tracker_merges_reports_and_computes_speeds() -> None:
    tracker = Tracker()
    for second in range(11):
        assert tracker.note({"step": 100 * second, "examples": 3200 * second, "total": 5000}, 50.0 + second)
    tracker.note({"loss": 0.5}, 60.0)
    expected = Progress(1, 1e9, 1000, 5000, 0.5, 32_000, 100.0, 3200.0, seconds_left=40.0, source=REPORT, first_step=0)
    assert expected == tracker.message(1e9)
    assert 2 == tracker.message(1e9).sequence


def test_tracker_averages_last_30_seconds() -> None:
    """The slow start does not count."""
    tracker = Tracker()
    tracker.note({"step": 0}, 0.0)
    for second in range(1000, 1041):
        tracker.note({"step": 10 * (second - 1000)}, float(second))
    assert 10.0 == tracker.message(0.0).steps_per_second
    assert WINDOW < 1000


def test_tracker_restarts_when_step_decreases() -> None:
    """A second training in the same program must not give a negative speed."""
    tracker = Tracker()
    tracker.note({"step": 1000}, 0.0)
    tracker.note({"step": 10}, 10.0)
    assert tracker.message(0.0).steps_per_second is None
    tracker.note({"step": 30}, 20.0)
    assert 2.0 == tracker.message(0.0).steps_per_second


@pytest.mark.parametrize(
    "report",
    [{}, {"step": "x"}, {"step": None}, {"step": math.inf}, {"of": "all"}, {"loss": []}, {"x": "7"}, {"\n": 7}],
)
def test_tracker_ignores_report_without_values(report: dict[str, Any]) -> None:
    tracker = Tracker()
    assert not tracker.note(report, 0.0)
    assert (None, None) == (tracker.last, tracker.source)


def test_event_files_are_scanned_after_exit(tmp_path: Path) -> None:
    """Otherwise the last seconds of every training would be missing."""
    messages: list[bytes] = []
    os.mkfifo(tmp_path / "pipe")
    reader = ProgressReader(tmp_path / "pipe", "worker-0__1", lambda message: not messages.append(message), 2.0)
    reader.detect(EVENT_FILES, lambda: {"step": 7}, 3600)
    reader.stop(10)
    assert (7, EVENT_FILES) == (json.loads(messages[-1])["step"], json.loads(messages[-1])["source"])


@pytest.mark.parametrize(
    "line",
    [
        b"[" * 60_000,
        b'{"step":' + b"[" * 60_000,
        b'{"step": ' + b"9" * 5000 + b"}",
        b'{"step": 1e300}',
        b"\xff\x00",
        b"7",
    ],
    ids=["deep", "deep inside", "huge", "large", "no text", "no object"],
)
def test_reader_continues_after_any_line(tmp_path: Path, line: bytes) -> None:
    """A program must not be able to stop the thread."""
    messages: list[bytes] = []
    os.mkfifo(tmp_path / "pipe")
    reader = ProgressReader(tmp_path / "pipe", "worker-0__1", lambda message: not messages.append(message), 2.0)
    with (tmp_path / "pipe").open("wb") as pipe:
        pipe.write(line + b'\n{"step": 7}\n')
    reader.stop(30)
    assert 7 == json.loads(messages[-1])["step"]


def test_only_files_of_programs_are_checkpoints(tmp_path: Path) -> None:
    """Event files and logs change all the time; links may lead anywhere."""
    assert 0.0 == last_change(checkpoint_files(tmp_path / "missing"))
    (tmp_path / "elsewhere").mkdir()
    shared = tmp_path / "shared"
    (shared / ".dcos-tensorflow").mkdir(parents=True)
    (shared / "link").symlink_to(tmp_path / "elsewhere")
    for name in ("elsewhere/a", "shared/.dcos-tensorflow/a", "shared/events.out.tfevents.1.host", "shared/train.log"):
        (tmp_path / name).touch()
    assert 0.0 == last_change(checkpoint_files(shared))
    (shared / "ckpt").mkdir()
    for second in (5, 7, 6):
        (shared / "ckpt" / str(second)).touch()
        os.utime(shared / "ckpt" / str(second), (second, second))
    assert 7.0 == last_change(checkpoint_files(shared))


def test_checkpoints_in_a_huge_folder_are_unknown(tmp_path: Path) -> None:
    """The newest file may be one that was not read."""
    for number in range(MAX_ENTRIES):
        (tmp_path / str(number)).touch()
    assert last_change(checkpoint_files(tmp_path))
    (tmp_path / "more").touch()
    assert 0.0 == last_change(checkpoint_files(tmp_path))


OLD = {"a": (1.0, 10), "b": (2.0, 20)}


@pytest.mark.parametrize(
    "looks",
    [
        [OLD, OLD, OLD],
        [OLD, OLD | {"c": (3.0, 5)}, OLD | {"c": (3.0, 5)}],
        # Saved again and again.
        [OLD, OLD | {"b": (3.0, 20), "d1": (3.0, 1)}, OLD | {"b": (4.0, 20), "d2": (4.0, 1)}],
        [OLD, OLD | {"c-1.index": (3.0, 1)}, OLD | {"c-2.index": (4.0, 2)}],
    ],
)
def test_written_checkpoint(looks: list[dict[str, tuple[float, int]]]) -> None:
    assert is_written(looks[2], looks[1], looks[0], 2.0)


@pytest.mark.parametrize(
    "looks",
    [
        [OLD, OLD | {"c": (3.0, 5)}, OLD | {"c": (4.0, 6)}],
        [OLD, OLD, OLD | {"c": (4.0, 6)}],
        # Files that grow, and files that were written once.
        [OLD, OLD | {"b": (3.0, 1)}, OLD | {"b": (4.0, 20)}],
        [OLD, OLD | {"b": (3.0, 20)}, OLD | {"b": (3.0, 20), "a": (4.0, 1)}],
        [{}, {}, OLD],
        [{}, {"c-1.index": (2.0, 1)}, {"c-1.index": (2.0, 1), "c-2.data": (3.0, 1)}],
    ],
)
def test_checkpoint_that_is_still_written(looks: list[dict[str, tuple[float, int]]]) -> None:
    assert not is_written(looks[2], looks[1], looks[0], 2.0)


def test_checkpoint_without_its_index_is_not_complete(tmp_path: Path) -> None:
    """TensorFlow writes the index last."""
    folder = tmp_path / "ckpt"
    folder.mkdir()
    (folder / "ckpt-2.data-00000-of-00001").touch()
    assert lacks_index(checkpoint_files(tmp_path))
    (folder / "ckpt-2.index").touch()
    assert not lacks_index(checkpoint_files(tmp_path))
    assert not lacks_index(checkpoint_files(tmp_path / "missing"))


def test_checkpoint_of_another_training_does_not_count() -> None:
    """A program may train twice; the second training has not saved."""
    tracker = Tracker()
    for step in (10, 20):
        tracker.note({"step": step}, float(step))
    assert tracker.note({"_saved": 15.0}, 21.0)
    assert (10, 1) == ((message := tracker.message(0.0)).saved_step, message.saves)
    tracker.note({"step": 1}, 22.0)
    assert tracker.message(0.0).saved_step is None


def test_error_of_the_storage_is_repeated_until_its_end() -> None:
    """Messages may get lost; without an error there is nothing to send."""
    tracker = Tracker()
    sent = [tracker.note({"_storage": error}, 1.0) for error in ("", "no\x1b bucket", "no bucket", "", "")]
    assert [False, True, True, True, True] == sent
    assert "" == tracker.message(2.0).storage_error
    tracker.note({"_storage": "no\x1b bucket" + "x" * 2000}, 3.0)
    assert f"no bucket{'x' * 991}" == decoded(tracker.message(4.0)).storage_error


NAMES = [
    "_storage",
    "step",
    "total",
    "examples",
    "loss",
    "begun",
    "epoch",
    "epochs",
    "of",
    "source",
    "steps_per_second",
    "\ud800",
    "x",
]


@given(st.lists(st.dictionaries(st.sampled_from(NAMES), said), max_size=3))
def test_tracker_messages_are_always_decodable(reports: list[dict[str, Any]]) -> None:
    tracker = Tracker()
    heard = [tracker.note(report, float(number)) for number, report in enumerate(reports)]
    if any(heard):
        assert decoded(tracker.message(1e9)) is not None


def test_time_of_a_report_counts() -> None:
    """The last report of a program is sent at its exit; other clocks are ignored."""
    tracker = Tracker()
    tracker.note({"step": 10, "_time": 100.0}, 100.1)
    tracker.note({"step": 110, "_time": 110.0}, 113.0)
    assert 10.0 == tracker.message(0.0).steps_per_second
    for wrong in (109.0, 121.0, "x", math.nan):
        assert tracker.note({"step": 210, "_time": wrong}, 120.0)
    assert (10.0, {}) == (tracker.message(0.0).steps_per_second, tracker.message(0.0).metrics)


def test_printed_heading_is_not_sent_alone() -> None:
    """The first step would wait for the next message."""
    tracker = Tracker()
    assert not tracker.note({"source": OUTPUT, "epoch": 1, "epochs": 3}, 0.0)
    assert tracker.note({"source": OUTPUT, "epoch": 1, "epochs": 3, "step": 1}, 0.0)
    assert tracker.note({"epoch": 1, "epochs": 3}, 0.0)


def test_own_reports_override_detection() -> None:
    """Nothing that was detected remains: it may be in other units."""
    tracker = Tracker()
    assert tracker.note({"source": OUTPUT, "step": 5, "total": 9, "loss": 1.0, "lr": 0.1}, 0.0)
    assert OUTPUT == tracker.source
    assert tracker.note({"step": 3}, 1.0)
    assert not tracker.note({"source": EVENT_FILES, "step": 9}, 2.0)
    message = tracker.message(0.0)
    assert (REPORT, 3, None, None, {}) == (
        message.source, message.step, message.total, message.loss, message.metrics
    )  # fmt: skip


def test_detection_follows_what_is_ahead() -> None:
    """Event files are written late, and may count epochs as steps."""
    tracker = Tracker()
    assert tracker.note({"source": OUTPUT, "step": 100}, 0.0)
    assert not tracker.note({"source": EVENT_FILES, "step": 99}, 1.0)
    assert tracker.note({"source": EVENT_FILES, "step": 100}, 2.0)
    assert not tracker.note({"source": OUTPUT, "step": 100}, 3.0)
    assert tracker.note({"source": OUTPUT, "step": 101}, 4.0)
    assert (OUTPUT, 101) == (tracker.message(0.0).source, tracker.message(0.0).step)


def test_printed_metrics_stay_current_beside_event_files() -> None:
    """A program prints its accuracy, and its event files are ahead."""
    tracker = Tracker()
    tracker.note({"source": OUTPUT, "epoch": 1, "accuracy": 0.3}, 0.0)
    tracker.note({"source": EVENT_FILES, "step": 100, "loss": 0.5}, 1.0)

    assert tracker.note({"source": OUTPUT, "epoch": 2, "loss": 9.0, "accuracy": 0.9}, 2.0)
    assert not tracker.note({"source": OUTPUT, "epoch": 3, "loss": 9.0}, 3.0)
    message = tracker.message(4.0)
    assert (100, 0.5, {"accuracy": 0.9}, EVENT_FILES) == (message.step, message.loss, message.metrics, message.source)
    assert 2 == message.epoch


def test_step_of_a_checkpoint_that_is_stored_late_is_known() -> None:
    """A carrier reports it after the upload, with the time at which it was written."""
    tracker = Tracker()
    for step in range(1, 201):
        tracker.note({"step": step}, float(step))
    tracker.note({"_saved": 90.5}, 200.0)
    assert 0 <= 90 - (tracker.message(0.0).saved_step or 0) <= 3


def test_metric_may_have_the_name_of_a_field() -> None:
    tracker = Tracker()
    assert tracker.note({"step": 7, "members": 3}, 0.0)
    assert (7, 3.0, None) == ((message := tracker.message(0.0)).step, message.metrics["members"], message.members)


def test_first_step_without_a_finite_loss_is_kept() -> None:
    """Until the loss is finite again; a report without a loss changes nothing."""
    tracker, seen = Tracker(), []
    for step, loss in enumerate((0.5, math.nan, None, math.inf, 0.1, math.nan)):
        tracker.note({"step": step, "loss": loss}, float(step))
        seen.append(decoded(tracker.message(0.0)).nan_since)

    assert [None, 1, 1, 1, None, 5] == seen


def test_metrics_are_merged_and_limited() -> None:
    """The newest value of the first names."""
    tracker = Tracker()
    tracker.note({"step": 1, **{f"m{number}": number for number in range(15)}}, 0.0)
    tracker.note({"m0": 7, "val_loss": math.nan, "more": 1, "of": "job", "examples": 64}, 1.0)

    message = decoded(tracker.message(0.0))

    assert [*(f"m{number}" for number in range(15)), "val_loss"] == list(message.metrics)
    assert (7.0, 14.0, True) == (message.metrics["m0"], message.metrics["m14"], math.isnan(message.metrics["val_loss"]))
    assert "job" == message.of


def test_slow_steps_have_a_rate() -> None:
    """A step of 40 minutes, with four digits."""
    tracker = Tracker()
    for step in (1, 2):
        tracker.note({"step": step}, 2400.0 * step)
    assert 0.0004167 == tracker.message(0.0).steps_per_second


@pytest.mark.parametrize("done", [0.25, 0.75])
def test_time_left_includes_pauses(done: float) -> None:
    """70 steps of 0.1 s and a validation of 3 s in each of 20 epochs."""
    tracker, now = Tracker(), 0.0
    for step in range(1, int(1400 * done) + 1):
        now += 0.1 + 3.0 * (step % 70 == 1 and step > 1)
        tracker.note({"step": step, "total": 1400}, now)
    left = tracker.message(0.0).seconds_left
    assert left == pytest.approx((1 - done) * (1400 * 0.1 + 20 * 3.0), rel=0.1)


def test_no_time_left_in_the_first_10_seconds() -> None:
    """The first steps are slower, also after a restart at a checkpoint."""
    tracker = Tracker()
    for second in range(11):
        tracker.note({"step": 350 + second, "total": 700}, 50.0 + second)
        assert (second >= 10) == (tracker.message(0.0).seconds_left is not None)
    assert 340.0 == tracker.message(0.0).seconds_left
    tracker.note({"step": 1}, 61.0)
    assert tracker.message(0.0).seconds_left is None


@pytest.mark.parametrize("first", [0, 1, 5])
def test_total_is_estimated_from_epochs(first: int) -> None:
    """Of 70 steps each, counted from the first epoch of this launch."""
    tracker = Tracker()
    for epoch in (first, first + 1):
        for step in range(1, 71):
            tracker.note({"step": (epoch - first) * 70 + step, "epoch": epoch, "epochs": 10}, float(step))
    remaining = (10 - first) * 70
    total = tracker.message(0.0).total
    assert total is not None
    assert abs(remaining + 70 - total) <= 70


def test_epochs_are_not_steps() -> None:
    """Epochs have an estimate of the remaining time, but neither a step nor a rate."""
    tracker = Tracker()
    tracker.note({"epoch": 3, "epochs": 10}, 0.0)
    assert (None, 3, 10) == (tracker.message(0.0).step, tracker.message(0.0).epoch, tracker.message(0.0).epochs)
    tracker.note({"loss": 0.5}, 0.0)
    tracker.note({"epoch": 4, "loss": 0.2}, 20.0)
    message = tracker.message(0.0)
    assert (None, None, None, 4) == (message.step, message.total, message.steps_per_second, message.epoch)
    assert 120.0 == message.seconds_left
    tracker.note({"step": 400}, 21.0)
    assert (400, None) == (tracker.message(0.0).step, tracker.message(0.0).steps_per_second)


def test_printed_epochs_alone_are_sent_from_the_second_on() -> None:
    """The first may be the heading of an epoch whose steps follow."""
    tracker = Tracker()
    assert [False, True] == [tracker.note({"source": OUTPUT, "epoch": epoch}, 0.0) for epoch in (0, 1)]


def test_one_step_has_no_rate() -> None:
    """Some programs print the same step for minutes, with other metrics."""
    tracker = Tracker()
    for second in range(20):
        tracker.note({"source": OUTPUT, "step": 64, "loss": 1.0 / (second + 1)}, float(second))
    assert (64, None) == (tracker.message(0.0).step, tracker.message(0.0).steps_per_second)


def test_rate_is_of_steps_and_not_of_the_lines_between_them() -> None:
    """A line without a step says nothing about the time of the newest step."""
    tracker = Tracker()
    for second in (0.0, 10.0, 20.0):
        tracker.note({"source": OUTPUT, "step": int(second) * 10}, second)
        tracker.note({"source": OUTPUT, "accuracy": 0.5}, second + 5.0)
        assert tracker.message(0.0).steps_per_second in (None, 10.0)
    assert 10.0 == tracker.message(0.0).steps_per_second


def test_printed_rate_is_the_rate() -> None:
    """Also between steps of event files; an old one is not used again."""
    tracker = Tracker()
    for second in (0.0, 10.0, 20.0):
        tracker.note({"source": EVENT_FILES, "step": int(second) * 12}, second)
        tracker.note({"source": OUTPUT, "steps_per_second": 10.0}, second + 1.0)
    tracker.note({"source": OUTPUT, "examples_per_second": 2972.4}, 22.0)
    message = tracker.message(0.0)
    assert (10.0, 2972.4) == (message.steps_per_second, message.examples_per_second)
    for second in range(60, 120, 10):
        tracker.note({"source": EVENT_FILES, "step": second * 12}, float(second))
    assert 12.0 == tracker.message(0.0).steps_per_second


def test_steps_of_several_sources_are_rated_apart() -> None:
    """Files are written late: their newest step is older than the newest line."""
    tracker = Tracker()
    for second in range(10):
        tracker.note({"source": OUTPUT, "step": second * 10}, float(second))
    tracker.note({"source": EVENT_FILES, "step": 200}, 10.0)
    assert tracker.message(0.0).steps_per_second is None
    tracker.note({"source": EVENT_FILES, "step": 250}, 15.0)
    assert 10.0 == tracker.message(0.0).steps_per_second


@given(st.lists(st.tuples(st.integers(0, 100), st.floats(0, 5)), max_size=300))
def test_reader_memory_is_bounded(reports: list[tuple[int, float]]) -> None:
    tracker, now = Tracker(), 0.0
    for step, pause in reports:
        now += pause
        tracker.note({"step": step}, now)
    assert len(tracker._samples) <= WINDOW / 0.25 + 3


# With real processes.


def test_shell_script_can_report(executor: Any) -> None:
    executor.launch("for n in 1 2 3; do echo '{\"step\": '$n'}' > $TF_EXECUTOR_PROGRESS; done")
    executor.states("TASK_STARTING", "TASK_RUNNING", "TASK_FINISHED")
    last = executor.messages[-1]
    assert ("progress", 1, "t1", 3) == (last["kind"], last["version"], last["task_id"], last["step"])
    assert sorted({message["sequence"] for message in executor.messages}) == list(range(1, len(executor.messages) + 1))


def test_step_of_the_last_checkpoint_is_reported(executor: Any, tmp_path: Path) -> None:
    """It shows what a restart loses: here the steps 21 to 48."""
    program = """
import os, time, tf_executor
folder = os.environ["CHECKPOINT_DIR"]
tf_executor.report(step=20, total=100)
while not os.path.exists("step-20-is-known"):
    time.sleep(0.01)
os.mkdir(f"{folder}/ckpt-20")
open(f"{folder}/ckpt-20/model.keras", "w").close()
time.sleep(1.0)  # trains, while the executor looks ten times
tf_executor.report(step=48)
open(f"{folder}/events.out.tfevents.1.host", "w").close()
"""
    (executor.sandbox / "train.py").write_text(program)
    (tmp_path / "shared").mkdir()
    executor.launch("python train.py", environment={"CHECKPOINT_DIR": str(tmp_path / "shared")})
    executor.states("TASK_STARTING", "TASK_RUNNING")
    first = executor.messages[0] if executor.messages else executor.await_message()
    assert 20 == first["step"]
    (executor.sandbox / "step-20-is-known").touch()
    executor.states("TASK_FINISHED")
    assert (48, 20) == (executor.messages[-1]["step"], executor.messages[-1]["saved_step"])


@pytest.mark.parametrize("interval", [0.5, 3600.0])
def test_frequent_reports_send_few_messages(executor: Any, interval: float) -> None:
    program = """
import tf_executor
for step in range(1, 100_001):
    tf_executor.report(step=step, total=100_000, loss=1 / step, examples=32 * step)
"""
    (executor.sandbox / "train.py").write_text(program)
    executor.launch("python train.py", message_interval=interval)
    executor.states("TASK_STARTING", "TASK_RUNNING", "TASK_FINISHED")
    last = executor.messages[-1]
    assert [100_000, 100_000, 3_200_000] == [last[name] for name in ("step", "total", "examples")]
    assert len(executor.messages) <= 2 + (last["time"] - executor.messages[0]["time"]) / interval


def test_invalid_reports_are_ignored(executor: Any) -> None:
    rubbish = "echo; echo '{'; echo '[1]'; head -c 100000 /dev/zero; echo; echo '{\"step\": 4}'"
    executor.launch(f"({rubbish}) > $TF_EXECUTOR_PROGRESS")
    executor.states("TASK_STARTING", "TASK_RUNNING", "TASK_FINISHED")
    assert {4} >= {message["step"] for message in executor.messages}


def test_slow_scheduler_does_not_block_program(executor: Any) -> None:
    """`send` blocks forever; program and task end nevertheless."""
    executor.say("SLOW")
    executor.launch("for n in 1 2 3; do echo '{\"step\": '$n'}' > $TF_EXECUTOR_PROGRESS; done; echo done")
    executor.states("TASK_STARTING", "TASK_RUNNING", "TASK_FINISHED")
    assert "done\n" == executor.output()


@pytest.mark.usefixtures("real_tensorflow")
@pytest.mark.parametrize("legacy", ["0", "1"], ids=["keras-3", "tf_keras"])
def test_keras_callback_reports(executor: Any, legacy: str) -> None:
    program = """
import tensorflow as tf
from tf_executor.keras import ProgressCallback
model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
model.compile("sgd", "mse")
data = tf.data.Dataset.from_tensor_slices((tf.ones([64, 4]), tf.ones([64, 1]))).repeat().batch(8)
model.fit(data, epochs=3, initial_epoch=1, steps_per_epoch=8, verbose=0, callbacks=[ProgressCallback(batch_size=8)])
"""
    (executor.sandbox / "train.py").write_text(program)
    variables = {"TF_CPP_MIN_LOG_LEVEL": "2", "TF_USE_LEGACY_KERAS": legacy}
    executor.launch("python -W ignore train.py", python=sys.executable, environment=variables)
    end = executor.end("TASK_STARTING", "TASK_RUNNING")
    assert "TASK_FINISHED" == end["state"], end
    last = executor.messages[-1]
    assert [24, 24, 192] == [last[name] for name in ("step", "total", "examples")]
    assert isinstance(last["loss"], float)


def test_status_update_contains_no_progress(executor: Any) -> None:
    """The agent would resend the same one forever."""
    executor.launch("echo '{\"step\": 1}' > $TF_EXECUTOR_PROGRESS")
    status = executor.states("TASK_STARTING", "TASK_RUNNING", "TASK_FINISHED")
    assert {"exit_code": 0} == json.loads(base64.b64decode(status["data"]))


def test_checkpoint_counts_when_it_is_written(start_executor: Callable[..., Any], tmp_path: Path) -> None:
    """A restart during the write would leave nothing to resume from."""
    program = """
import os, time
with open(os.path.join(os.environ["CHECKPOINT_DIR"], "model.pt"), "w") as file:
    for _ in range(30):
        print("part", file=file, flush=True)
        time.sleep(0.1)
    open("written", "w").close()
while not os.path.exists("enough"):
    time.sleep(0.01)
"""
    executor = start_executor("t", "progress.tracking.SAVE_INTERVAL=1.0")
    (executor.sandbox / "train.py").write_text(program)
    executor.launch_running("python train.py", environment={"CHECKPOINT_DIR": str(tmp_path)})
    while (message := executor.await_message()).get("saves") is None:
        pass

    assert (1, True) == (message["saves"], (executor.sandbox / "written").exists())
    (executor.sandbox / "enough").touch()
    assert "TASK_FINISHED" == executor.update()["state"]
