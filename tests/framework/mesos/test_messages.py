"""Messages of executors."""

from __future__ import annotations

import base64
import json

import pytest

from tf_executor.contract.reports import Progress, Usage
from tf_scheduler.mesos import decode
from tf_scheduler.model.events import ProgressReported, UsageReported


def message(data: bytes, executor: str = "worker-0__1") -> dict[str, object]:
    """Return a message as a master sends it."""
    body = {"agent_id": {"value": "a-1"}, "executor_id": {"value": executor}, "data": base64.b64encode(data).decode()}
    return {"type": "MESSAGE", "message": body}


def test_progress_message_is_decoded() -> None:
    more = {"epoch": 2, "epochs": 8, "seconds_left": 38.0, "of": "job", "source": "output", "metrics": {"lr": 0.1}}
    progress = Progress(7, 1e9, 120, 500, 0.25, 3840, 10.0, 320.0, **more)
    assert ProgressReported("worker-0__1", progress, "a-1") == decode.event(message(progress.encode("worker-0__1")))


def test_usage_message_is_decoded() -> None:
    for usage in (Usage(300.5, 180.0, 0.75), Usage(300.5)):
        data = usage.encode("worker-0__1")
        assert UsageReported("worker-0__1", usage, "a-1") == decode.event(message(data))
        assert decode.event(message(data, executor="worker-1__1")) is None


@pytest.mark.parametrize("wrong", [{"memory_used_mb": -1.0}, {"memory_peak_mb": "1"}, {"cpus_used": float("nan")}])
def test_invalid_usage_is_ignored(wrong: dict[str, object], caplog: pytest.LogCaptureFixture) -> None:
    report = {"version": 1, "kind": "usage", "task_id": "worker-0__1", "memory_peak_mb": 1.0, **wrong}
    assert decode.event(message(json.dumps(report).encode())) is None
    assert f"usage report with invalid or missing fields: {', '.join(wrong)}" in caplog.text


def test_progress_of_another_task_is_ignored() -> None:
    """A message without an executor is ignored, too."""
    report = Progress(7, 1e9).encode("worker-0__1")
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
