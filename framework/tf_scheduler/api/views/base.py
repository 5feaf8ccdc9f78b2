"""Types that views share: Snapshot as the input, View or ApiProblem as the output."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from tf_scheduler.api.views import plan_messages
from tf_scheduler.api.views.plan_messages import sdk_uninstall_plan
from tf_scheduler.model.effects import ComputedPlans
from tf_scheduler.model.ids import UnixTime
from tf_scheduler.model.plan import Plan
from tf_scheduler.model.state import SchedulerState

#: Values of the error field `code`, by status.
_CODES: Mapping[int, str] = {
    400: "bad_request",
    401: "unauthorized",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    408: "timeout",
    409: "conflict",
    413: "too_large",
    429: "too_many_requests",
    431: "head_too_large",
    500: "internal_error",
    501: "not_implemented",
    502: "agent_failed",
    503: "unavailable",
}


#: Seconds without progress that are reported, and their steps: answers are cached between them.
SILENCE, _SILENCE_STEP = 60, 10
#: Maximum number of frozen tasks, and of agents with exposed secrets, that are listed.
MAX_NOTICES = 5


@dataclass(frozen=True, slots=True)
class View:
    """Successful answer: a JSON value, or plain text where the SDK answers text."""

    body: Any
    code: int = 200


@dataclass(frozen=True, slots=True)
class ApiProblem:
    """Error answer with a message for people."""

    code: int
    message: str
    #: Valid names, if the message lists them.
    names: tuple[str, ...] = ()
    #: Code of the error for programs; empty: that of the status.
    kind: str = ""

    @property
    def body(self) -> dict[str, Any]:
        """Return the JSON body. A command without effect (208) is not an error."""
        if self.code < 400:
            return {"message": self.message}
        names = {"names": list(self.names)} if self.names else {}
        code = self.kind or _CODES.get(self.code, "error")
        return {"error": {"status": self.code, "code": code, "message": self.message, **names}}


ApiAnswer = View | ApiProblem
#: Statuses of answers without a body (RFC 9110).
NO_BODY = (204, 205, 304)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """State that the API shows at one moment."""

    state: SchedulerState
    #: The service is being uninstalled, so its deploy plan is the uninstall plan.
    uninstalling: bool = False
    #: Error of the state store while it is unavailable; empty: available.
    store_error: str = ""
    #: Why the scheduler is not subscribed to Mesos; empty: it is, or the reason is unknown.
    master_error: str = ""
    #: Plans computed last by the loop; their valid parts are reused.
    view: ComputedPlans | None = field(default=None, compare=False, repr=False)
    now: UnixTime = field(default=0.0, compare=False)
    #: Settings that weaken the security of the service.
    weaknesses: tuple[str, ...] = ()

    @property
    def silence(self) -> int:
        """Seconds since the last progress report, in steps; 0 if fewer than SILENCE."""
        last = self.state.process.last_progress
        seconds = 0.0 if last is None else self.now - last[1]
        return int(seconds // _SILENCE_STEP * _SILENCE_STEP) if seconds >= SILENCE else 0

    @property
    def service_flags(self) -> tuple[object, ...]:
        """The fields that affect answers, in addition to the state."""
        return self.uninstalling, self.store_error, self.master_error, self.silence

    def exposures(self) -> Iterator[str]:
        """Yield notices about secrets that other processes may have taken, or could take."""
        exposures, agents = self.state.stored.exposures.values(), self.state.process.unprotected_agents.values()
        yield from map(str, islice(exposures, MAX_NOTICES))
        if len(exposures) > MAX_NOTICES:
            yield f"secrets may have been taken on {len(exposures) - MAX_NOTICES} more agents"
        if agents and not self.state.spec.secret_delivery.requires_executor_login:
            names = ", ".join(islice(agents, MAX_NOTICES))
            names += f" and {len(agents) - MAX_NOTICES} more" if len(agents) > MAX_NOTICES else ""
            yield (
                f"agents get secrets, but may not authenticate executors: {names} "
                "(option secret_delivery.executor_authentication)"
            )

    def plans(self) -> dict[str, Plan]:
        """Return the plans by name."""
        current = (sdk_uninstall_plan(self.state),) if self.uninstalling else plan_messages.plans(self.state, self.view)
        return {plan.name: plan for plan in current}
