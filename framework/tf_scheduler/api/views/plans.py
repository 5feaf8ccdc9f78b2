"""Plans as the SDK shows them (dcos-commons, PlansResource, PlanInfo)."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from tf_scheduler.api.shapes_sdk import PhaseBody, PlanBody, StepBody
from tf_scheduler.core.plans import DEPLOY, UNINSTALL
from tf_scheduler.model.events import PlanCommand
from tf_scheduler.model.plan import Phase, Plan, Status, Step, Verb

from .base import Answer, Problem, Snapshot, View

_CODES: Mapping[Status, int] = {Status.COMPLETE: 200, Status.ERROR: 417}
_IN_PROGRESS = 202


def names(snapshot: Snapshot, _given: Mapping[str, Any]) -> Answer:
    """The names of the plans."""
    return View(list(snapshot.plans()))


def plan(snapshot: Snapshot, given: Mapping[str, Any]) -> Answer:
    """200 complete, 202 under way, 417 in error, 404 no such plan."""
    name = given.get("plan", DEPLOY)
    found = snapshot.plans().get(name)
    if found is None:
        return Problem(404, f"Plan {name} not found")
    body: PlanBody = {
        "phases": [_phase(found, phase) for phase in found.phases],
        "errors": list(found.errors),
        "status": found.status,
        "strategy": found.strategy.value,
    }
    return View(body, _CODES.get(found.status, _IN_PROGRESS))


def command(snapshot: Snapshot, verb: Verb, given: Mapping[str, Any], parameters: Mapping[str, str]) -> PlanCommand:
    """What an operator asks for. Phases and steps may be given by their ids, too."""
    name = given.get("plan", DEPLOY)
    phase, step = given.get("phase") or "", given.get("step") or ""
    found = snapshot.plans().get(name)
    if found is not None:
        phases = {key: part for part in found.phases for key in (part.name, _id(name, part.name))}
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
    return {
        "id": _id(plan.name, phase.name, step.name),
        "status": step.shown,
        "name": step.name,
        "message": step.message,
    }


def _id(*names: str) -> str:
    """The same at every look and after every start: plans are derived, nothing is stored of them."""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, "/".join(names)))
