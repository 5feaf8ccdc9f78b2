"""The uninstall plan under the name `deploy`: so DC/OS asks for it (dcos/cosmos, ServiceUninstaller), as of the SDK.

    kill-tasks, unreserve-resources ──▶ deregister-service ──▶ forget-state

Each has its time: what has not ended, or was not given back, by then is left behind, and told (core/ending.py,
core/reserve.py). So an agent that is gone holds nothing up.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tf_scheduler.model.plan import Phase, Plan, PlanStrategy, Status, Step
from tf_scheduler.model.state import SchedulerState

from . import plans

#: Why a service stops that is being uninstalled.
REASON = "the service is being uninstalled"
FORGET = "forget-state"
NOTHING = "nothing is left behind"


def uninstall_plan(state: SchedulerState) -> Plan:
    """Complete when nothing of the service is left in Mesos, nor in its store."""
    plan = plans.uninstall_plan(state)
    status = plan.status
    if status is Status.COMPLETE and not state.forgotten:
        status = Status.IN_PROGRESS
    return replace(plan, name=plans.DEPLOY, phases=(*plan.phases, _forget(state)), status=status)


def what_is_left(state: SchedulerState) -> str:
    """A sentence for whoever has to look after it."""
    left = (*state.left, *_framework(state))
    if left:
        return f"left behind: {'; '.join(left)}"
    if state.over and state.framework_id is None:
        # Nor is anything known of what a scheduler before this one left, if it has forgotten its state.
        return f"{NOTHING} that is known: it never reached Mesos, or was uninstalled before"
    return NOTHING


def _framework(state: SchedulerState) -> Iterator[str]:
    if state.over and state.framework_id is not None and not state.removed:
        yield (
            f"framework {state.framework_id}, which Mesos did not let in: {state.refused}; it stays until "
            "service.failover_timeout is over, or an operator tears it down"
        )


def _forget(state: SchedulerState) -> Phase:
    status = Status.COMPLETE if state.forgotten else Status.STARTING if state.over else Status.PENDING
    message = what_is_left(state) if state.over or state.left else "waits for the end of the framework"
    return Phase(FORGET, status, (Step(FORGET, status, message),), PlanStrategy.SERIAL)
