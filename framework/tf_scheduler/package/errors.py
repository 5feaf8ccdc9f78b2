"""What Cosmos answers when it refuses a request; the same errors serve the command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tf_scheduler.errors import SchedulerError


class PackageError(SchedulerError):
    """The package's files cannot be read, or break a rule of the Universe."""


class CosmosError(SchedulerError):
    """`kind` and `data` are the `type` and `data` of Cosmos' error document; `status` is its HTTP status."""

    def __init__(self, kind: str, message: str, data: Mapping[str, Any] | None = None, status: int = 400) -> None:
        super().__init__(message)
        self.kind, self.message, self.data, self.status = kind, message, data, status

    def document(self) -> dict[str, Any]:
        """The body of Cosmos' answer."""
        return {"type": self.kind, "message": self.message, **({"data": self.data} if self.data else {})}


class OptionsMismatchError(CosmosError):
    """The options, completed with the defaults, do not fit config.json; `mismatches` as Cosmos lists them."""

    def __init__(self, mismatches: Sequence[Mapping[str, Any]]) -> None:
        super().__init__("JsonSchemaMismatch", "Options JSON failed validation", {"errors": list(mismatches)})
        self.mismatches = tuple(mismatches)

    def __str__(self) -> str:
        return "\n".join([self.message, *(_line(mismatch) for mismatch in self.mismatches)])


def _line(mismatch: Mapping[str, Any]) -> str:
    path = str(mismatch["instance"]["pointer"]).strip("/").replace("/", ".")
    return f"{path or 'options'}: {mismatch['message']}"
