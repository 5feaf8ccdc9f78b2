"""Mesos v1 dicts <-> what the executor thinks in. Pure."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import Any, Mapping

from tf_executor.events import Report
from tf_executor.reports import NO_ENDING

#: Seconds of MESOS_EXECUTOR_SHUTDOWN_GRACE_PERIOD kept for the last update and its acknowledgement. The command
#: executor keeps as much; when the period is over the agent destroys the container with whatever is in it.
SHUTDOWN_RESERVE = 2.0
#: The agent's own default for that period.
DEFAULT_SHUTDOWN_GRACE = 5.0
_SECONDS = {
    "ns": 1e-9,
    "us": 1e-6,
    "ms": 1e-3,
    "secs": 1.0,
    "mins": 60.0,
    "hrs": 3600.0,
    "days": 86400.0,
    "weeks": 604800.0,
}


@dataclass(frozen=True)
class Task:
    """What we need of a TaskInfo."""

    id: str
    #: The payload's bytes; not decoded yet.
    data: bytes
    #: Seconds, None: TaskInfo does not say.
    kill_grace: float | None = None
    max_completion_time: float | None = None


def task_of(info: Mapping[str, Any]) -> Task:
    """Shape of a LAUNCH event's `task`. Data that is no base64 counts as none, which is refused later."""
    return Task(info["task_id"]["value"], message(info), kill_grace(info), _seconds(info.get("max_completion_time")))


def message(body: Mapping[str, Any]) -> bytes:
    """What a MESSAGE event's `message` says; empty when it is no base64."""
    try:
        return base64.b64decode(body.get("data", ""), validate=True)
    except (binascii.Error, ValueError):
        return b""


def kill_grace(event: Mapping[str, Any]) -> float | None:
    """Seconds that the `kill_policy` of a KILL event or a TaskInfo grants, None when it does not say."""
    return _seconds(event.get("kill_policy", {}).get("grace_period"))


def _seconds(duration_info: Mapping[str, Any] | None) -> float | None:
    return None if duration_info is None else int(duration_info["nanoseconds"]) / 1e9


def knows_killing(event: Mapping[str, Any]) -> bool:
    """Whether a SUBSCRIBED event's framework takes TASK_KILLING."""
    capabilities = event.get("framework_info", {}).get("capabilities", ())
    return any(capability.get("type") == "TASK_KILLING_STATE" for capability in capabilities)


def shutdown_grace(environ: Mapping[str, str]) -> float:
    """Seconds that the program gets on SHUTDOWN: the agent's period less a reserve, or half of a very short period."""
    total = duration(environ.get("MESOS_EXECUTOR_SHUTDOWN_GRACE_PERIOD", ""), DEFAULT_SHUTDOWN_GRACE)
    return max(total - SHUTDOWN_RESERVE, total / 2)


def duration(text: str, default: float) -> float:
    """Seconds in a Mesos duration such as `5secs` or `1.5hrs`; `default` when it is none."""
    number = text.rstrip("abcdefghijklmnopqrstuvwxyz")
    try:
        return float(number) * _SECONDS[text[len(number) :]]
    except (ValueError, KeyError):
        return default


def status(task_id: str, report: Report) -> dict[str, Any]:
    """Shape of a TaskStatus; the driver adds uuid, timestamp, source and executor id."""
    result: dict[str, Any] = {"task_id": {"value": task_id}, "state": report.state}
    if report.message:
        result["message"] = report.message
    if report.reason:
        result["reason"] = report.reason
    if report.healthy is not None:
        result["healthy"] = report.healthy
    if report.ending is not None and report.ending != NO_ENDING:
        result["data"] = base64.b64encode(report.ending.encode()).decode()
    return result
