"""Mesos v1 scheduler and executor drivers that reconnect, on top of pymesos.

`SchedulerDriver` and `ExecutorDriver` are pymesos drivers with their connection handling replaced. They pass on raw v1
events as dicts, report `DriverDisconnected` and `DriverAborted`, and return a `SendResult` for each call. Names load on
first use, so that an executor does not import the scheduler's half.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .credentials import BasicCredentials, Credentials, Tls, TokenCredentials
    from .executor import ExecutorDriver
    from .masters import Detector
    from .results import (
        DriverAborted,
        DriverDisconnected,
        DriverState,
        Failed,
        NotConnected,
        Rejected,
        SendResult,
        Sent,
    )
    from .scheduler import SchedulerDriver

__all__ = [
    "BasicCredentials",
    "Credentials",
    "Detector",
    "DriverAborted",
    "DriverDisconnected",
    "DriverState",
    "ExecutorDriver",
    "Failed",
    "NotConnected",
    "Rejected",
    "SchedulerDriver",
    "SendResult",
    "Sent",
    "Tls",
    "TokenCredentials",
]

_MODULES = {
    "BasicCredentials": "credentials",
    "Credentials": "credentials",
    "Detector": "masters",
    "ExecutorDriver": "executor",
    "SchedulerDriver": "scheduler",
    "Tls": "credentials",
    "TokenCredentials": "credentials",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES.get(name, 'results')}"), name)
