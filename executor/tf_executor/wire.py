"""Convert Mesos v1 JSON to executor values and back. Pure."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Mapping

from mesos_client.executor import AgentEnvironment, parse_duration
from mesos_client.http import MALFORMED, decode_data, encode_data
from tf_executor.contract.reports import NO_END
from tf_executor.lifecycle.events import SendReport

#: Seconds of MESOS_EXECUTOR_SHUTDOWN_GRACE_PERIOD reserved for the last update, as in Mesos' command executor. After
#: the period the agent destroys the container.
SHUTDOWN_RESERVE = 2.0


@dataclass(frozen=True)
class TaskLaunch:
    """The fields of a TaskInfo that the executor uses."""

    id: str
    #: Encoded payload.
    data: bytes
    #: Seconds; None: not in the TaskInfo.
    kill_grace: float | None = None
    max_completion_time: float | None = None


def task_launch(info: Mapping[str, Any]) -> TaskLaunch:
    """Convert the `task` of a LAUNCH event; invalid base64 gives empty data."""
    return TaskLaunch(
        info["task_id"]["value"], message(info), kill_grace(info), _seconds(info.get("max_completion_time"))
    )


def is_valid(kind: str, body: Any) -> bool:
    """Return whether an agent's event has the fields that the executor reads."""
    try:
        if kind == "SUBSCRIBED":
            supports_killing(body)
        elif kind == "LAUNCH":
            return isinstance(task_launch(body["task"]).id, str)
        elif kind == "KILL":
            kill_grace(body)
            return isinstance(body["task_id"]["value"], str)
        elif kind == "MESSAGE":
            message(body)
        elif kind == "ACKNOWLEDGED":
            return isinstance(body["uuid"], str)
        return isinstance(body, dict)
    except MALFORMED:
        return False


def message(body: Mapping[str, Any]) -> bytes:
    """Return the data of a MESSAGE event's `message`; empty if it is not base64."""
    try:
        return decode_data(body.get("data", ""))
    except ValueError:
        return b""


def kill_grace(event: Mapping[str, Any]) -> float | None:
    """Return the kill grace of an event or TaskInfo in seconds; None if unset."""
    return _seconds(event.get("kill_policy", {}).get("grace_period"))


def _seconds(duration_info: Mapping[str, Any] | None) -> float | None:
    return None if duration_info is None else int(duration_info["nanoseconds"]) / 1e9


def supports_killing(event: Mapping[str, Any]) -> bool:
    """Return whether the framework of a SUBSCRIBED event supports TASK_KILLING."""
    capabilities = event.get("framework_info", {}).get("capabilities", ())
    return any(capability.get("type") == "TASK_KILLING_STATE" for capability in capabilities)


def shutdown_grace(environ: Mapping[str, str]) -> float:
    """Return the SHUTDOWN grace in seconds: the agent's minus a reserve of up to half."""
    total = AgentEnvironment.shutdown_grace
    with suppress(ValueError):
        total = parse_duration(environ.get("MESOS_EXECUTOR_SHUTDOWN_GRACE_PERIOD", ""))
    return max(total - SHUTDOWN_RESERVE, total / 2)


def status(task_id: str, report: SendReport) -> dict[str, Any]:
    """Build a TaskStatus; the driver adds uuid, timestamp, source and executor id."""
    result: dict[str, Any] = {"task_id": {"value": task_id}, "state": report.state}
    if report.message:
        result["message"] = report.message
    if report.reason:
        result["reason"] = report.reason
    if report.healthy is not None:
        result["healthy"] = report.healthy
    if report.ending is not None and report.ending != NO_END:
        result["data"] = encode_data(report.ending.encode())
    return result
