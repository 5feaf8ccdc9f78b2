"""The SDK's debug pages (dcos-commons, debug/*)."""

from __future__ import annotations

import sys
import threading
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tf_scheduler.api.shapes_sdk import OfferOutcomeBody, OffersBody
from tf_scheduler.core import plans as plan_rules
from tf_scheduler.model.evaluation import Evaluation
from tf_scheduler.model.plan import Phase, Plan, Status, Step
from tf_scheduler.model.reasons import Reason, Refusal

from .base import Answer, Snapshot, View


def offers(snapshot: Snapshot, _given: Mapping[str, Any]) -> Answer:
    """The last looks at offers, newest first, with what became of each task."""
    looks = snapshot.state.evaluations
    refused = [reason for look in looks for reasons in look.refused.values() for reason in reasons]
    body: OffersBody = {
        "acceptedCount": sum(len(look.placed) for look in looks),
        "rejectedCount": sum(len(look.refused) for look in looks),
        "failureReasons": dict(Counter(_kinds(refused))),
        "rejectedAgents": dict(Counter(reason.hostname for reason in refused if isinstance(reason, Refusal))),
        "offers": [outcome for look in reversed(looks) for outcome in _outcomes(look)],
    }
    return View(body)


def _kinds(reasons: Iterable[Reason]) -> Iterator[str]:
    for reason in reasons:
        if isinstance(reason, Refusal):
            yield from (type(part).__name__ for part in reason.reasons)
        else:
            yield type(reason).__name__


def _outcomes(look: Evaluation) -> Iterator[OfferOutcomeBody]:
    seen = f"{look.offers} offers of {look.agents} agents"
    for task, why in look.placed.items():
        yield _outcome(look, task, "pass", [f"PASS: {why}"], seen)
    for task, reasons in look.refused.items():
        yield _outcome(look, task, "fail", [f"FAIL: {reason}" for reason in reasons], seen)


def _outcome(look: Evaluation, task: str, outcome: Any, explanation: list[str], offer: str) -> OfferOutcomeBody:
    return {
        "timestamp": int(look.at * 1000),
        "pod-instance-name": task,
        "outcome": outcome,
        "explanation": explanation,
        "offer": offer,
    }


def plans(snapshot: Snapshot, given: Mapping[str, Any]) -> Answer:
    """Every plan, or what `plan`, `phase` and `step` leave of it. A wrong filter has status 200, as in the SDK."""
    found = list(snapshot.plans().values())
    chosen, wrong = _filtered(found, given)
    if wrong:
        return View({"invalid-input": wrong})
    steps = [step for plan in chosen for phase in plan.phases for step in phase.steps]
    return View(
        {
            "schedulerState": _scheduler_state(found),
            "activePlans": [plan.name for plan in found if plan.status is not Status.COMPLETE],
            "plans": [_plan(plan) for plan in chosen],
            "serviceTopology": [_topology(plan) for plan in chosen],
            "totalSteps": len(steps),
            "completedSteps": sum(step.status is Status.COMPLETE for step in steps),
        }
    )


def _filtered(found: list[Plan], given: Mapping[str, Any]) -> tuple[list[Plan], str]:
    plan, phase, step = given.get("plan"), given.get("phase"), given.get("step")
    if (phase and not plan) or (step and not phase):
        return [], "A step needs its phase, and a phase its plan!"
    chosen = [item for item in found if plan in (None, "", item.name)]
    if plan and not chosen:
        return [], "Supplied plan not found in list of all available plans!"
    if phase and not any(item.name == phase for item in chosen[0].phases):
        return [], "Supplied phase not found in the plan!"
    if step and not any(item.name == step for part in _parts(chosen[0], phase) for item in part.steps):
        return [], "Supplied step not found in the phase!"
    narrowed = [Plan(item.name, item.status, _narrowed(item, phase, step), item.strategy) for item in chosen]
    return narrowed, ""


def _parts(plan: Plan, phase: str | None) -> tuple[Phase, ...]:
    return tuple(part for part in plan.phases if not phase or part.name == phase)


def _narrowed(plan: Plan, phase: str | None, step: str | None) -> tuple[Phase, ...]:
    return tuple(
        Phase(part.name, part.status, tuple(item for item in part.steps if not step or item.name == step))
        for part in _parts(plan, phase)
    )


def _scheduler_state(found: list[Plan]) -> str:
    status = {plan.name: plan.status for plan in found}
    if status.get(plan_rules.RECOVERY, Status.COMPLETE) is not Status.COMPLETE:
        return "RECOVERING"
    if status.get("decommission", Status.COMPLETE) is not Status.COMPLETE:
        return "DECOMMISSIONING"
    return "DEPLOYED" if status.get(plan_rules.DEPLOY) is Status.COMPLETE else "DEPLOYING"


def _plan(plan: Plan) -> dict[str, Any]:
    return {
        "name": plan.name,
        "status": plan.status.value,
        "strategy": plan.strategy.value,
        "phases": [
            {
                "name": phase.name,
                "status": phase.status.value,
                "strategy": phase.strategy.value,
                "steps": [_step(step) for step in phase.steps],
            }
            for phase in plan.phases
        ],
    }


def _step(step: Step) -> dict[str, Any]:
    errors = [step.message or step.name] if step.status is Status.ERROR else []
    return {"name": step.name, "status": step.shown.value, "errors": errors}


def _topology(plan: Plan) -> dict[str, Any]:
    phases = [
        {
            "name": phase.name,
            "type": "phase",
            "children": [{"name": step.name, "type": "step"} for step in phase.steps],
        }
        for phase in plan.phases
    ]
    return {"name": plan.name, "type": "plan", "children": phases}


def statuses(snapshot: Snapshot, _given: Mapping[str, Any]) -> Answer:
    """Plan, phase, step -> what Mesos says of its task."""
    return View([_plan_statuses(snapshot, plan) for plan in snapshot.plans().values()])


def _plan_statuses(snapshot: Snapshot, plan: Plan) -> dict[str, Any]:
    phases = [
        {
            "name": phase.name,
            "steps": [{"name": step.name, "taskStatus": _task_status(snapshot, step)} for step in phase.steps],
        }
        for phase in plan.phases
    ]
    return {"name": plan.name, "phases": phases}


def _task_status(snapshot: Snapshot, step: Step) -> list[dict[str, Any]]:
    record = None if step.task is None else snapshot.state.tasks.get(step.task)
    if record is None:
        return []
    status = snapshot.state.statuses.get(record.id)
    word = "TASK_STAGING" if status is None else status.state.value
    return [{"name": record.name, "taskStatus": word, "taskId": record.id}]


def reservations(snapshot: Snapshot, _given: Mapping[str, Any]) -> Answer:
    """Agent -> ids of what is reserved on it."""
    found: dict[str, list[str]] = {}
    for item in snapshot.state.reservations.values():
        found.setdefault(item.place.hostname, []).append(item.id)
    return View(found)


async def threads(_call: object) -> Answer:
    """What every thread of the scheduler does now."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    stacks = (
        f"{names.get(ident, ident)}\n{''.join(traceback.format_stack(frame))}"
        for ident, frame in sys._current_frames().items()
    )
    return View("\n".join(stacks))
