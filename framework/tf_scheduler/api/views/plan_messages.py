"""Plans for display, with a message per step; and the uninstall plan for DC/OS."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tf_executor.contract.states import Override, Status
from tf_executor.contract.text import list_names
from tf_scheduler.core.plans import scheduling
from tf_scheduler.core.plans.plan_status import (
    NOT_BEGUN,
    plan_definitions,
    plan_statuses,
    progress_in,
    uninstall_progress,
)
from tf_scheduler.core.plans.step_status import PlanProgress
from tf_scheduler.core.state import after_job
from tf_scheduler.core.state.spec_index import index_of, override_of, pause_reason
from tf_scheduler.model.effects import ComputedPlans
from tf_scheduler.model.ids import TaskName
from tf_scheduler.model.plan import (
    DEPLOY,
    Phase,
    PhaseDef,
    Plan,
    PlanKind,
    PlanStrategy,
    Step,
    StepDef,
    Work,
)
from tf_scheduler.model.redaction import redact_text
from tf_scheduler.model.state import SchedulerState


def plans(state: SchedulerState, view: ComputedPlans | None = None) -> tuple[Plan, ...]:
    """Return every current plan, in order of priority."""
    now = scheduling.view_of(state, view)
    return tuple(_plan(state, progress_in(state, plan, now), now) for plan in plan_definitions(state, now))


def find_plan(state: SchedulerState, name: str, view: ComputedPlans | None = None) -> Plan | None:
    """Return the plan with this name; `None` if missing."""
    now = scheduling.view_of(state, view)
    plan = next((plan for plan in plan_definitions(state, now) if plan.name == name), None)
    return None if plan is None else _plan(state, progress_in(state, plan, now), now)


def _plan(state: SchedulerState, now: PlanProgress, view: scheduling.PlanView) -> Plan:
    plan = plan_statuses(state, now)
    pairs = zip(now.plan.phases, plan.phases, strict=True)
    return replace(plan, phases=tuple(_phase(state, now, *pair, view) for pair in pairs))


def _phase(
    state: SchedulerState,
    now: PlanProgress,
    definition: PhaseDef,
    phase: Phase,
    view: scheduling.PlanView,
) -> Phase:
    # `replace` would take half of the time of a plan with 10,000 steps.
    steps = tuple(
        _overridden(
            state,
            step,
            Step(item.name, item.status, _message(state, now, phase.name, step, item.status, view), item.task),
        )
        for step, item in zip(definition.steps, phase.steps, strict=True)
    )
    return replace(phase, steps=steps)


def _message(
    state: SchedulerState,
    now: PlanProgress,
    phase: str,
    step: StepDef,
    status: Status,
    view: scheduling.PlanView,
) -> str:
    """Return why a step is pending, where it runs, or how it failed."""
    if status is Status.WAITING and (phase, step.name) in now.control.interrupted:
        return "interrupted: waits for an operator to continue it"
    if status is Status.WAITING:
        return f"canary: waits for an operator to continue its phase: plan resume {now.plan.name} {phase}"
    if status is Status.DELAYED or status in NOT_BEGUN:
        return _why_not(state, now, phase, step, status, view)
    return _so_far(state, step)


def task_location(state: SchedulerState, name: TaskName) -> str:
    """Return the state of the task's last launch, such as `running on agent-2`."""
    record, status = state.stored.tasks.get(name), state.status(name)
    if record is None:
        return ""
    if status is None:
        return f"launching on {record.hostname}"
    return f"{status.state.label} on {record.hostname}{f': {status.message}' if status.message else ''}"


def _overridden(state: SchedulerState, step: StepDef, displayed: Step) -> Step:
    """Return the step; if its task is paused, with the override and the reason."""
    name = step.task
    override = override_of(state, name) if name is not None and step.work is Work.LAUNCH else None
    if name is None or override is None:
        return displayed
    kept = f"its resources on {state.stored.tasks[name].hostname} are kept"
    location = kept if override is Override.PAUSED else task_location(state, name)
    reasons = map(str, state.session.round.reasons.get(name, ()))
    message = "; ".join((location, pause_reason(state, name), *reasons))
    return replace(displayed, message=message, override=override)


def _so_far(state: SchedulerState, step: StepDef) -> str:
    if step.task is None:
        return ""
    record = state.stored.tasks.get(step.task)
    location = task_location(state, step.task)
    if step.work is Work.LAUNCH or record is None:
        return location
    waits = record.id not in state.stored.retired and state.is_probably_used(record)
    return f"{record.id}: {location}{'; waits until the chief continues without it' if waits else ''}"


def _why_not(
    state: SchedulerState, now: PlanProgress, phase: str, step: StepDef, status: Status, view: scheduling.PlanView
) -> str:
    name = step.task
    if name is None:
        return _before_deregistering(state) if step.work is Work.DEREGISTER else ""
    if step.work is not Work.LAUNCH:
        return _so_far(state, step)
    other = scheduling.owning_plan(now.state, view.progress, name)
    if other not in (None, now.plan.name):
        return f"plan {other} works on this task"
    if name in now.lost and status is Status.DELAYED:
        return f"{task_location(state, name)}; {state.stored.recoveries[name].why}"
    if name in state.session.round.reasons:
        return "; ".join(map(str, state.session.round.reasons[name]))
    record = state.stored.tasks.get(name)
    if record is None:
        return ""
    again = record.id in state.stored.retired or name in now.lost
    is_held = again and not state.is_live(record) and name in index_of(state.spec).address_dependents
    if missing := view.records.missing_addresses(name) or (view.held_addresses if is_held else ()):
        return f"{task_location(state, name)}; waits for the address of {list_names(missing)}"
    return f"{task_location(state, name)}; {_to_do(now, phase, again)}"


def _before_deregistering(state: SchedulerState) -> str:
    if state.live_count():
        return "waits for the end of all tasks"
    if after_job.keeps_service(state):
        return "finish.then is idle: waits for an operator to uninstall the service, or to force this step to complete"
    if after_job.awaits_agents(state):
        return after_job.abandoned_message(state)
    return "waits for Mesos to remove the framework"


def _to_do(now: PlanProgress, phase: str, again: bool) -> str:
    """Return why a plan will relaunch a task, or what the plan waits for."""
    is_custom = now.plan.kind is PlanKind.CUSTOM
    if () in now.control.interrupted:
        return f"waits for an operator to {'start or ' if is_custom else ''}continue the plan"
    if (phase,) in now.control.interrupted:
        return "waits for an operator to continue its phase"
    if again:
        return "will be launched again"
    return "the plan will launch it again in the order of its steps" if is_custom else "its launch is outdated"


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
    plan = _plan(state, uninstall_progress(state), scheduling.view_of(state))
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
    folder = redact_text(state.spec.checkpoint_dir)
    stay = f" but what {folder} holds; the next service of this name resumes from checkpoints there" if folder else ""
    return NO_LEFTOVERS + stay


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
