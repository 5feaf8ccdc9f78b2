"""Step statuses and open steps of a plan, from records, statuses and commands."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from tf_executor.contract.states import Status, TaskState
from tf_scheduler.model.ids import TaskName
from tf_scheduler.model.plan import Node, PlanControl, PlanDef, PlanKind, StepDef, Work
from tf_scheduler.model.state import SchedulerState

from .definitions import PlanBase
from .rollout import was_completed
from .status_tables import ENDINGS, SITUATIONS, EndSituation, LaunchSituation


@dataclass(frozen=True, slots=True)
class PlanProgress:
    """Progress of one plan."""

    #: Reduced to what plans depend on; complete for the uninstall plan.
    state: SchedulerState
    plan: PlanDef
    control: PlanControl
    #: Whether no work remains: it was complete, or another roll-out is active.
    done: bool
    #: Open launch steps, by task name.
    launches: AbstractSet[str]
    #: Tasks that recovery will relaunch.
    lost: AbstractSet[TaskName]
    #: Whether every launch runs or has finished, so that not each must be checked.
    calm: bool
    #: Whether the plan is the active roll-out.
    active: bool

    def status(self, node: Node, step: StepDef) -> Status:
        """Return the status of one step, ignoring interrupts."""
        if step.work is not Work.LAUNCH or step.task is None:
            return ENDINGS[self._ending(node, step)]
        return SITUATIONS[self._situation(node, step.task)] or launched_status(self.state, step.task)

    def complete(self, node: Node, step: StepDef) -> bool:
        if self.calm and step.work is Work.LAUNCH and step.name not in self.launches:
            return True
        return self.status(node, step) is Status.COMPLETE

    def open(self) -> AbstractSet[str]:
        """Return the names of steps with remaining work."""
        if self.plan.kind in (PlanKind.ROLL_OUT, PlanKind.CUSTOM):
            return self.launches
        if self.plan.kind is PlanKind.RECOVERY:
            # Without paused tasks, which have no work.
            steps = ((node, step) for node, step in self.plan.steps() if step.name in self.launches)
            return {step.name for node, step in steps if not self.complete(node, step)}
        return {step.name for node, step in self.plan.steps() if not self.complete(node, step)}

    def _situation(self, node: Node, name: TaskName) -> LaunchSituation:
        if self.control.forced and self.control.covers(self.control.forced, node):
            return LaunchSituation.FORCED
        record = self.state.stored.tasks.get(name)
        is_retired = record is not None and record.id in self.state.stored.retired
        if name in self.launches and record is None:
            return LaunchSituation.UNLAUNCHED
        if name in self.launches and is_retired:
            return LaunchSituation.RETIRED
        if name in self.launches:
            return self._lost_situation(name) if self.plan.kind is PlanKind.RECOVERY else LaunchSituation.OUTDATED
        is_paused = self.active and record is not None and record.is_placeholder
        if self.done and not is_paused:
            return LaunchSituation.DONE
        if name in self.lost:
            return self._lost_situation(name)
        # A paused task in the recovery plan that another plan relaunches.
        return LaunchSituation.RETIRED if is_retired else LaunchSituation.LAUNCHED

    def _lost_situation(self, name: TaskName) -> LaunchSituation:
        return LaunchSituation.LOST if self.state.is_ready(name) else LaunchSituation.DELAYED

    def _ending(self, node: Node, step: StepDef) -> EndSituation:
        if step.work is Work.DEREGISTER:  # sent even if forced; otherwise the framework would stay registered
            return (
                EndSituation.DONE if self.state.process.finished else _asked(self.state.session.teardown_at is not None)
            )
        if self.control.covers(self.control.forced, node):
            return EndSituation.FORCED
        record = None if step.task is None else self.state.stored.tasks.get(step.task)
        if record is None:
            return EndSituation.DONE
        if step.work is Work.ERASE:
            return EndSituation.OPEN
        if not self.state.is_live(record):
            return EndSituation.DONE
        is_uninstall = self.plan.kind is PlanKind.UNINSTALL
        return _asked(record.id in (self.state.session.kills if is_uninstall else self.state.stored.retired))


def plan_progress(base: PlanBase, plan: PlanDef, state: SchedulerState | None = None) -> PlanProgress:
    """Return the progress of the plan; the uninstall plan needs the whole `state`."""
    state, control, lost = state or base.state, base.records.control_of(plan), base.recovery.lost
    done, launches = _launches(base, plan, control)
    calm = not lost and not state.stored.paused and state.at_goal_count() == len(state.stored.tasks)
    active = plan.name == base.records.rollout.name
    return PlanProgress(state, plan, control, done, launches, lost, calm, active)


def launched_status(state: SchedulerState, name: TaskName) -> Status:
    """Return the status of a step whose task has the launch that the plan wants."""
    status = state.status(name)
    if status is None:
        return Status.STARTING
    if status.is_frozen or (status.state is TaskState.RUNNING and state.stored.tasks[name].is_placeholder):
        return Status.STARTED
    if state.stored.result is not None and status.state in (TaskState.KILLING, TaskState.KILLED):
        return Status.COMPLETE  # it ran, and was stopped with the job
    return status.state.step


def _asked(is_sent: bool) -> EndSituation:
    return EndSituation.ASKED if is_sent else EndSituation.OPEN


def _launches(base: PlanBase, plan: PlanDef, control: PlanControl) -> tuple[bool, AbstractSet[str]]:
    """Return whether the plan is done, and its open launch steps."""
    if plan.name == base.records.rollout.name:
        return was_completed(base.state.spec, plan, control), base.open_tasks
    if plan.name in base.records.custom_open:
        return False, base.records.custom_open[plan.name]
    if plan.kind is PlanKind.RECOVERY:
        return False, base.recovery.lost
    return plan.kind in (PlanKind.ROLL_OUT, PlanKind.CUSTOM), frozenset()
