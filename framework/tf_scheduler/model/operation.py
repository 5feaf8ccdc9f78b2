"""Operations on the resources of an agent, and what Mesos says of them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from .ids import NO_OPERATION, AgentId, OperationId
from .resources import Resource


class OperationState(str, Enum):
    """OperationState of mesos.proto."""

    UNSUPPORTED = "OPERATION_UNSUPPORTED"
    PENDING = "OPERATION_PENDING"
    FINISHED = "OPERATION_FINISHED"
    FAILED = "OPERATION_FAILED"
    ERROR = "OPERATION_ERROR"
    DROPPED = "OPERATION_DROPPED"
    UNREACHABLE = "OPERATION_UNREACHABLE"
    GONE_BY_OPERATOR = "OPERATION_GONE_BY_OPERATOR"
    RECOVERING = "OPERATION_RECOVERING"
    UNKNOWN = "OPERATION_UNKNOWN"

    @property
    def undone(self) -> bool:
        """Nothing will come of it any more. An agent that does not answer for now may still have done it."""
        return self in _UNDONE

    @property
    def spoken(self) -> str:
        """For sentences: `failed`, `gone by operator`."""
        return self.value.removeprefix("OPERATION_").lower().replace("_", " ")


_UNDONE = frozenset(
    {
        OperationState.FAILED,
        OperationState.ERROR,
        OperationState.DROPPED,
        OperationState.GONE_BY_OPERATOR,
        OperationState.UNKNOWN,
    }
)


@dataclass(frozen=True, slots=True)
class Operation:
    """One RESERVE or UNRESERVE."""

    resources: tuple[Resource, ...]
    #: With it Mesos tells what becomes of the operation; empty: it does not. Unique for ever.
    id: OperationId = NO_OPERATION


@dataclass(frozen=True, slots=True)
class OperationStatus:
    """What Mesos said of an operation with an id."""

    id: OperationId
    state: OperationState
    agent_id: AgentId | None = None
    message: str = ""
    #: Base64; empty when no acknowledgement is wanted.
    uuid: str = ""
