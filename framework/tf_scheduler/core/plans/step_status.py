"""Where the steps of a plan stand, from records, statuses and orders; and which of them have work left."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from tf_scheduler.model.ids import TaskId, TaskName
from tf_scheduler.model.plan import Node, PlanControl, PlanDef, PlanKind, Status, StepDef, Work
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.model.task import TaskState

from .definitions import PlanBase, PlanInputs
from .rollout import was_completed
from .tables import ENDINGS, LAUNCHED, SITUATIONS, EndSituation, LaunchSituation


@dataclass(frozen=True, slots=True)
class TeardownProgress:
    """What was sent to end the service."""

    kills: Mapping[TaskId, float]
    sent: bool
    finished: bool

    @classmethod
    def of(cls, state: SchedulerState) -> TeardownProgress:
        return cls(state.session.kills, state.session.teardown_at is not None, state.process.finished)


@dataclass(frozen=True, slots=True)
class PlanProgress:
    """How far one plan is."""

    inputs: PlanInputs
    plan: PlanDef
    control: PlanControl
    #: Nothing is to be done any more: it was complete, or another roll-out is in force.
    done: bool
    #: Launch steps with work left, by the name of their task.
    launches: AbstractSet[str]
    #: Tasks that recovery is to launch again.
    lost: AbstractSet[TaskName]
    #: Every launch that there is runs or has finished: a look at each of them is not needed.
    calm: bool
    #: Whether it is the active roll-out.
    active: bool
    #: Of the uninstall plan only.
    teardown: TeardownProgress | None = None

    def status(self, node: Node, step: StepDef) -> Status:
        """The status of one step, without regard to interrupts."""
        if step.work is not Work.LAUNCH or step.task is None:
            return ENDINGS[self._ending(node, step)]
        return SITUATIONS[self._situation(node, step.task)] or launched_status(self.inputs, step.task)

    def complete(self, node: Node, step: StepDef) -> bool:
        if self.calm and step.work is Work.LAUNCH and step.name not in self.launches:
            return True
        return self.status(node, step) is Status.COMPLETE

    def open(self) -> AbstractSet[str]:
        """Names of the steps that something is to be done for, now or when it is their turn."""
        if self.plan.kind in (PlanKind.ROLL_OUT, PlanKind.CUSTOM):
            return self.launches
        if self.plan.kind is PlanKind.RECOVERY:
            # Not what is paused: nothing is done for it.
            return {step.name for node, step in self.plan.steps() if self._is_lost(node, step)}
        return {step.name for node, step in self.plan.steps() if not self.complete(node, step)}

    def _situation(self, node: Node, name: TaskName) -> LaunchSituation:
        if self.control.forced and self.control.covers(self.control.forced, node):
            return LaunchSituation.FORCED
        if name in self.launches:
            return self._open_situation(name)
        if self.done and not self._is_paused(name):
            return LaunchSituation.DONE
        if name in self.lost:
            return self._lost_situation(name)
        # Of recovery: a task that is paused, and that another plan launches again.
        record = self.inputs.tasks.get(name)
        return (
            LaunchSituation.RETIRED
            if record is not None and record.id in self.inputs.retired
            else LaunchSituation.LAUNCHED
        )

    def _is_lost(self, node: Node, step: StepDef) -> bool:
        return step.name in self.launches and not self.complete(node, step)

    def _is_paused(self, name: TaskName) -> bool:
        """Whether the roll-out in force was complete, but for an operator's pause."""
        record = self.inputs.tasks.get(name)
        return record is not None and record.is_placeholder and self.active

    def _open_situation(self, name: TaskName) -> LaunchSituation:
        record = self.inputs.tasks.get(name)
        if record is None:
            return LaunchSituation.UNLAUNCHED
        if record.id in self.inputs.retired:
            return LaunchSituation.RETIRED
        return self._lost_situation(name) if self.plan.kind is PlanKind.RECOVERY else LaunchSituation.OUTDATED

    def _lost_situation(self, name: TaskName) -> LaunchSituation:
        return LaunchSituation.LOST if self.inputs.is_ready(name) else LaunchSituation.DELAYED

    def _ending(self, node: Node, step: StepDef) -> EndSituation:
        if step.work is Work.DEREGISTER:  # sent all the same when it is forced: else the framework would stay
            done = self.teardown is not None and self.teardown.finished
            return EndSituation.DONE if done else _asked(self.teardown is not None and self.teardown.sent)
        if self.control.covers(self.control.forced, node):
            return EndSituation.FORCED
        if step.work is Work.UNRESERVE:
            return EndSituation.ASKED  # it is in the state as long as it is not given back
        record = None if step.task is None else self.inputs.tasks.get(step.task)
        if record is None:
            return EndSituation.DONE
        if step.work is Work.ERASE:
            return EndSituation.OPEN
        if not self.inputs.is_live(record):
            return EndSituation.DONE
        return _asked(record.id in (self.inputs.retired if self.teardown is None else self.teardown.kills))


def plan_progress(base: PlanBase, plan: PlanDef, teardown: TeardownProgress | None = None) -> PlanProgress:
    """How far the plan is. `teardown` is required for the uninstall plan."""
    inputs, control, lost = base.inputs, base.records.control_of(plan), base.recovery.lost
    done, launches = _launches(base, plan, control)
    calm = not lost and not inputs.paused and inputs.at_goal() == len(inputs.tasks)
    active = plan.name == base.records.rollout.name
    return PlanProgress(inputs, plan, control, done, launches, lost, calm, active, teardown)


def launched_status(inputs: PlanInputs, name: TaskName) -> Status:
    """What the current launch of a task makes of a step that wants it."""
    status = inputs.status(name)
    if status is None:
        return Status.STARTING
    if status.state is TaskState.RUNNING and (status.healthy is False or inputs.tasks[name].is_placeholder):
        return Status.STARTED
    if inputs.result is not None and status.state in (TaskState.KILLING, TaskState.KILLED):
        return Status.COMPLETE  # it ran, and was ended with the job
    return LAUNCHED[status.state]


def _asked(asked: bool) -> EndSituation:
    return EndSituation.ASKED if asked else EndSituation.OPEN


def _launches(base: PlanBase, plan: PlanDef, control: PlanControl) -> tuple[bool, AbstractSet[str]]:
    """Whether the plan is done, and which of its launch steps are open."""
    if plan.kind is PlanKind.ROLL_OUT and plan.name == base.records.rollout.name:
        return was_completed(base.inputs.spec, plan, control), base.open_tasks
    if plan.kind is PlanKind.CUSTOM and plan.name in base.records.custom_open:
        return False, base.records.custom_open[plan.name]
    if plan.kind is PlanKind.RECOVERY:
        return False, base.recovery.lost
    return plan.kind in (PlanKind.ROLL_OUT, PlanKind.CUSTOM), frozenset()
