"""Messages of executors."""

from __future__ import annotations

import base64
import json

import pytest

from tf_executor.contract import reports
from tf_scheduler.mesos import decode
from tf_scheduler.model.events import ProgressReported, UsageReported
from tf_scheduler.model.task import Progress, Usage


def message(data: bytes, executor: str = "worker-0__1") -> dict[str, object]:
    """Return a message as a master sends it."""
    body = {"agent_id": {"value": "a-1"}, "executor_id": {"value": executor}, "data": base64.b64encode(data).decode()}
    return {"type": "MESSAGE", "message": body}


def test_progress_message_is_decoded() -> None:
    more = {"epoch": 2, "epochs": 8, "left": 38.0, "of": "job", "source": "output", "metrics": {"lr": 0.1}}
    report = reports.ProgressReport("worker-0__1", 7, 1e9, 120, 500, 0.25, 3840, 10.0, 320.0, **more)
    expected = ProgressReported("worker-0__1", Progress(7, 1e9, 120, 500, 0.25, 3840, 10.0, 320.0, **more), "a-1")
    assert expected == decode.event(message(report.encode()))


def test_usage_message_is_decoded() -> None:
    report = reports.UsageReport("worker-0__1", 300.5, 180.0, 0.75)
    assert UsageReported(Usage("worker-0__1", 300.5, 180.0, 0.75), "a-1") == decode.event(message(report.encode()))
    assert decode.event(message(report.encode(), executor="worker-1__1")) is None
    ended = reports.UsageReport("worker-0__1", 300.5)
    assert UsageReported(Usage("worker-0__1", 300.5), "a-1") == decode.event(message(ended.encode()))


@pytest.mark.parametrize("wrong", [{"memory_used_mb": -1.0}, {"memory_peak_mb": "1"}, {"cpus_used": float("nan")}])
def test_invalid_usage_is_ignored(wrong: dict[str, object], caplog: pytest.LogCaptureFixture) -> None:
    report = {"version": 1, "kind": "usage", "task_id": "worker-0__1", "memory_peak_mb": 1.0, **wrong}
    assert decode.event(message(json.dumps(report).encode())) is None
    assert f"usage report with invalid or missing fields: {', '.join(wrong)}" in caplog.text


def test_progress_of_another_task_is_ignored() -> None:
    """A message without an executor is ignored, too."""
    report = reports.ProgressReport("worker-0__1", 7, 1e9).encode()
    anonymous = {"type": "MESSAGE", "message": {"data": base64.b64encode(report).decode()}}

    assert decode.event(message(report)) is not None
    assert decode.event(message(report, executor="worker-1__1")) is None
    assert decode.event(anonymous) is None


@pytest.mark.parametrize("data", [b"", b"rubbish", b'{"version": 99, "kind": "progress"}', b'{"kind": "chat"}'])
def test_foreign_message_yields_no_event(data: bytes) -> None:
    """Of another version or another executor."""
    assert decode.event(message(data)) is None


def test_invalid_base64_yields_no_event() -> None:
    assert decode.event({"type": "MESSAGE", "message": {"data": "!"}}) is None


@pytest.mark.parametrize(
    ("step", "total", "speed", "expected"),
    [(120, 500, 10.0, 38.0), (500, 500, 10.0, 0.0), (600, 500, 10.0, None), (1, None, 1.0, None), (1, 9, 0.0, None)],
)
def test_progress_remaining_seconds(step: int, total: int | None, speed: float, expected: float | None) -> None:
    """None if unknown. Earlier executors do not estimate the time."""
    assert expected == Progress(1, 0.0, step, total, steps_per_second=speed).seconds_left
    assert Progress(1, 0.0, step, total, steps_per_second=speed, source="report").seconds_left is None
    assert 7.0 == Progress(1, 0.0, step, total, steps_per_second=speed, source="report", left=7.0).seconds_left
