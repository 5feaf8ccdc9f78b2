"""What a driver answers to a call, and what it reports about itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Mapping, Union


class SendResult:
    """What became of one call: `Sent`, `NotConnected`, `Rejected` or `Failed`.

    No text in it quotes the request's body.
    """

    ok: ClassVar[bool] = False


@dataclass(frozen=True)
class Sent(SendResult):
    """Mesos accepted the call for processing (2xx). That is not yet an effect: only events tell of those."""

    ok: ClassVar[bool] = True
    #: The JSON answer; empty for nearly every call.
    answer: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class NotConnected(SendResult):
    """Nothing was sent: there is no subscription now. The call is dropped, not kept."""

    def __str__(self) -> str:
        return "not connected"


@dataclass(frozen=True)
class Rejected(SendResult):
    """Mesos answered, with another status than 2xx."""

    status: int
    #: What Mesos said, shortened.
    text: str

    def __str__(self) -> str:
        return f"rejected with HTTP {self.status}: {self.text}"


@dataclass(frozen=True)
class Failed(SendResult):
    """No answer came (timeout, connection lost): the call may or may not have been processed."""

    reason: str

    def __str__(self) -> str:
        return f"failed: {self.reason}"


class CallError(RuntimeError):
    """A pymesos-style `_send` did not succeed; `result` says how."""

    def __init__(self, result: SendResult) -> None:
        super().__init__(str(result))
        self.result = result


@dataclass(frozen=True)
class Disconnected:
    """The subscription was lost, or Mesos refuses it. The driver goes on trying by itself."""

    reason: str


@dataclass(frozen=True)
class Aborted:
    """The driver stopped itself and will not come back. Nothing was torn down."""

    #: Why: the text of the ERROR event, or what happened.
    reason: str


DriverState = Union[Disconnected, Aborted]
