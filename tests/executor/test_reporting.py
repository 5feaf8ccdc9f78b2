from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tf_executor.user import reporting
from tf_executor.user.reporting import INTERVAL, Reporter


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[tuple[str, int]]:
    """Yield the path of a named pipe and a descriptor to read it."""
    path = tmp_path / "progress"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDWR | os.O_NONBLOCK)
    yield str(path), reader
    os.close(reader)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def lines(reader: int) -> list[dict[str, Any]]:
    try:
        return [json.loads(line) for line in os.read(reader, 1 << 20).splitlines()]
    except BlockingIOError:
        return []


def test_reporter_limits_rate_and_sends_newest(pipe: tuple[str, int]) -> None:
    clock = Clock()
    reporter = Reporter(pipe[0], clock)
    reporter.report({"total": 1000})
    for step in range(1, 500):
        reporter.report({"step": step})
    clock.now += INTERVAL
    reporter.report({"step": 500, "loss": 0.5})
    first, last = lines(pipe[1])
    assert ({"total": 1000, "_time": 100.0}, clock.now) == (first, last.pop("_time"))
    assert {"total": 1000, "step": 500, "loss": 0.5} == last


def test_reporter_flush_sends_rest(pipe: tuple[str, int]) -> None:
    reporter = Reporter(pipe[0], Clock())
    reporter.report({"step": 1})
    reporter.report({"step": 2})
    reporter.flush()
    reporter.flush()
    assert [{"step": 1, "_time": 100.0}, {"step": 2, "_time": 100.0}] == lines(pipe[1])


def test_reporter_without_reader_continues(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "progress")
    for path in (tmp_path / "progress", tmp_path / "none"):
        Reporter(str(path), Clock()).report({"step": 1})


def test_reporter_with_full_pipe_does_not_block(pipe: tuple[str, int]) -> None:
    clock = Clock()
    reporter = Reporter(pipe[0], clock)
    for step in range(10_000):
        clock.now += INTERVAL
        reporter.report({"step": step, "loss": 0.123456789})
    assert len(lines(pipe[1])) < 10_000
    reporter.flush()
    assert [{"step": 9999, "loss": 0.123456789, "_time": clock.now}] == lines(pipe[1])


class Tensor:
    """A number type like TensorFlow's or numpy's."""

    def __float__(self) -> float:
        return 0.25


class Broken:
    def __float__(self) -> float:
        raise RuntimeError("the accelerator is gone")


def test_reporter_converts_numbers(pipe: tuple[str, int]) -> None:
    Reporter(pipe[0], Clock()).report({"loss": Tensor(), "step": Broken(), "total": "x"})
    assert [{"loss": 0.25, "step": None, "total": None, "_time": 100.0}] == lines(pipe[1])


def test_reporter_limits_metrics(pipe: tuple[str, int]) -> None:
    """A message must fit into one atomic write; the first names are sent."""
    reporter = Reporter(pipe[0], Clock())
    reporter.report({"step": 1, "x" * 65: 1.0})
    for number in range(100):
        reporter.report({f"{number:064}": 1 / 3})
    reporter.report({"step": 2, f"{0:064}": 0.5})
    reporter.flush()
    last = lines(pipe[1])[-1]
    assert (2, 0.5) == (last["step"], last[f"{0:064}"])
    assert 16 <= len(last) <= 24


def test_report_sends_names_of_the_program(pipe: tuple[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """What examples cover is text, and only sent with examples."""
    reporter = Reporter(pipe[0], Clock())
    monkeypatch.setattr(reporting, "_reporter", reporter)
    reporting.report(step=1, accuracy=0.98, lr=Tensor())
    reporting.report(examples=64, of="job", epoch=1, epochs=3)
    reporter.flush()
    assert [
        {"step": 1, "accuracy": 0.98, "lr": 0.25, "_time": 100.0},
        {"step": 1, "accuracy": 0.98, "lr": 0.25, "examples": 64, "of": "job", "epoch": 1, "epochs": 3, "_time": 100.0},
    ] == lines(pipe[1])


def test_report_never_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug here must not end a training."""
    monkeypatch.setattr(reporting, "_reporter", object())
    reporting.report(step=2)
    reporting._flush()


def test_report_outside_task_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(reporting.PIPE_VARIABLE, raising=False)
    monkeypatch.setattr(reporting, "_reporter", None)
    reporting.report(step=1)
    assert reporting._reporter is None
