"""Plans for display, with statuses and a message per step; and the uninstall plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace

from tf_scheduler.core.state import after_job
from tf_scheduler.core.state.spec_index import override_of, pause_reason
from tf_scheduler.model.effects import ComputedPlans
from tf_scheduler.model.ids import TaskName
from tf_scheduler.model.plan import (
    DEPLOY,
    Node,
    Override,
    Phase,
    PhaseDef,
    Plan,
    PlanDef,
    PlanKind,
    PlanStrategy,
    Status,
    Step,
    StepDef,
    Work,
)
from tf_scheduler.model.state import SchedulerState

from . import scheduling
from .definitions import uninstall_plan
from .step_status import PlanProgress, plan_progress
from .tables import ChildStatuses, aggregate

_NOT_BEGUN = (Status.PENDING, Status.PREPARED)
_NOTHING: frozenset[str] = frozenset()


def plans(state: SchedulerState, view: ComputedPlans | None = None) -> tuple[Plan, ...]:
    """Return every current plan, in order of priority."""
    now = scheduling.view_of(state, view)
    return tuple(_plan(state, progress_in(state, plan, now), now.progress) for plan in plan_definitions(state, now))


def find_plan(state: SchedulerState, name: str, view: ComputedPlans | None = None) -> Plan | None:
    """Return the plan with this name; `None` if missing."""
    now = scheduling.view_of(state, view)
    plan = next((plan for plan in plan_definitions(state, now) if plan.name == name), None)
    return None if plan is None else _plan(state, progress_in(state, plan, now), now.progress)


def uninstall_status(state: SchedulerState) -> Plan:
    """Return the uninstall plan, even before it starts."""
    return _plan(state, uninstall_progress(state), {})


def plan_definitions(state: SchedulerState, view: scheduling.PlanView) -> tuple[PlanDef, ...]:
    """Return every current plan; after the end of the job uninstall is the first."""
    if state.stored.result is None:
        return view.definitions
    return (uninstall_plan(state.stored.tasks), *view.definitions)


def progress_in(state: SchedulerState, plan: PlanDef, view: scheduling.PlanView) -> PlanProgress:
    """Return the progress of any plan."""
    is_uninstall = plan.kind is PlanKind.UNINSTALL
    return plan_progress(view, plan, state) if is_uninstall else view.progress[plan.name]


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


def task_location(state: SchedulerState, name: TaskName) -> str:
    """Return the state of the task's last launch, such as `running on agent-2`."""
    record, status = state.stored.tasks.get(name), state.status(name)
    if record is None:
        return ""
    if status is None:
        return f"launching on {record.hostname}"
    return f"{status.state.label} on {record.hostname}{f': {status.message}' if status.message else ''}"


def _plan(state: SchedulerState, now: PlanProgress, progress: Mapping[str, PlanProgress]) -> Plan:
    plan = now.plan
    phases = tuple(_phase(state, now, phase, progress) for phase in plan.phases)
    statuses = {phase.name: phase.status for phase in phases}
    children = _known(scheduling.phase_children(now, _NOTHING), statuses)
    canaries = [name for name in scheduling.held_back(children) if statuses[name] in _NOT_BEGUN]
    statuses.update(dict.fromkeys(canaries, Status.WAITING))
    phases = tuple(replace(phase, status=statuses[phase.name]) for phase in phases)
    status = _whole(children, statuses, () in now.control.interrupted)
    # Rejected options are errors of the plan that would roll them out, as in the SDK.
    rejected = state.process.rejected if plan.kind is PlanKind.ROLL_OUT else ()
    return Plan(plan.name, Status.ERROR if rejected else status, phases, plan.strategy, rejected)


def _phase(state: SchedulerState, now: PlanProgress, phase: PhaseDef, progress: Mapping[str, PlanProgress]) -> Phase:
    base = {step.name: now.status((phase.name, step.name), step) for step in phase.steps}
    children = _known(scheduling.step_children(now, phase, _NOTHING), base)
    canaries = frozenset(scheduling.held_back(children))
    steps = tuple(
        _overridden(state, step, _step(state, now, phase, step, base[step.name], canaries, progress))
        for step in phase.steps
    )
    statuses = {step.name: step.status for step in steps}
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


def _step(
    state: SchedulerState,
    now: PlanProgress,
    phase: PhaseDef,
    step: StepDef,
    status: Status,
    canaries: AbstractSet[str],
    progress: Mapping[str, PlanProgress],
) -> Step:
    if status is Status.DELAYED:
        return Step(step.name, status, _why_not(state, now, step, status, progress), step.task)
    if status not in _NOT_BEGUN:
        return Step(step.name, status, _so_far(state, step), step.task)
    if now.control.interrupted and (phase.name, step.name) in now.control.interrupted:
        return Step(step.name, Status.WAITING, "interrupted: waits for an operator to continue it", step.task)
    if step.name in canaries:
        words = f"canary: waits for an operator to continue its phase: plan resume {now.plan.name} {phase.name}"
        return Step(step.name, Status.WAITING, words, step.task)
    return Step(step.name, status, _why_not(state, now, step, status, progress), step.task)


