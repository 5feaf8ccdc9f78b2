"""TensorBoard event files, written by hand or by a real TensorFlow."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tf_executor.progress import event_files
from tf_executor.progress.event_files import EventFile, EventFileError, ProgressDetector, Scalar, scalars

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
    """Return an event as tf.compat.v1.summary.scalar writes it."""
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


def test_checksum_matches_known_value() -> None:
    crc = 0xE3069283
    masked = (((crc >> 15) | (crc << 17 & 0xFFFFFFFF)) + 0xA282EAD8) & 0xFFFFFFFF
    assert masked == event_files._masked_crc(b"123456789")


def test_growing_file_is_read_from_last_end(tmp_path: Path) -> None:
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


def test_large_file_yields_only_newest_scalars(tmp_path: Path) -> None:
    path = write(tmp_path / NAME, (event(step, "loss", 1.0) for step in range(50_000)))
    scalars = EventFile(path).new_scalars()
    assert 49_999 == scalars[-1].step
    assert len(scalars) < 5000


def test_record_larger_than_one_read_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_files, "READ_BYTES", 1000)
    path = write(tmp_path / NAME, [bytes(5000), event(7, "loss", 1.0)])
    file = EventFile(path)
    assert [] == file.new_scalars()
    assert [Scalar("loss", 7, 1.0)] == file.new_scalars()


@given(st.binary(max_size=200))
def test_broken_events_yield_no_scalars(data: bytes) -> None:
    assert isinstance(scalars(data), list)


@settings(deadline=None)
@given(st.binary(min_size=12, max_size=100))
def test_other_file_raises_event_file_error(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.mktemp("other") / "file"
    path.write_bytes(data)
    if event_files._masked_crc(data[:8]) != int.from_bytes(data[8:12], "little"):
        with pytest.raises(EventFileError):
            EventFile(path).new_scalars()


def a_detector(*folders: Path, processes: Sequence[int] = ()) -> ProgressDetector:
    return ProgressDetector(folders, STARTED, lambda: processes, folders[0])


def test_detector_reports_newest_step_and_loss_once(tmp_path: Path) -> None:
    write(tmp_path / "run" / "train" / NAME, [event(1, "accuracy", 0.1), event(1, "loss", 0.5)])
    detector = a_detector(tmp_path)
    assert {"step": 1, "loss": 0.5} == detector.scan()
    assert {} == detector.scan()
    write(tmp_path / "run" / "train" / NAME, [event(2, "loss", 0.25)])
    assert {"step": 2, "loss": 0.25} == detector.scan()


def test_detector_tells_epochs_of_keras_from_steps(tmp_path: Path) -> None:
    """Keras' TensorBoard callback numbers epochs from 0."""
    write(tmp_path / NAME, [event(0, "epoch_accuracy", 0.1), event(0, "epoch_loss", 0.5)])
    detector = a_detector(tmp_path)
    assert {"epoch": 1, "loss": 0.5} == detector.scan()
    write(tmp_path / NAME, [event(9, "batch_loss", 0.5), event(1, "epoch_loss", 0.25)])
    assert {"step": 9, "epoch": 2, "loss": 0.25} == detector.scan()


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
def test_detector_ignores_files_of_others(tmp_path: Path, path: str) -> None:
    write(tmp_path / path, [event(1, "loss", 0.5)])
    assert {} == a_detector(tmp_path).scan()


@pytest.mark.parametrize(("processes", "expected"), [([7, 123], {"step": 1, "loss": 0.5}), ([7], {})])
def test_detector_selects_files_by_process(tmp_path: Path, processes: list[int], expected: object) -> None:
    write(tmp_path / f"{NAME}.123.0.v2", [event(1, "loss", 0.5)])
    assert expected == a_detector(tmp_path, processes=processes).scan()


WRITER = """
import sys
file = open(sys.argv[1], "ab") if sys.argv[1:] else None
print("ready", flush=True)
sys.stdin.read()
"""


def test_detector_accepts_file_that_own_process_has_open(tmp_path: Path) -> None:
    path = tmp_path / "shared" / NAME
    write(path, [event(1, "loss", 0.5)])
    with started(path) as writer, started() as sleeper:
        working, hung = (
            ProgressDetector([tmp_path / "own", path.parent], STARTED, partial(list, (process.pid,)), tmp_path / "own")
            for process in (writer, sleeper)
        )
        assert ({}, {"step": 1, "loss": 0.5}) == (hung.scan(), working.scan())
        write(path, [event(2, "loss", 0.25)])
        assert ({}, {"step": 2, "loss": 0.25}) == (hung.scan(), working.scan())
    write(path, [event(3, "loss", 0.125)])
    assert ({}, {"step": 3, "loss": 0.125}) == (hung.scan(), working.scan()), "it is known whose it was"


