"""Where the steps of a plan stand, from records, statuses and orders; and which of them have work left."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from tf_scheduler.core.memo import remembered
from tf_scheduler.model.ids import TaskId, TaskName
from tf_scheduler.model.plan import Node, PlanControl, Status
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.model.task import TaskRecord, TaskState

from .control import control_of, in_force, was_complete
from .define import Kind, PlanDef, StepDef, Work
from .facts import open_tasks
from .recovery import is_ripe, to_relaunch
from .tables import ENDINGS, LAUNCHED, SITUATIONS, Ending, Situation


@dataclass(frozen=True, slots=True)
class Standing:
    """One plan in one state."""

    state: SchedulerState
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

    def status(self, node: Node, step: StepDef) -> Status:
        """The status of one step, without regard to interrupts."""
        if step.work is not Work.LAUNCH or step.task is None:
            return ENDINGS[self._ending(node, step)]
        return SITUATIONS[self._situation(node, step.task)] or launched_status(self.state, step.task)

    def complete(self, node: Node, step: StepDef) -> bool:
        if self.calm and step.work is Work.LAUNCH and step.name not in self.launches:
            return True
        return self.status(node, step) is Status.COMPLETE

    def open(self) -> AbstractSet[str]:
        """Names of the steps that something is to be done for, now or when it is their turn."""
        if self.plan.kind in (Kind.ROLL_OUT, Kind.CUSTOM):
            return self.launches
        if self.plan.kind is Kind.RECOVERY:
            # Not what is paused: nothing is done for it.
            return {step.name for node, step in self.plan.steps() if self._is_lost(node, step)}
        return {step.name for node, step in self.plan.steps() if not self.complete(node, step)}

    def _situation(self, node: Node, name: TaskName) -> Situation:
        if self.control.forced and self.control.covers(self.control.forced, node):
            return Situation.FORCED
        if name in self.launches:
            return self._open_situation(name)
        if self.done and not self._is_paused(name):
            return Situation.DONE
        if name in self.lost:
            return self._lost_situation(name)
        # Of recovery: a task that is paused, and that another plan launches again.
        record = self.state.tasks.get(name)
        return Situation.RETIRED if record is not None and record.id in self.state.retired else Situation.LAUNCHED

    def _is_lost(self, node: Node, step: StepDef) -> bool:
        return step.name in self.launches and not self.complete(node, step)

    def _is_paused(self, name: TaskName) -> bool:
        """Whether the roll-out in force was complete, but for an operator's pause."""
        record = self.state.tasks.get(name)
        return record is not None and record.idle and self.plan.name == in_force(self.state)

    def _open_situation(self, name: TaskName) -> Situation:
        record = self.state.tasks.get(name)
        if record is None:
            return Situation.UNLAUNCHED
        if record.id in self.state.retired:
            return Situation.RETIRED
        return self._lost_situation(name) if self.plan.kind is Kind.RECOVERY else Situation.OUTDATED

    def _lost_situation(self, name: TaskName) -> Situation:
        return Situation.LOST if is_ripe(self.state, name) else Situation.DELAYED

    def _ending(self, node: Node, step: StepDef) -> Ending:
        if step.work is Work.DEREGISTER:  # sent all the same when it is forced: else the framework would stay
            return Ending.DONE if self.state.over else _asked(self.state.teardown_at is not None)
        if self.control.covers(self.control.forced, node):
            return Ending.FORCED
        if step.work is Work.UNRESERVE:
            return Ending.ASKED  # it is in the state as long as it is not given back
        record = None if step.task is None else self.state.tasks.get(step.task)
        if record is None:
            return Ending.DONE
        if step.work is Work.ERASE:
            return Ending.OPEN
        if not self.state.is_live(record):
            return Ending.DONE
        return _asked(record.id in (self.state.kills if self.plan.kind is Kind.UNINSTALL else self.state.retired))


def standing(state: SchedulerState, plan: PlanDef) -> Standing:
    """Where the plan stands."""
    control = control_of(state, plan)
    done, launches = _LAUNCHES[plan.kind](state, plan, control)
    lost = frozenset(to_relaunch(state))
    calm = not lost and not state.paused and state.at_goal() == len(state.tasks)
    return Standing(state, plan, control, done, launches, lost, calm)


def launched_status(state: SchedulerState, name: TaskName) -> Status:
    """What the current launch of a task makes of a step that wants it."""
    status = state.status(name)
    if status is None:
        return Status.STARTING
    if status.state is TaskState.RUNNING and (status.healthy is False or state.tasks[name].idle):
        return Status.STARTED
    if state.result is not None and status.state in (TaskState.KILLING, TaskState.KILLED):
        return Status.COMPLETE  # it ran, and was ended with the job
    return LAUNCHED[status.state]


def _asked(asked: bool) -> Ending:
    return Ending.ASKED if asked else Ending.OPEN


# --- per kind of plan: whether it is done, and which launch steps are open

_Launches = tuple[bool, AbstractSet[str]]
_NOTHING: frozenset[str] = frozenset()


def _roll_out(state: SchedulerState, plan: PlanDef, control: PlanControl) -> _Launches:
    if plan.name != in_force(state):
        return True, _NOTHING
    return was_complete(state, plan, control), open_tasks(state)


def _custom(state: SchedulerState, plan: PlanDef, control: PlanControl) -> _Launches:
    if was_complete(state, plan, control):
        return True, _NOTHING
    return False, _not_own(plan, control, state.tasks, state.retired)


@remembered
def _not_own(
    plan: PlanDef, control: PlanControl, tasks: Mapping[TaskName, TaskRecord], retired: Mapping[TaskId, str]
) -> frozenset[str]:
    """Steps whose task was not launched for the plan, with its parameters, since it was started or restarted."""

    def is_open(node: Node, step: StepDef) -> bool:
        record = None if step.task is None else tasks.get(step.task)
        own = record is not None and record.plan == plan.name and record.serial > control.restarted_at(node)
        ending = record is not None and record.id in retired
        return (ending or not own) and not control.covers(control.forced, node)

    return frozenset(step.name for node, step in plan.steps() if is_open(node, step))


def _recovery(state: SchedulerState, _plan: PlanDef, _control: PlanControl) -> _Launches:
    return False, frozenset(to_relaunch(state))


def _ends_only(_state: SchedulerState, _plan: PlanDef, _control: PlanControl) -> _Launches:
    return False, _NOTHING


_LAUNCHES: Mapping[Kind, Callable[[SchedulerState, PlanDef, PlanControl], _Launches]] = {
    Kind.ROLL_OUT: _roll_out,
    Kind.CUSTOM: _custom,
    Kind.RECOVERY: _recovery,
    Kind.DECOMMISSION: _ends_only,
    Kind.UNINSTALL: _ends_only,
}
