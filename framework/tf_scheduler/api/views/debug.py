"""Debug pages of the SDK (dcos-commons, debug/*)."""

from __future__ import annotations

import sys
import threading
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from tf_executor.contract.bodies import MesosBody, OfferOutcomeBody, OffersBody
from tf_executor.contract.states import Status
from tf_scheduler.model.offer import Evaluation
from tf_scheduler.model.plan import DEPLOY, RECOVERY, Phase, Plan, Step
from tf_scheduler.model.reasons import AgentRejected, Reason

from .base import ApiAnswer, Snapshot, View


def offers(snapshot: Snapshot, _params: Mapping[str, Any]) -> ApiAnswer:
    """Recent offer evaluations, newest first, with the outcome of each task."""
    evaluations = snapshot.state.process.evaluations
    refused = [reason for evaluation in evaluations for reasons in evaluation.refused.values() for reason in reasons]
    body: OffersBody = {
        "acceptedCount": sum(len(evaluation.placed) for evaluation in evaluations),
        "rejectedCount": sum(len(evaluation.refused) for evaluation in evaluations),
        "failureReasons": dict(Counter(_kinds(refused))),
        "rejectedAgents": dict(Counter(reason.hostname for reason in refused if isinstance(reason, AgentRejected))),
        "offers": [outcome for evaluation in reversed(evaluations) for outcome in _outcomes(evaluation)],
    }
    return View(body)


def _kinds(reasons: Iterable[Reason]) -> Iterator[str]:
    for reason in reasons:
        if isinstance(reason, AgentRejected):
            yield from (part.kind for part in reason.reasons)
        else:
            yield reason.kind


def _outcomes(evaluation: Evaluation) -> Iterator[OfferOutcomeBody]:
    explanations = {task: [f"PASS: {why}"] for task, why in evaluation.placed.items()}
    explanations |= {task: [f"FAIL: {reason}" for reason in reasons] for task, reasons in evaluation.refused.items()}
    for task, explanation in explanations.items():
        yield {
            "timestamp": int(evaluation.at * 1000),
            "pod-instance-name": task,
            "outcome": "pass" if task in evaluation.placed else "fail",
            "explanation": explanation,
            "offer": f"{evaluation.offers} offers of {evaluation.agents} agents",
        }


def plans(snapshot: Snapshot, params: Mapping[str, Any]) -> ApiAnswer:
    """Plans, filtered by `plan`, `phase`, `step`; an invalid filter has status 200."""
    all_plans = list(snapshot.plans().values())
    chosen, problem = _filtered(all_plans, params)
    if problem:
        return View({"invalid-input": problem})
    steps = [step for plan in chosen for phase in plan.phases for step in phase.steps]
    return View(
        {
            "schedulerState": _scheduler_state(all_plans),
            "activePlans": [plan.name for plan in all_plans if plan.status is not Status.COMPLETE],
            "plans": [_plan(plan) for plan in chosen],
            "serviceTopology": [_topology(plan) for plan in chosen],
            "totalSteps": len(steps),
            "completedSteps": sum(step.status is Status.COMPLETE for step in steps),
        }
    )


def _filtered(all_plans: list[Plan], params: Mapping[str, Any]) -> tuple[list[Plan], str]:
    plan, phase, step = params.get("plan"), params.get("phase"), params.get("step")
    if (phase and not plan) or (step and not phase):
        return [], "A filter by step requires a phase, and a filter by phase requires a plan!"
    chosen = [item for item in all_plans if plan in (None, "", item.name)]
    if plan and not chosen:
        return [], "Supplied plan not found in list of all available plans!"
    if phase and not any(item.name == phase for item in chosen[0].phases):
        return [], "Supplied phase not found in the plan!"
    if step and not any(part.steps for part in _narrowed(chosen[0], phase, step)):
        return [], "Supplied step not found in the phase!"
    return [replace(item, phases=_narrowed(item, phase, step)) for item in chosen], ""


def _narrowed(plan: Plan, phase: str | None, step: str | None) -> tuple[Phase, ...]:
    return tuple(
        Phase(part.name, part.status, tuple(item for item in part.steps if not step or item.name == step))
        for part in plan.phases
        if not phase or part.name == phase
    )


def _scheduler_state(all_plans: list[Plan]) -> str:
    status = {plan.name: plan.status for plan in all_plans}
    if status.get(RECOVERY, Status.COMPLETE) is not Status.COMPLETE:
        return "RECOVERING"
    if status.get("decommission", Status.COMPLETE) is not Status.COMPLETE:
        return "DECOMMISSIONING"
    return "DEPLOYED" if status.get(DEPLOY) is Status.COMPLETE else "DEPLOYING"


def _plan(plan: Plan) -> dict[str, Any]:
    phases = [{**_named(phase), "steps": [_step(step) for step in phase.steps]} for phase in plan.phases]
    return {**_named(plan), "phases": phases}


def _named(part: Plan | Phase) -> dict[str, Any]:
    return {"name": part.name, "status": part.status.value, "strategy": part.strategy.value}


def _step(step: Step) -> dict[str, Any]:
    errors = [step.message or step.name] if step.status is Status.ERROR else []
    return {"name": step.name, "status": step.display_status.value, "errors": errors}


def _topology(plan: Plan) -> dict[str, Any]:
    phases = [
        {"name": phase.name, "type": "phase", "children": [{"name": step.name, "type": "step"} for step in phase.steps]}
        for phase in plan.phases
    ]
    return {"name": plan.name, "type": "plan", "children": phases}


def statuses(snapshot: Snapshot, _params: Mapping[str, Any]) -> ApiAnswer:
    """Mesos state of each step's task."""

    def of_phase(phase: Phase) -> dict[str, Any]:
        steps = [{"name": step.name, "taskStatus": _task_status(snapshot, step)} for step in phase.steps]
        return {"name": phase.name, "steps": steps}

    plans = snapshot.plans().values()
    return View([{"name": plan.name, "phases": [*map(of_phase, plan.phases)]} for plan in plans])


def _task_status(snapshot: Snapshot, step: Step) -> list[dict[str, Any]]:
    record = None if step.task is None else snapshot.state.stored.tasks.get(step.task)
    if record is None:
        return []
    status = snapshot.state.stored.statuses.get(record.id)
    word = "TASK_STAGING" if status is None else status.state.value
    return [{"name": record.name, "taskStatus": word, "taskId": record.id}]


def mesos(snapshot: Snapshot, _params: Mapping[str, Any]) -> ApiAnswer:
    """Problems between the scheduler and Mesos."""
    state = snapshot.state
    refused = state.process.refused_calls
    agents = state.stored.agent_failures.values()
    body: MesosBody = {
        "connected": state.session.connected,
        "refused_calls": None
        if refused is None
        else {"cause": refused.cause, "since": refused.since, "count": refused.count},
        "clock_drift": state.process.clock_drift,
        "may_still_run": [str(launch) for launch in state.stored.abandoned.values()],
        "failing_agents": [
            {
                "agent_id": item.agent_id,
                "hostname": item.hostname,
                "failures": list(item.failures),
                "avoided_until": item.avoided_until,
            }
            for item in agents
            if item.failures
        ],
    }
    return View(body)


async def threads(_call: object) -> ApiAnswer:
    """Stack trace of each thread."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    stacks = (
        f"{names.get(ident, ident)}\n{''.join(traceback.format_stack(frame))}"
        for ident, frame in sys._current_frames().items()
    )
    return View("\n".join(stacks))
