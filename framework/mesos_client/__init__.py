"""Mesos v1 drivers that survive what a cluster does to them, on top of pymesos.

`SchedulerDriver` and `ExecutorDriver` are pymesos drivers whose connection handling is replaced. They hand over raw
v1 events as plain dicts, report `Disconnected` and `Aborted`, and answer each call with a typed `SendResult`.

Names are loaded when first used: an executor never pays for the scheduler's half, nor the other way round.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mesos_client.credentials import Basic, Credentials, Token
    from mesos_client.detector import Detector
    from mesos_client.executor import ExecutorDriver
    from mesos_client.results import (
        Aborted,
        Disconnected,
        DriverState,
        Failed,
        NotConnected,
        Rejected,
        SendResult,
        Sent,
    )
    from mesos_client.scheduler import SchedulerDriver
    from mesos_client.tls import Tls

__all__ = [
    "Aborted",
    "Basic",
    "Credentials",
    "Detector",
    "Disconnected",
    "DriverState",
    "ExecutorDriver",
    "Failed",
    "NotConnected",
    "Rejected",
    "SchedulerDriver",
    "SendResult",
    "Sent",
    "Tls",
    "Token",
]

_HOMES = {
    "Basic": "mesos_client.credentials",
    "Credentials": "mesos_client.credentials",
    "Detector": "mesos_client.detector",
    "ExecutorDriver": "mesos_client.executor",
    "SchedulerDriver": "mesos_client.scheduler",
    "Tls": "mesos_client.tls",
    "Token": "mesos_client.credentials",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES.get(name, "mesos_client.results")), name)
