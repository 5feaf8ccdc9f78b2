"""Statuses of plans, phases and steps; due steps of the uninstall plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tf_executor.contract.states import Status
from tf_scheduler.model.plan import Node, Phase, PhaseDef, Plan, PlanDef, PlanKind, Step, StepDef, Work
from tf_scheduler.model.state import SchedulerState

from . import scheduling
from .definitions import uninstall_plan
from .status_tables import ChildStatuses, aggregate
from .step_status import PlanProgress, plan_progress

#: Statuses of a step that waits, or has nothing to wait for, before its task is launched.
NOT_BEGUN = (Status.PENDING, Status.PREPARED)
_NOTHING: frozenset[str] = frozenset()


def plan_definitions(state: SchedulerState, view: scheduling.PlanView) -> tuple[PlanDef, ...]:
    """Return every current plan; after the end of the job, uninstall comes first."""
    plans = view.definitions
    if state.stored.result is not None:
        return (uninstall_plan(state.stored.tasks), *plans)
    if state.is_any_starting() and view.records.control_of(view.records.rollout).completed:
        starting = (name for name, record in state.stored.tasks.items() if not state.has_run(record))
        shown = view.recovery.plan_with(starting)
        return tuple(shown if plan.kind is PlanKind.RECOVERY else plan for plan in plans)
    return plans


def progress_in(state: SchedulerState, plan: PlanDef, view: scheduling.PlanView) -> PlanProgress:
    """Return the progress of a plan of `plan_definitions`."""
    is_own = plan.kind in (PlanKind.UNINSTALL, PlanKind.RECOVERY)
    return plan_progress(view, plan, state) if is_own else view.progress[plan.name]


def uninstall_progress(state: SchedulerState) -> PlanProgress:
    """Return the progress of the uninstall plan, even before it starts."""
    return progress_in(state, uninstall_plan(state.stored.tasks), scheduling.view_of(state))


def due_uninstall_steps(state: SchedulerState) -> tuple[StepDef, ...]:
    """Return the steps of the uninstall plan that may run now."""
    return scheduling.due_steps(uninstall_progress(state))


def is_teardown_due(state: SchedulerState) -> bool:
    """Return whether TEARDOWN may be sent now."""
    return any(step.work is Work.DEREGISTER for step in due_uninstall_steps(state))


def status_at(plan: Plan, node: Node) -> Status:
    """Return the status of the plan, a phase or a step; the node must exist."""
    if not node:
        return plan.status
    phase = next(phase for phase in plan.phases if phase.name == node[0])
    return phase.status if len(node) == 1 else next(step.status for step in phase.steps if step.name == node[1])


def plan_statuses(state: SchedulerState, now: PlanProgress) -> Plan:
    """Return the plan with the status of each phase and step, without messages."""
    plan = now.plan
    phases = tuple(_phase(now, phase) for phase in plan.phases)
    statuses = {phase.name: phase.status for phase in phases}
    children = _known(scheduling.phase_children(now, _NOTHING), statuses)
    canaries = [name for name in scheduling.held_back(children) if statuses[name] in NOT_BEGUN]
    statuses.update(dict.fromkeys(canaries, Status.WAITING))
    phases = tuple(replace(phase, status=statuses[phase.name]) for phase in phases)
    status = _whole(children, statuses, () in now.control.interrupted)
    # Rejected options are errors of the plan that would roll them out, as in the SDK.
    rejected = state.process.rejected if plan.kind is PlanKind.ROLL_OUT else ()
    return Plan(plan.name, Status.ERROR if rejected else status, phases, plan.strategy, rejected)


def _phase(now: PlanProgress, phase: PhaseDef) -> Phase:
    base = {step.name: now.status((phase.name, step.name), step) for step in phase.steps}
    children = _known(scheduling.step_children(now, phase, _NOTHING), base)
    waiting = {*scheduling.held_back(children)}
    waiting |= {node[1] for node in now.control.interrupted if len(node) > 1 and node[0] == phase.name}
    statuses = {
        name: Status.WAITING if name in waiting and status in NOT_BEGUN else status for name, status in base.items()
    }
    steps = tuple(Step(step.name, statuses[step.name], task=step.task) for step in phase.steps)
    status = _whole(children, statuses, (phase.name,) in now.control.interrupted)
    return Phase(phase.name, status, steps, phase.strategy)


def _known(children: scheduling.Children, statuses: Mapping[str, Status]) -> scheduling.Children:
    """Return the children with computed statuses; all incomplete ones count as open."""
    return replace(
        children,
        open=frozenset(name for name, status in statuses.items() if status is not Status.COMPLETE),
        complete=lambda name: statuses[name] is Status.COMPLETE,
    )


def _whole(children: scheduling.Children, statuses: Mapping[str, Status], interrupted: bool) -> Status:
    turn = frozenset(statuses[name] for name in scheduling.eligible(children))
    return aggregate(ChildStatuses(frozenset(statuses.values()), turn, interrupted))
