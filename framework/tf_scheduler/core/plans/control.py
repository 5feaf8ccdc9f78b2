"""What operators did to a plan, as it counts now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tf_scheduler.core.memo import remembered
from tf_scheduler.model.ids import TaskName
from tf_scheduler.model.plan import PlanControl
from tf_scheduler.model.plan_names import DEPLOY, UPDATE
from tf_scheduler.model.spec import ServiceSpec
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.model.task import TaskRecord

from .define import Kind, PlanDef
from .outline import outline

#: Stands for all steps of a phase, or all phases of a plan, in what a canary strategy let go.
ALL = "*"
#: What a plan of the user is complete for, when it is.
DONE = "done"

_FRESH = PlanControl()
#: A plan of the user begins when an operator wants it, as in the SDK.
_NOT_STARTED = PlanControl(interrupted=frozenset({()}))


def control_of(state: SchedulerState, plan: PlanDef) -> PlanControl:
    """What holds for the plan now: what was forced or let go for other options is void."""
    stored = state.controls.get(plan.name, _NOT_STARTED if plan.kind is Kind.CUSTOM else _FRESH)
    return _current(state.spec, stored) if plan.kind is Kind.ROLL_OUT else stored


@remembered
def _current(spec: ServiceSpec, stored: PlanControl) -> PlanControl:
    if stored.target == outline(spec).target:
        return stored
    return replace(stored, forced=frozenset(), released=frozenset(), target=outline(spec).target)


def target_of(state: SchedulerState, plan: PlanDef) -> str:
    """What the plan is complete for, when it is."""
    return outline(state.spec).target if plan.kind is Kind.ROLL_OUT else DONE


def in_force(state: SchedulerState) -> str:
    """The roll-out that works: deploy until it was complete once, then update."""
    deploy = state.controls.get(DEPLOY)
    return UPDATE if deploy is not None and deploy.completed else DEPLOY


def was_complete(state: SchedulerState, plan: PlanDef, control: PlanControl) -> bool:
    """Whether the plan has been complete, for the options of now, since it was started last."""
    return control.completed == target_of(state, plan) or (plan.name == DEPLOY and bool(control.completed))


def last_serial(tasks: Mapping[TaskName, TaskRecord], controls: Mapping[str, PlanControl]) -> int:
    """The greatest number of a launch that there was."""
    launched = max((record.serial for record in tasks.values()), default=0)
    ordered = (max(control.restarted.values(), default=0) for control in controls.values())
    return max(launched, max(ordered, default=0))