def _overridden(state: SchedulerState, step: StepDef, displayed: Step) -> Step:
    """Return the step with the override and the reason of a paused task."""
    name = step.task
    override = override_of(state, name) if name is not None and step.work is Work.LAUNCH else None
    if name is None or override is None:
        return displayed
    kept = f"its resources on {state.stored.tasks[name].hostname} are kept"
    location = kept if override is Override.PAUSED else task_location(state, name)
    reasons = map(str, state.session.pending.get(name, ()))
    message = "; ".join((location, pause_reason(state, name), *reasons))
    return replace(displayed, message=message, override=override)


def _so_far(state: SchedulerState, step: StepDef) -> str:
    if step.task is None:
        return ""
    record = state.stored.tasks.get(step.task)
    location = task_location(state, step.task)
    return location if step.work is Work.LAUNCH or record is None else f"{record.id}: {location}"


def _why_not(
    state: SchedulerState, now: PlanProgress, step: StepDef, status: Status, progress: Mapping[str, PlanProgress]
) -> str:
    name = step.task
    if name is None:
        return _before_deregistering(state) if step.work is Work.DEREGISTER else ""
    if step.work is not Work.LAUNCH:
        return _so_far(state, step)
    other = scheduling.owning_plan(now.state, progress, name)
    if other not in (None, now.plan.name):
        return f"plan {other} works on this task"
    if name in now.lost and status is Status.DELAYED:
        return f"{task_location(state, name)}; {state.stored.recoveries[name].why}"
    if name in state.session.pending:
        return "; ".join(map(str, state.session.pending[name]))
    record = state.stored.tasks.get(name)
    if record is None:
        return ""
    again = record.id in state.stored.retired or name in now.lost
    return f"{task_location(state, name)}; {'will be launched again' if again else _to_do(now)}"


def _before_deregistering(state: SchedulerState) -> str:
    if state.live_count():
        return "waits for the end of all tasks"
    if after_job.keeps_service(state):
        return "finish.then is idle: waits for an operator to uninstall the service, or to force this step to complete"
    if after_job.awaits_agents(state):
        return after_job.abandoned_message(state)
    return "waits for Mesos to remove the framework"


def _to_do(now: PlanProgress) -> str:
    """Return why a plan relaunches a running task."""
    if now.plan.kind is not PlanKind.CUSTOM:
        return "its launch is outdated"
    if () in now.control.interrupted:
        return "waits for an operator to start or continue the plan"
    return "the plan will launch it again in the order of its steps"


# --- Uninstall plan
#
# DC/OS polls it under the name `deploy` (dcos/cosmos, ServiceUninstaller), as in the SDK.
#
#     kill-tasks ──▶ deregister-service ──▶ forget-state
#
# Each phase has a timeout, so that a lost agent blocks nothing: remaining tasks are reported as left behind
# (core/job_end.py).


#: Reason of the result during uninstall.
UNINSTALL_REASON = "the service is being uninstalled"
FORGET_STATE = "forget-state"
NO_LEFTOVERS = "nothing is left behind"


def sdk_uninstall_plan(state: SchedulerState) -> Plan:
    """Return the uninstall plan for DC/OS: complete after the stored state is erased."""
    plan = uninstall_status(state)
    status = plan.status
    if status is Status.COMPLETE and not state.process.is_erased:
        status = Status.IN_PROGRESS
    return replace(plan, name=DEPLOY, phases=(*plan.phases, _forget(state)), status=status)


def leftovers_message(state: SchedulerState) -> str:
    """Return a message about the tasks and frameworks left behind."""
    if left := tuple(_leftovers(state)):
        return f"left behind: {'; '.join(left)}"
    if state.process.finished and state.stored.framework_id is None:
        return f"{NO_LEFTOVERS} as far as known: no state is stored, and Mesos did not name a framework to end in time"
    return NO_LEFTOVERS


def _leftovers(state: SchedulerState) -> Iterator[str]:
    yield from state.process.left_behind
    if state.process.finished:
        yield from after_job.left_to_mesos(state)
    if state.process.finished and state.stored.framework_id is None and state.process.refused:
        yield state.process.refused
    if state.process.finished and state.stored.framework_id is not None and not state.stored.removed:
        yield (
            f"framework {state.stored.framework_id} ({state.process.refused}), which "
            "remains until service.failover_timeout expires or an operator tears it down"
        )


def _forget(state: SchedulerState) -> Phase:
    process = state.process
    status = Status.COMPLETE if process.is_erased else Status.STARTING if process.finished else Status.PENDING
    waits_for: tuple[str, ...] = ()
    message = "waits for the end of the framework"
    if process.finished or process.left_behind:
        message = leftovers_message(state)
    elif after_job.awaits_agents(state):
        message, waits_for = after_job.abandoned_message(state), tuple(map(str, state.stored.abandoned.values()))
    step = Step(FORGET_STATE, status, message, left_behind=tuple(_leftovers(state)), waits_for=waits_for)
    return Phase(FORGET_STATE, status, (step,), PlanStrategy.SERIAL)
