"""TensorBoard event files: written by a real TensorFlow where marked, else by hand."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tf_executor import event_files
from tf_executor.detection import Detector
from tf_executor.event_files import BrokenFileError, EventFile, Scalar, scalars

STARTED = 1_700_000_000
NAME = f"events.out.tfevents.{STARTED + 5}.{socket.gethostname()}"


def varint(number: int) -> bytes:
    text = b""
    while number > 127:
        text += bytes([number & 127 | 128])
        number >>= 7
    return text + bytes([number])


def field(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def event(step: int, tag: str, value: float, time: float = 1.5e9) -> bytes:
    """As tf.compat.v1.summary.scalar writes it."""
    summary = field(1, field(1, tag.encode()) + varint(2 << 3 | 5) + struct.pack("<f", value))
    return varint(1 << 3 | 1) + struct.pack("<d", time) + varint(2 << 3) + varint(step) + field(5, summary)


def record(content: bytes) -> bytes:
    length = struct.pack("<Q", len(content))
    return length + struct.pack("<I", event_files._masked_crc(length)) + content + bytes(4)


def write(path: Path, events: Iterable[bytes], mode: str = "ab") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open(mode) as file:
        for content in events:
            file.write(record(content))
    return path


def test_the_checksum_is_the_known_one() -> None:
    """CRC-32C of "123456789" is 0xE3069283 (RFC 3720, B.4 gives others); masked as TensorFlow does."""
    crc = 0xE3069283
    masked = (((crc >> 15) | (crc << 17 & 0xFFFFFFFF)) + 0xA282EAD8) & 0xFFFFFFFF
    assert masked == event_files._masked_crc(b"123456789")


def test_a_file_that_grows_is_read_on(tmp_path: Path) -> None:
    """Each look gives what is new; half a record waits for its end."""
    path = write(tmp_path / NAME, [b"", event(1, "loss", 0.5)])
    file = EventFile(path)
    assert [Scalar("loss", 1, 0.5)] == file.new_scalars()
    assert [] == file.new_scalars()
    whole = record(event(2, "loss", 0.25))
    with path.open("ab") as out:
        out.write(whole[:20])
    assert [] == file.new_scalars()
    with path.open("ab") as out:
        out.write(whole[20:])
    assert [Scalar("loss", 2, 0.25)] == file.new_scalars()


def test_of_much_only_the_newest_part_is_taken(tmp_path: Path) -> None:
    """A hundred thousand values come at once."""
    path = write(tmp_path / NAME, (event(step, "loss", 1.0) for step in range(50_000)))
    found = EventFile(path).new_scalars()
    assert 49_999 == found[-1].step
    assert len(found) < 5000


def test_a_picture_larger_than_a_look_is_stepped_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes after it is found."""
    monkeypatch.setattr(event_files, "LOOK_BYTES", 1000)
    path = write(tmp_path / NAME, [bytes(5000), event(7, "loss", 1.0)])
    file = EventFile(path)
    assert [] == file.new_scalars()
    assert [Scalar("loss", 7, 1.0)] == file.new_scalars()


@given(st.binary(max_size=200))
def test_broken_events_say_nothing(data: bytes) -> None:
    """Whatever the bytes, no exception and no endless loop."""
    assert isinstance(scalars(data), list)


