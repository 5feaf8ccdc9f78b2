"""Results of calls (`SendResult`) and connection states of a driver."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Mapping, Union


class SendResult:
    """Base class for the outcome of a call. Texts never quote the request's body."""

    ok: ClassVar[bool] = False


@dataclass(frozen=True)
class Sent(SendResult):
    """Mesos accepted the call for processing (2xx); events report its effect."""

    ok: ClassVar[bool] = True
    #: JSON response; empty for nearly every call.
    answer: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class NotConnected(SendResult):
    """The driver is not subscribed; the call was dropped."""

    def __str__(self) -> str:
        return "not connected"


@dataclass(frozen=True)
class Rejected(SendResult):
    """Mesos answered with a status other than 2xx."""

    status: int
    #: Start of the response.
    text: str

    def __str__(self) -> str:
        return f"rejected with HTTP {self.status}: {self.text}"


@dataclass(frozen=True)
class Failed(SendResult):
    """No response (timeout, connection lost); the call may have been processed."""

    reason: str
    #: Whether Mesos may have received the call; False if it was certainly not sent.
    may_be_done: bool = True

    def __str__(self) -> str:
        return f"failed: {self.reason}"


@dataclass(frozen=True)
class DriverDisconnected:
    """The subscription was lost or rejected; the driver keeps retrying."""

    reason: str


@dataclass(frozen=True)
class DriverAborted:
    """The driver stopped itself permanently. The framework still exists."""

    #: Message of the ERROR event, or of RegistrationRefusedError.
    reason: str
    #: Whether the master sent the reason.
    by_master: bool = True


class RegistrationRefusedError(Exception):
    """The caller of a driver refuses to register a framework; the text says why."""


DriverState = Union[DriverDisconnected, DriverAborted]
