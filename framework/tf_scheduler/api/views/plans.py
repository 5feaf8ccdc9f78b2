"""Plans in the format of the SDK (dcos-commons, PlansResource, PlanInfo)."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from tf_executor.contract.bodies import PhaseBody, PlanBody, StepBody
from tf_executor.contract.states import Status
from tf_scheduler.model.events import PlanCommand
from tf_scheduler.model.plan import DEPLOY, UNINSTALL, Phase, Plan, Step, Verb

from .base import ApiAnswer, ApiProblem, Snapshot, View

_CODES: Mapping[Status, int] = {Status.COMPLETE: 200, Status.ERROR: 417}
_IN_PROGRESS = 202


def names(snapshot: Snapshot, _params: Mapping[str, Any]) -> ApiAnswer:
    """Names of the plans."""
    return View(list(snapshot.plans()))


def plan(snapshot: Snapshot, params: Mapping[str, Any]) -> ApiAnswer:
    """One plan; HTTP status: 200 complete, 202 in progress, 417 error."""
    name = params.get("plan", DEPLOY)
    current = snapshot.plans().get(name)
    if current is None:
        return ApiProblem(404, f"Plan {name} not found")
    body: PlanBody = {
        "phases": [_phase(current, phase) for phase in current.phases],
        "errors": list(current.errors),
        "status": current.status,
        "strategy": current.strategy.value,
    }
    return View(body, _CODES.get(current.status, _IN_PROGRESS))


def command(snapshot: Snapshot, verb: Verb, params: Mapping[str, Any], parameters: Mapping[str, str]) -> PlanCommand:
    """Return the command of a request; phases and steps are given by name or id."""
    name = params.get("plan", DEPLOY)
    phase, step = params.get("phase") or "", params.get("step") or ""
    current = snapshot.plans().get(name)
    if current is not None:
        phases = {key: part for part in current.phases for key in (part.name, _id(name, part.name))}
        chosen = phases.get(phase)
        if chosen is not None:
            steps = {_id(name, chosen.name, part.name): part.name for part in chosen.steps}
            phase, step = chosen.name, steps.get(step, step)
    real = UNINSTALL if snapshot.uninstalling and name == DEPLOY else name
    return PlanCommand(verb, real, phase, step, parameters)


def _phase(plan: Plan, phase: Phase) -> PhaseBody:
    return {
        "id": _id(plan.name, phase.name),
        "name": phase.name,
        "steps": [_step(plan, phase, step) for step in phase.steps],
        "status": phase.status,
        "strategy": phase.strategy.value,
    }


def _step(plan: Plan, phase: Phase, step: Step) -> StepBody:
    body: StepBody = {
        "id": _id(plan.name, phase.name, step.name),
        "status": step.display_status,
        "name": step.name,
        "message": step.message,
    }
    if step.left_behind:
        body["left_behind"] = list(step.left_behind)
    if step.waits_for:
        body["waits_for"] = list(step.waits_for)
    return body


def _id(*names: str) -> str:
    """Return a stable id derived from the names, because plans are not stored."""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, "/".join(names)))