@settings(deadline=None)
@given(st.binary(min_size=12, max_size=100))
def test_another_file_is_recognised(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    """By the checksum of its first length."""
    path = tmp_path_factory.mktemp("other") / "file"
    path.write_bytes(data)
    if event_files._masked_crc(data[:8]) != int.from_bytes(data[8:12], "little"):
        with pytest.raises(BrokenFileError):
            EventFile(path).new_scalars()


def a_detector(*folders: Path, processes: Sequence[int] = ()) -> Detector:
    return Detector(folders, STARTED, lambda: processes, folders[0])


def test_the_newest_step_and_the_loss_are_told_once(tmp_path: Path) -> None:
    """Below the folder, in any file of ours; nothing new says nothing."""
    write(tmp_path / "run" / "train" / NAME, [event(1, "epoch_accuracy", 0.1), event(1, "epoch_loss", 0.5)])
    detector = a_detector(tmp_path)
    assert {"step": 1, "loss": 0.5} == detector.look()
    assert {} == detector.look()
    write(tmp_path / "run" / "train" / NAME, [event(2, "epoch_loss", 0.25)])
    assert {"step": 2, "loss": 0.25} == detector.look()


@pytest.mark.parametrize(
    "path",
    [
        f"events.out.tfevents.{STARTED - 100}.{socket.gethostname()}",
        f"events.out.tfevents.{STARTED + 5}.another-host",
        f"validation/{NAME}",
        f"eval/{NAME}",
        f".hidden/{NAME}",
        f"a/b/c/d/{NAME}",
        "events.txt",
    ],
)
def test_files_of_others_are_left_alone(tmp_path: Path, path: str) -> None:
    """Of an earlier run, of another host, of an evaluation; too deep."""
    write(tmp_path / path, [event(1, "loss", 0.5)])
    assert {} == a_detector(tmp_path).look()


@pytest.mark.parametrize(("processes", "expected"), [([7, 123], {"step": 1, "loss": 0.5}), ([7], {})])
def test_tasks_on_one_host_are_told_apart_by_process(tmp_path: Path, processes: list[int], expected: object) -> None:
    """TensorFlow 2 puts the id into the name."""
    write(tmp_path / f"{NAME}.123.0.v2", [event(1, "loss", 0.5)])
    assert expected == a_detector(tmp_path, processes=processes).look()


WRITER = """
import sys
file = open(sys.argv[1], "ab") if sys.argv[1:] else None
print("ready", flush=True)
sys.stdin.read()
"""


def test_who_has_a_file_open_in_a_shared_folder_writes_it(tmp_path: Path) -> None:
    """Names of TensorFlow 1 have no process: of two tasks on one host, the one that sleeps makes no progress."""
    path = tmp_path / "shared" / NAME
    write(path, [event(1, "loss", 0.5)])
    with started(path) as writer, started() as sleeper:
        working, hung = (
            Detector([tmp_path / "own", path.parent], STARTED, lambda pid=process.pid: [pid], tmp_path / "own")
            for process in (writer, sleeper)
        )
        assert ({}, {"step": 1, "loss": 0.5}) == (hung.look(), working.look())
        write(path, [event(2, "loss", 0.25)])
        assert ({}, {"step": 2, "loss": 0.25}) == (hung.look(), working.look())
    write(path, [event(3, "loss", 0.125)])
    assert ({}, {"step": 3, "loss": 0.125}) == (hung.look(), working.look()), "it is known whose it was"


@contextmanager
def started(*paths: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that has these open, until the end of the block."""
    command = [sys.executable, "-c", WRITER, *map(str, paths)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            assert b"ready\n" == process.stdout.readline()
            yield process
        finally:
            process.kill()


def test_a_file_that_is_opened_later_is_ours_from_then_on(tmp_path: Path) -> None:
    """Nobody had it open when it was seen first: a host whose name begins like ours may have written it."""
    path = tmp_path / "shared" / f"{NAME}0"
    write(path, [event(1, "loss", 0.5)])
    detector = Detector([path.parent], STARTED, lambda: [os.getpid()], tmp_path / "own")

    assert {} == detector.look()
    with path.open("ab"):
        assert {"step": 1, "loss": 0.5} == detector.look()


def test_the_loss_of_the_training_is_preferred(tmp_path: Path) -> None:
    """`loss` over `regularization_loss`, never that of a validation."""
    events = [event(3, "val_loss", 9.0), event(3, "regularization_loss", 8.0), event(3, "train/loss", 1.0)]
    write(tmp_path / NAME, events)
    assert {"step": 3, "loss": 1.0} == a_detector(tmp_path).look()


def test_examples_are_counted_by_a_scalar_of_that_name(tmp_path: Path) -> None:
    """What is no count is not told."""
    write(tmp_path / NAME, [event(3, "train/examples", 96.0), event(3, "loss", 1.0)])
    detector = a_detector(tmp_path)
    assert {"step": 3, "loss": 1.0, "examples": 96} == detector.look()
    write(tmp_path / NAME, [event(4, "examples", float("nan")), event(4, "examples", -1.0)])
    assert {"step": 4, "loss": 1.0, "examples": 96} == detector.look()


def test_the_time_of_the_first_step_is_that_of_its_event(tmp_path: Path) -> None:
    """However late we look. Step 0 is before the first, and what is older than the task is of another run."""
    events = [event(0, "loss", 9.0, STARTED + 1), event(1, "loss", 9.0, STARTED - 1)]
    write(tmp_path / NAME, [*events, event(1, "loss", 1.0, STARTED + 7), event(50, "loss", 0.5, STARTED + 30)])

    assert STARTED + 7 == a_detector(tmp_path).look()["begun"]


def test_a_broken_file_does_not_hide_the_others(tmp_path: Path) -> None:
    """It is not looked at again."""
    (tmp_path / f"{NAME}.broken").write_bytes(b"rubbish rubbish rubbish")
    write(tmp_path / NAME, [event(4, "loss", 1.0)])
    assert {"step": 4, "loss": 1.0} == a_detector(tmp_path, tmp_path / "none").look()


def test_a_folder_with_many_files_costs_little(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of entries that are looked at is bounded."""
    monkeypatch.setattr("tf_executor.detection.MOST_ENTRIES", 10)
    for number in range(20):
        write(tmp_path / f"{NAME}.{number}", [event(number, "loss", 1.0)])
    detector = a_detector(tmp_path)
    detector.look()
    assert len(detector._files) == 10


TRAIN = """
import sys, tensorflow as tf
folder = sys.argv[1]
writer = tf.summary.create_file_writer(folder + "/two")
with writer.as_default():
    for step in range(5):
        tf.summary.scalar("loss", 1.0 / (step + 1), step=step)
        tf.summary.histogram("weights", tf.random.normal([1000]), step=step)
writer.close()
with tf.Graph().as_default():
    v1 = tf.compat.v1
    writer = v1.summary.FileWriter(folder + "/one")
    for step in range(5):
        summary = v1.Summary(value=[v1.Summary.Value(tag="loss", simple_value=2.0 / (step + 1))])
        writer.add_summary(summary, step)
    writer.close()
"""


@pytest.mark.tensorflow
def test_files_of_a_real_tensorflow(tmp_path: Path) -> None:
    """Both ways to write a scalar, with other summaries between; the names are as we expect."""
    environment, began = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"}, time.time()
    with subprocess.Popen([sys.executable, "-c", TRAIN, str(tmp_path)], env=environment) as process:
        assert 0 == process.wait()
    for folder, first in (("one", 2.0), ("two", 1.0)):
        (path,) = (tmp_path / folder).iterdir()
        found = [scalar for scalar in EventFile(path).new_scalars() if scalar.tag == "loss"]
        assert [(step, pytest.approx(first / (step + 1))) for step in range(5)] == [(s.step, s.value) for s in found]
        detector = Detector([path.parent], STARTED, lambda: [process.pid], path.parent)
        found = detector.look()
        assert (4, pytest.approx(first / 5)) == (found["step"], found["loss"])
        assert began < found["begun"] < time.time()


@pytest.mark.tensorflow
def test_a_program_that_says_nothing_is_followed(executor: Any) -> None:
    """It only has TensorBoard's callback, as most have."""
    program = """
import tensorflow as tf
model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
model.compile("sgd", "mse")
board = tf.keras.callbacks.TensorBoard("logs", update_freq=1)
model.fit(tf.ones([64, 4]), tf.ones([64, 1]), batch_size=8, epochs=2, verbose=0, callbacks=[board])
open("ready", "w").write("ready")
open("go").read()
"""
    os.mkfifo(executor.sandbox / "go")
    (executor.sandbox / "train.py").write_text(program)
    environment = {"TF_CPP_MIN_LOG_LEVEL": "2"}
    executor.launch("python -W ignore train.py", python=sys.executable, environment=environment, event_folders=["."])
    executor.states("TASK_STARTING", "TASK_RUNNING")
    executor.await_file("ready")
    message = executor.await_message()
    (executor.sandbox / "go").write_text("go")
    executor.states("TASK_FINISHED")
    assert message["step"] > 0
    assert isinstance(message["loss"], float)
