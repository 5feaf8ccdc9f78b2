"""Health as the SDK tells it (dcos-commons, HealthResource)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tf_scheduler.api.shapes_sdk import HealthBody
from tf_scheduler.core import plans
from tf_scheduler.model.plan import Plan, Status
from tf_scheduler.model.state import SchedulerState, Verdict

from .base import Answer, Snapshot, View

_DEPLOYING: Mapping[Status, tuple[int, str]] = {
    Status.PENDING: (204, "deploying: nothing is launched yet"),
    Status.DELAYED: (208, "deploying: delayed by a back-off"),
    Status.WAITING: (207, "deploying: waits for an operator"),
}
_RECOVERING: Mapping[Status, tuple[int, str]] = {
    Status.COMPLETE: (200, "running"),
    Status.PENDING: (203, "recovering: nothing is launched again yet"),
    Status.WAITING: (207, "recovering: waits for an operator"),
    Status.DELAYED: (208, "recovering: delayed by a back-off"),
}
_RUNNING = (Status.PREPARED, Status.STARTING, Status.STARTED, Status.IN_PROGRESS)
_OWN = ((re.compile("back"), 320, "backing up"), (re.compile("restor"), 321, "restoring"))


def health(snapshot: Snapshot, given: Mapping[str, Any]) -> Answer:
    """How the service is; the HTTP status is the value. Marathon takes 200 to 399 for healthy.

    While it is uninstalled it is healthy: Marathon would otherwise wait for ever for the end of the deployment.
    """
    code, reason = _health(snapshot)
    body: HealthBody = {"value": code}
    if given.get("verbose"):
        body["reasons"] = [reason]
    return View(body, code)


def _health(snapshot: Snapshot) -> tuple[int, str]:
    state = snapshot.state
    if snapshot.trouble:
        # Healthy for Marathon: a scheduler that is started again could not store anything, either.
        return 319, f"nothing can be stored, so nothing is done: {snapshot.trouble}"
    if snapshot.uninstalling:
        return 200, "being uninstalled"
    if state.result is not None and state.result.verdict is not Verdict.FAILED:
        return 200, f"{state.result.verdict.value}: {state.result.sentence}"
    if state.rejected:
        return 500, f"the new options are refused: {state.rejected[0]}"
    deploy = plans.plan_named(state, plans.DEPLOY)
    if deploy is None or deploy.status is Status.ERROR:
        return 500, "the deploy plan has errors"
    if state.framework_id is None:
        return 318, "not registered with Mesos yet"
    if deploy.status is not Status.COMPLETE:
        return _DEPLOYING.get(deploy.status, (202, "deploying"))
    return _deployed(state)


def _deployed(state: SchedulerState) -> tuple[int, str]:
    update = plans.plan_named(state, plans.UPDATE)
    if update is not None and update.status is Status.WAITING:
        return 207, "updating: waits for an operator"
    recovery = plans.plan_named(state, plans.RECOVERY)
    if recovery is not None and recovery.status is not Status.COMPLETE:
        return _RECOVERING.get(recovery.status, (205, _recovering(recovery)))
    running = (plan.name for plan in plans.plans(state) if _is_under_way(plan))
    return next(
        ((code, f"{words}: plan {name} runs") for name in running for found, code, words in _OWN if found.search(name)),
        _RECOVERING[Status.COMPLETE],
    )


def _recovering(recovery: Plan) -> str:
    """What an operator has paused is not lost."""
    steps = [step for phase in recovery.phases for step in phase.steps if step.status is not Status.COMPLETE]
    names = ", ".join(step.name for step in steps)
    return f"paused, until an operator resumes: {names}" if all(step.override for step in steps) else "recovering"


def _is_under_way(plan: Plan) -> bool:
    return plan.status in _RUNNING