@contextmanager
def started(*paths: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a process that has the files open."""
    command = [sys.executable, "-c", WRITER, *map(str, paths)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            assert b"ready\n" == process.stdout.readline()
            yield process
        finally:
            process.kill()


def test_detector_accepts_file_opened_later(tmp_path: Path) -> None:
    path = tmp_path / "shared" / f"{NAME}0"
    write(path, [event(1, "loss", 0.5)])
    detector = ProgressDetector([path.parent], STARTED, lambda: [os.getpid()], tmp_path / "own")

    assert {} == detector.scan()
    with path.open("ab"):
        assert {"step": 1, "loss": 0.5} == detector.scan()


def test_detector_prefers_training_loss(tmp_path: Path) -> None:
    events = [event(3, "val_loss", 9.0), event(3, "regularization_loss", 8.0), event(3, "train/loss", 1.0)]
    write(tmp_path / NAME, events)
    assert {"step": 3, "loss": 1.0} == a_detector(tmp_path).scan()


def test_detector_ignores_sums_over_replicas(tmp_path: Path) -> None:
    """Keras 2 adds up the values of batches, but not those of epochs."""
    write(tmp_path / NAME, [event(3, "batch_loss", 9.0)])
    detector = ProgressDetector([tmp_path], STARTED, list, tmp_path, is_mirrored=True)
    assert {"step": 3} == detector.scan()
    write(tmp_path / NAME, [event(4, "epoch_loss", 3.0), event(5, "train/batch_loss", 9.0)])
    assert {"step": 5, "epoch": 5, "loss": 3.0} == detector.scan()


def test_detector_reads_examples_scalar(tmp_path: Path) -> None:
    write(tmp_path / NAME, [event(3, "train/examples", 96.0), event(3, "loss", 1.0)])
    detector = a_detector(tmp_path)
    assert {"step": 3, "loss": 1.0, "examples": 96} == detector.scan()
    write(tmp_path / NAME, [event(4, "examples", float("nan")), event(4, "examples", -1.0)])
    assert {"step": 4, "loss": 1.0, "examples": 96} == detector.scan()


def test_detector_reports_time_of_first_step(tmp_path: Path) -> None:
    events = [event(0, "loss", 9.0, STARTED + 1), event(1, "loss", 9.0, STARTED - 1)]
    write(tmp_path / NAME, [*events, event(1, "loss", 1.0, STARTED + 7), event(50, "loss", 0.5, STARTED + 30)])

    assert STARTED + 7 == a_detector(tmp_path).scan()["begun"]


def test_detector_skips_broken_file(tmp_path: Path) -> None:
    (tmp_path / f"{NAME}.broken").write_bytes(b"rubbish rubbish rubbish")
    write(tmp_path / NAME, [event(4, "loss", 1.0)])
    assert {"step": 4, "loss": 1.0} == a_detector(tmp_path, tmp_path / "none").scan()


def test_detector_limits_scanned_entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tf_executor.progress.event_files.MAX_ENTRIES", 10)
    for number in range(20):
        write(tmp_path / f"{NAME}.{number}", [event(number, "loss", 1.0)])
    detector = a_detector(tmp_path)
    detector.scan()
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


@pytest.mark.usefixtures("real_tensorflow")
def test_detector_reads_files_of_real_tensorflow(tmp_path: Path) -> None:
    environment, began = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"}, time.time()
    with subprocess.Popen([sys.executable, "-c", TRAIN, str(tmp_path)], env=environment) as process:
        assert 0 == process.wait()
    for folder, first in (("one", 2.0), ("two", 1.0)):
        (path,) = (tmp_path / folder).iterdir()
        losses = [scalar for scalar in EventFile(path).new_scalars() if scalar.tag == "loss"]
        assert list(range(5)) == [scalar.step for scalar in losses]
        assert [scalar.value for scalar in losses] == pytest.approx([first / (step + 1) for step in range(5)])
        detector = ProgressDetector([path.parent], STARTED, lambda: [process.pid], path.parent)
        progress = detector.scan()
        assert 4 == progress["step"]
        assert progress["loss"] == pytest.approx(first / 5)
        assert began < progress["begun"] < time.time()


@pytest.mark.usefixtures("real_tensorflow")
def test_program_without_reports_is_followed(executor: Any) -> None:
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
    executor.launch_ready(
        "python -W ignore train.py", python=sys.executable, environment=environment, event_folders=["."]
    )
    message = executor.await_message()
    (executor.sandbox / "go").write_text("go")
    executor.states("TASK_FINISHED")
    assert message["step"] > 0
    assert isinstance(message["loss"], float)
