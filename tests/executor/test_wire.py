from __future__ import annotations

import base64

import pytest

from tf_executor import wire
from tf_executor.contract.reports import TaskEnd
from tf_executor.lifecycle.events import SendReport


@pytest.mark.parametrize(("period", "expected"), [("5secs", 3.0), ("90secs", 88.0), ("1secs", 0.5), ("soon", 3.0)])
def test_shutdown_leaves_time_for_the_last_update(period: str, expected: float) -> None:
    assert expected == wire.shutdown_grace({"MESOS_EXECUTOR_SHUTDOWN_GRACE_PERIOD": period})


def test_kill_policy_of_the_event() -> None:
    assert 0.0 == wire.kill_grace({"kill_policy": {"grace_period": {"nanoseconds": 0}}})
    assert 1.5 == wire.kill_grace({"kill_policy": {"grace_period": {"nanoseconds": 1500000000}}})
    assert [None, None] == [wire.kill_grace({}), wire.kill_grace({"kill_policy": {}})]


def test_the_frameworks_capability() -> None:
    """TASK_KILLING goes only to frameworks that support it."""
    known = {"framework_info": {"capabilities": [{"type": "GPU_RESOURCES"}, {"type": "TASK_KILLING_STATE"}]}}
    assert [True, False] == [wire.supports_killing(known), wire.supports_killing({"framework_info": {}})]


@pytest.mark.parametrize(("data", "expected"), [("e30=", b"{}"), ("!!", b""), (None, b"")])
def test_task_data(data: str | None, expected: bytes) -> None:
    info = {"task_id": {"value": "t1"}, **({} if data is None else {"data": data})}
    assert wire.TaskLaunch("t1", expected) == wire.task_launch(info)


def test_task_info_has_remaining_fields() -> None:
    info = {
        "task_id": {"value": "t1"},
        "kill_policy": {"grace_period": {"nanoseconds": 2500000000}},
        "max_completion_time": {"nanoseconds": 60000000000},
    }
    assert wire.TaskLaunch("t1", b"", kill_grace=2.5, max_completion_time=60.0) == wire.task_launch(info)


def test_status_carries_the_ending() -> None:
    """Programs read the exit code from `data`, people read `message`."""
    status = wire.status("t1", SendReport("TASK_FAILED", "exit code 3", TaskEnd(exit_code=3)))
    assert TaskEnd(exit_code=3) == TaskEnd.decode(base64.b64decode(status.pop("data")))
    assert {"task_id": {"value": "t1"}, "state": "TASK_FAILED", "message": "exit code 3"} == status


def test_status_carries_health_and_reason() -> None:
    report = SendReport("TASK_RUNNING", reason="REASON_TASK_HEALTH_CHECK_STATUS_UPDATED", healthy=True)
    status = wire.status("t1", report)
    assert ("REASON_TASK_HEALTH_CHECK_STATUS_UPDATED", True) == (status["reason"], status["healthy"])


def test_status_without_message_is_bare() -> None:
    assert {"task_id": {"value": "t1"}, "state": "TASK_RUNNING"} == wire.status("t1", SendReport("TASK_RUNNING"))


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("SUBSCRIBED", {"framework_info": None}),
        ("LAUNCH", {}),
        ("LAUNCH", {"task": {"task_id": {"value": 1}}}),
        ("LAUNCH", {"task": {"task_id": {"value": "t"}, "max_completion_time": {"nanoseconds": float("inf")}}}),
        ("KILL", {"task_id": {"value": "t"}, "kill_policy": []}),
        ("ACKNOWLEDGED", {"uuid": None}),
        ("MESSAGE", {"data": 1}),
        ("ERROR", []),
    ],
)
def test_invalid_event_is_recognized(kind: str, body: object) -> None:
    """The executor ignores it instead of killing its task."""
    assert not wire.is_valid(kind, body)


@pytest.mark.parametrize("kind", ["SUBSCRIBED", "SHUTDOWN", "MESSAGE", "ERROR"])
def test_event_without_optional_fields_is_valid(kind: str) -> None:
    assert wire.is_valid(kind, {})
