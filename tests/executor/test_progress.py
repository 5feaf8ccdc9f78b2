from __future__ import annotations

import base64
import json
import math
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tf_executor.progress import MESSAGE_INTERVAL, WINDOW, ProgressReader, Tracker
from tf_executor.reports import Progress

DEEP = b"[" * 60_000
losses = st.none() | st.floats(allow_nan=False)
times = st.floats(allow_nan=False, allow_infinity=False)
speeds = st.none() | times
whole = st.none() | st.integers(0, 1 << 60)
counts = st.integers(0, 1 << 60)
said = st.none() | st.booleans() | st.integers(-(10**30), 10**30) | st.floats() | st.text(max_size=3) | st.just([])
ids = st.from_regex(r"[a-z0-9_.-]{1,100}", fullmatch=True)


@given(st.builds(Progress, ids, counts, times, whole, whole, losses, whole, speeds, speeds))
def test_progress_survives_the_wire(progress: Progress) -> None:
    """In strict JSON, infinite losses included."""
    data = progress.encode()
    json.loads(data, parse_constant=lambda text: pytest.fail(f"{text} is no JSON"))
    assert progress == Progress.decode(data)


def test_a_loss_that_is_no_number_is_told() -> None:
    """That is how a training that diverges looks."""
    decoded = Progress.decode(Progress("t", 1, 0.0, loss=math.nan).encode())
    assert decoded is not None
    assert decoded.loss is not None
    assert math.isnan(decoded.loss)


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
def test_what_is_no_progress_is_left_alone(data: bytes) -> None:
    """Other messages, other versions, rubbish."""
    assert Progress.decode(data) is None


def test_reports_are_merged_and_speeds_computed() -> None:
    """Over the time between the samples."""
    tracker = Tracker("t1")
    for second in range(11):
        assert tracker.note({"step": 100 * second, "examples": 3200 * second, "total": 5000}, 50.0 + second)
    tracker.note({"loss": 0.5}, 60.0)
    expected = Progress("t1", 1, 1e9, 1000, 5000, 0.5, 32_000, 100.0, 3200.0)
    assert expected == tracker.message(1e9)
    assert 2 == tracker.message(1e9).sequence


def test_speeds_are_those_of_the_last_half_minute() -> None:
    """Not of the slow start."""
    tracker = Tracker("t1")
    tracker.note({"step": 0}, 0.0)
    for second in range(1000, 1041):
        tracker.note({"step": 10 * (second - 1000)}, float(second))
    assert 10.0 == tracker.message(0.0).steps_per_second
    assert WINDOW < 1000


def test_a_step_that_goes_back_starts_a_new_measurement() -> None:
    """A second training in the same program: no negative speed."""
    tracker = Tracker("t1")
    tracker.note({"step": 1000}, 0.0)
    tracker.note({"step": 10}, 10.0)
    assert tracker.message(0.0).steps_per_second is None
    tracker.note({"step": 30}, 20.0)
    assert 2.0 == tracker.message(0.0).steps_per_second


@pytest.mark.parametrize("report", [{}, {"step": "x"}, {"step": None}, {"step": math.inf}, {"epoch": 3}, {"loss": []}])
def test_a_report_that_says_nothing_is_none(report: dict[str, Any]) -> None:
    """Whatever a program writes."""
    tracker = Tracker("t1")
    assert not tracker.note(report, 0.0)
    assert (None, False) == (tracker.last, tracker.is_told)


def test_event_files_are_looked_at_a_last_time_when_the_program_has_ended(tmp_path: Path) -> None:
    """Otherwise the last seconds of every training would be missing."""
    told: list[bytes] = []
    os.mkfifo(tmp_path / "pipe")
    reader = ProgressReader(tmp_path / "pipe", "worker-0__1", lambda message: not told.append(message))
    reader.detect(lambda: {"step": 7})
    reader.stop(10)
    assert 7 == json.loads(told[-1])["step"]


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
def test_whatever_a_line_holds_the_next_one_is_heard(tmp_path: Path, line: bytes) -> None:
    """A program must not be able to end the thread."""
    told: list[bytes] = []
    os.mkfifo(tmp_path / "pipe")
    reader = ProgressReader(tmp_path / "pipe", "worker-0__1", lambda message: not told.append(message))
    with (tmp_path / "pipe").open("wb") as pipe:
        pipe.write(line + b'\n{"step": 7}\n')
    reader.stop(30)
    assert 7 == json.loads(told[-1])["step"]


