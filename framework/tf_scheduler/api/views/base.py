"""What every view gets and gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tf_scheduler.core import plans as plan_rules
from tf_scheduler.core.uninstall import uninstall_plan
from tf_scheduler.model.plan import Plan
from tf_scheduler.model.state import SchedulerState

#: The `code` of an error, where it is not the most common one of its status.
_CODES: Mapping[int, str] = {
    400: "bad_request",
    401: "unauthorized",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    409: "conflict",
    413: "too_large",
    429: "too_many_requests",
    502: "agent_failed",
    503: "unavailable",
}


@dataclass(frozen=True, slots=True)
class View:
    """One answer: a JSON value, or plain text where the SDK answers text."""

    body: Any
    code: int = 200


@dataclass(frozen=True, slots=True)
class Problem:
    """An answer that says no; `message` is a sentence for people."""

    code: int
    message: str

    @property
    def body(self) -> dict[str, Any]:
        """The one shape of errors: docs/api.md."""
        return {"error": {"status": self.code, "code": _CODES.get(self.code, "error"), "message": self.message}}


Answer = View | Problem


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What the API shows at one moment."""

    state: SchedulerState
    #: The service is being uninstalled: its deploy plan is the one that takes it down.
    uninstalling: bool = False
    #: Why nothing can be stored at the moment, so that nothing is done.
    trouble: str = ""

    @property
    def about(self) -> tuple[bool, str]:
        """Everything but the state."""
        return self.uninstalling, self.trouble

    def plans(self) -> dict[str, Plan]:
        """By name."""
        found = (uninstall_plan(self.state),) if self.uninstalling else plan_rules.plans(self.state)
        return {plan.name: plan for plan in found}
