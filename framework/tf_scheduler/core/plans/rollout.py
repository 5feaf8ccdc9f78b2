"""Determine which tasks a roll-out must still launch, and each plan's control.

`RolloutFacts` depends on records and commands only. While no task is open, a status update costs nothing here, even
with 10,000 tasks.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from tf_executor.contract.states import TaskState
from tf_scheduler.core.state.spec_index import index_of
from tf_scheduler.model.ids import TaskId, TaskName
from tf_scheduler.model.plan import DEPLOY, UPDATE, Node, PlanControl, PlanDef, PlanKind, StepDef
from tf_scheduler.model.spec import ServiceSpec
from tf_scheduler.model.task import Members, TaskRecord, TaskStatus


@dataclass(frozen=True, slots=True)
class RolloutFacts:
    """Open tasks of a roll-out, according to the records."""

    #: Never launched, stopped, or restarted by an operator: open regardless of their status.
    open: frozenset[TaskName]
    #: Launched with other options: open unless finished.
    outdated: frozenset[TaskName]
    #: Launched with an outdated ClusterSpec although they need every address: open unless finished. Then all tasks
    #: that need every address are open, so that all get the same ClusterSpec.
    stale: frozenset[TaskName]
    #: All launched tasks, which may restart with these.
    launched: frozenset[TaskName]


def open_tasks(
    spec: ServiceSpec, tasks: Mapping[TaskName, TaskRecord], statuses: Mapping[TaskId, TaskStatus], facts: RolloutFacts
) -> frozenset[TaskName]:
    """Return the tasks that a roll-out will launch."""
    if not facts.open and not facts.outdated and not facts.stale:
        return facts.open

    def unfinished(names: AbstractSet[TaskName]) -> frozenset[TaskName]:
        # Only an operator can restart a finished task.
        ends = ((name, statuses.get(tasks[name].id)) for name in names)
        return frozenset(name for name, end in ends if end is None or end.state is not TaskState.FINISHED)

    shape, stale = index_of(spec), unfinished(facts.stale)
    first = facts.open | unfinished(facts.outdated) | stale
    restarted = set(shape.address_dependents if stale else ())
    for kind in {shape.tasks[name].job.kind for name in first}:
        restarted |= shape.restart_peers[kind]
    return first | unfinished((restarted & facts.launched) - first)


def rollout_facts(
    spec: ServiceSpec,
    tasks: Mapping[TaskName, TaskRecord],
    retired: Mapping[TaskId, str],
    control: PlanControl,
    plan: PlanDef,
    members: Members | None = None,
) -> RolloutFacts:
    """Return the open tasks of a roll-out according to the records."""
    nodes = plan.by_task
    shape = index_of(spec)
    steps = nodes.items() if control.forced else ()
    names = shape.deployed.difference(name for name, (node, _) in steps if control.covers(control.forced, node))
    launched = {name: tasks[name] for name in names if name in tasks}
    newest = max((tasks[name].generation for name in shape.cluster_members if name in tasks), default=0)
    restarted = frozenset(
        name
        for name, record in launched.items()
        if record.id in retired or (name in nodes and record.serial <= control.restarted_at(nodes[name][0]))
    )
    outdated = frozenset(name for name, record in launched.items() if record.config != shape.configs[name])
    stale = frozenset(
        name
        for name in shape.address_dependents & launched.keys()
        # A chief that gets lists of its workers needs no other ClusterSpec.
        if tasks[name].generation < newest
        and name not in restarted
        and (members is None or members.chief != tasks[name].id)
    )
    # A roll-out that an operator forced to complete does not launch the rest later.
    was_complete = control.completed == shape.target
    absent = frozenset() if was_complete else frozenset(name for name in names if name not in tasks)
    return RolloutFacts(absent | restarted, outdated - restarted, stale, frozenset(launched))


def steps_to_relaunch(
    plan: PlanDef, control: PlanControl, tasks: Mapping[TaskName, TaskRecord], retired: Mapping[TaskId, str]
) -> frozenset[str]:
    """Return the steps whose task the plan must still launch.

    The plan has not launched it since the step, its phase or the plan was last started or restarted.
    """

    def is_open(node: Node, step: StepDef) -> bool:
        record = None if step.task is None else tasks.get(step.task)
        own = record is not None and record.plan == plan.name and record.serial > control.restarted_at(node)
        ending = record is not None and record.id in retired
        return (ending or not own) and not control.covers(control.forced, node)

    return frozenset(step.name for node, step in plan.steps() if is_open(node, step))


# --- Control


#: All steps of a phase, or all phases of a plan, in `PlanControl.released`.
ALL = "*"
#: Completion target of user plans.
DONE = "done"

NO_CONTROL = PlanControl()
#: User plans wait for an operator's start, as in the SDK.
_NOT_STARTED = PlanControl(interrupted=frozenset({()}))


def current_control(spec: ServiceSpec, controls: Mapping[str, PlanControl], plan: PlanDef) -> PlanControl:
    """Return a plan's control; changed options drop its forced and released nodes."""
    control = controls.get(plan.name, _NOT_STARTED if plan.kind is PlanKind.CUSTOM else NO_CONTROL)
    target = index_of(spec).target
    if plan.kind is not PlanKind.ROLL_OUT or control.target == target:
        return control
    return replace(control, forced=frozenset(), released=frozenset(), target=target)


def completion_target(spec: ServiceSpec, plan: PlanDef) -> str:
    """Return the target that the plan has reached when it is complete."""
    return index_of(spec).target if plan.kind is PlanKind.ROLL_OUT else DONE


def active_rollout(controls: Mapping[str, PlanControl]) -> str:
    """Return the active roll-out: deploy until its first completion, then update."""
    deploy = controls.get(DEPLOY)
    return UPDATE if deploy is not None and deploy.completed else DEPLOY


def was_completed(spec: ServiceSpec, plan: PlanDef, control: PlanControl) -> bool:
    """Return whether the plan has completed the current options since its last start."""
    return control.completed == completion_target(spec, plan) or (plan.name == DEPLOY and bool(control.completed))


def latest_launch_number(tasks: Mapping[TaskName, TaskRecord], controls: Mapping[str, PlanControl]) -> int:
    """Return the highest serial number of any launch."""
    launched = max((record.serial for record in tasks.values()), default=0)
    restarted = (max(control.restarted.values(), default=0) for control in controls.values())
    return max(launched, max(restarted, default=0))