@given(st.lists(st.dictionaries(st.sampled_from(["step", "total", "examples", "loss", "begun"]), said), max_size=3))
def test_whatever_is_reported_the_message_is_one_that_the_scheduler_takes(reports: list[dict[str, Any]]) -> None:
    """What is no count of 64 bits, and no time, is left out."""
    tracker = Tracker("t1")
    heard = [tracker.note(report, float(number)) for number, report in enumerate(reports)]
    if any(heard):
        assert Progress.decode(tracker.message(1e9).encode()) is not None


def test_what_the_program_says_wins_over_what_was_detected() -> None:
    """From then on detection is not listened to."""
    tracker = Tracker("t1")
    assert tracker.note({"detected": True, "step": 5, "loss": 1.0}, 0.0)
    assert not tracker.is_told
    assert tracker.note({"step": 3}, 1.0)
    assert not tracker.note({"detected": True, "step": 9}, 2.0)
    assert 3 == tracker.message(0.0).step


@given(st.lists(st.tuples(st.integers(0, 100), st.floats(0, 5)), max_size=300))
def test_memory_is_bounded(reports: list[tuple[int, float]]) -> None:
    """However often and whatever is reported."""
    tracker, now = Tracker("t1"), 0.0
    for step, pause in reports:
        now += pause
        tracker.note({"step": step}, now)
    assert len(tracker._samples) <= WINDOW / 0.25 + 3


# With real processes.


def test_a_shell_script_can_report(executor: Any) -> None:
    """One line of JSON; the last one is told before the end, whatever the interval."""
    executor.launch("for n in 1 2 3; do echo '{\"step\": '$n'}' > $TF_EXECUTOR_PROGRESS; done")
    executor.states("TASK_STARTING", "TASK_RUNNING", "TASK_FINISHED")
    last = executor.messages[-1]
    assert ("progress", 1, "t1", 3) == (last["kind"], last["version"], last["task_id"], last["step"])
    assert sorted({message["sequence"] for message in executor.messages}) == list(range(1, len(executor.messages) + 1))


def test_a_training_that_reports_every_step_sends_few_messages(executor: Any) -> None:
    """A hundred thousand calls; the scheduler hears the last."""
    program = """
import tf_executor
for step in range(1, 100_001):
    tf_executor.report(step=step, total=100_000, loss=1 / step, examples=32 * step)
"""
    (executor.sandbox / "train.py").write_text(program)
    executor.launch("python train.py")
    executor.states("TASK_STARTING", "TASK_RUNNING", "TASK_FINISHED")
    last = executor.messages[-1]
    assert [100_000, 100_000, 3_200_000] == [last[name] for name in ("step", "total", "examples")]
    assert len(executor.messages) <= 2 + (last["time"] - executor.messages[0]["time"]) / MESSAGE_INTERVAL


def test_rubbish_in_the_pipe_harms_nobody(executor: Any) -> None:
    """A program may write what it likes."""
    rubbish = "echo; echo '{'; echo '[1]'; head -c 100000 /dev/zero; echo; echo '{\"step\": 4}'"
    executor.launch(f"({rubbish}) > $TF_EXECUTOR_PROGRESS")
    executor.states("TASK_STARTING", "TASK_RUNNING", "TASK_FINISHED")
    assert {4} >= {message["step"] for message in executor.messages}


def test_the_program_is_not_held_up_by_a_slow_scheduler(executor: Any) -> None:
    """The wire blocks for ever: the program ends, and so does the task."""
    executor.say("SLOW")
    executor.launch("for n in 1 2 3; do echo '{\"step\": '$n'}' > $TF_EXECUTOR_PROGRESS; done; echo done")
    executor.states("TASK_STARTING", "TASK_RUNNING", "TASK_FINISHED")
    assert "done\n" == executor.output()


@pytest.mark.tensorflow
@pytest.mark.parametrize("legacy", ["0", "1"], ids=["keras-3", "tf_keras"])
def test_the_keras_callback(executor: Any, legacy: str) -> None:
    """With either Keras: steps of all epochs, examples, a loss."""
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


def test_a_status_update_has_no_progress_in_it(executor: Any) -> None:
    """The agent would send the same one again for ever."""
    executor.launch("echo '{\"step\": 1}' > $TF_EXECUTOR_PROGRESS")
    status = executor.states("TASK_STARTING", "TASK_RUNNING", "TASK_FINISHED")
    assert {"exit_code": 0} == json.loads(base64.b64decode(status["data"]))
