"""State in, JSON and an HTTP status out. Pure: a view never waits and never changes anything.

Keys and codes: the DC/OS SDK (mesosphere/dcos-commons, PlansResource, PlanInfo, HealthResource).
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tf_scheduler.core import plans as plan_rules
from tf_scheduler.core.uninstall import uninstall_plan
from tf_scheduler.model.plan import Phase, Plan, Status, Step
from tf_scheduler.model.state import SchedulerState

_PLAN_CODES: Mapping[Status, int] = {Status.COMPLETE: 200, Status.ERROR: 417}
_IN_PROGRESS = 202
_HEALTH: Mapping[Status, tuple[int, str]] = {
    Status.ERROR: (500, "the deploy plan has errors"),
    Status.PENDING: (204, "deploying: nothing is launched yet"),
    Status.COMPLETE: (200, "running"),
}


@dataclass(frozen=True, slots=True)
class View:
    """One answer: a JSON value, or plain text where the SDK answers text."""

    body: Any
    code: int = 200


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What the API shows at one moment."""

    state: SchedulerState
    #: The service is being uninstalled: its deploy plan is the one that takes it down.
    uninstalling: bool = False

    def plans(self) -> dict[str, Plan]:
        """By name."""
        found = (uninstall_plan(self.state),) if self.uninstalling else plan_rules.plans(self.state)
        return {plan.name: plan for plan in found}


def plans(snapshot: Snapshot) -> View:
    """The names of the plans."""
    return View(list(snapshot.plans()))


def plan(snapshot: Snapshot, name: str) -> View:
    """200 complete, 202 under way, 417 in error, 404 no such plan."""
    found = snapshot.plans().get(name)
    if found is None:
        return View(f"Plan {name} not found", 404)
    document = {
        "phases": [_phase(found, phase) for phase in found.phases],
        "errors": list(found.errors),
        "status": found.status.value,
        "strategy": found.strategy.value,
    }
    return View(document, _PLAN_CODES.get(found.status, _IN_PROGRESS))


def _phase(plan: Plan, phase: Phase) -> dict[str, Any]:
    return {
        "id": _id(plan.name, phase.name),
        "name": phase.name,
        "steps": [_step(plan, phase, step) for step in phase.steps],
        "status": phase.status.value,
        "strategy": phase.strategy.value,
    }


def _step(plan: Plan, phase: Phase, step: Step) -> dict[str, Any]:
    return {
        "id": _id(plan.name, phase.name, step.name),
        "status": step.status.value,
        "name": step.name,
        "message": step.message,
    }


def _id(*names: str) -> str:
    """The same at every look and after every start: plans are derived, nothing is stored of them."""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, "/".join(names)))


def health(snapshot: Snapshot, *, verbose: bool = False) -> View:
    """How the service is; the HTTP status is the value. Marathon takes 200 to 399 for healthy.

    While it is uninstalled it is healthy: Marathon would otherwise wait for ever for the end of the deployment.
    """
    code, reason = _health(snapshot)
    return View({"value": code, **({"reasons": [reason]} if verbose else {})}, code)


def _health(snapshot: Snapshot) -> tuple[int, str]:
    if snapshot.uninstalling:
        return 200, "being uninstalled"
    deploy = plan_rules.plan_named(snapshot.state, plan_rules.DEPLOY)
    status = Status.ERROR if deploy is None else deploy.status
    if status is not Status.ERROR and snapshot.state.framework_id is None:
        return 318, "not registered with Mesos yet"
    return _HEALTH.get(status, (202, "deploying"))


def framework_id(snapshot: Snapshot) -> View:
    """A list of one id; empty before the registration and after the end of an uninstallation."""
    found = snapshot.state.framework_id
    return View([] if found is None else [found])
