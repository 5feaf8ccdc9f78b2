"""Which tasks a roll-out still has to launch: what the records say, then what Mesos said of those few.

The first part changes only with a launch or an order, so a status update of one task among ten thousand costs nothing
here as long as nothing is open.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from tf_scheduler.core.state.spec_index import index_of
from tf_scheduler.model.ids import TaskId, TaskName
from tf_scheduler.model.plan import DEPLOY, UPDATE, Node, PlanControl, PlanDef, PlanKind, StepDef
from tf_scheduler.model.spec import ServiceSpec
from tf_scheduler.model.task import TaskRecord, TaskState, TaskStatus


@dataclass(frozen=True, slots=True)
class RolloutFacts:
    """What the records say."""

    #: Never launched, told to end, or to be launched again by order: open whatever Mesos says.
    open: frozenset[TaskName]
    #: Launched with other options: open unless they have finished.
    outdated: frozenset[TaskName]
    #: Launched with an older ClusterSpec than the newest, which they must know: open unless they have finished. Then
    #: all that must know it are, so that they know the same one in the end.
    stale: frozenset[TaskName]
    #: Every task that may start again with one of those, as the table of recovery has it.
    launched: frozenset[TaskName]


def open_tasks(
    spec: ServiceSpec,
    tasks: Mapping[TaskName, TaskRecord],
    statuses: Mapping[TaskId, TaskStatus],
    facts: RolloutFacts,
) -> frozenset[TaskName]:
    """Tasks that a roll-out has to launch, now or when it is their turn."""
    if not facts.open and not facts.outdated and not facts.stale:
        return facts.open

    def unfinished(names: AbstractSet[TaskName]) -> frozenset[TaskName]:
        return frozenset(name for name in names if not _finished(statuses.get(tasks[name].id)))

    shape, stale = index_of(spec), unfinished(facts.stale)
    first = facts.open | unfinished(facts.outdated) | stale
    mates = set(shape.knowers if stale else ())
    for kind in {shape.tasks[name].job.kind for name in first}:
        mates |= shape.mates[kind]
    return first | unfinished((mates & facts.launched) - first)


def _finished(status: TaskStatus | None) -> bool:
    """A task that has finished is never launched again, unless an operator wants it."""
    return status is not None and status.state is TaskState.FINISHED


def rollout_facts(
    spec: ServiceSpec,
    tasks: Mapping[TaskName, TaskRecord],
    retired: Mapping[TaskId, str],
    control: PlanControl,
    plan: PlanDef,
) -> RolloutFacts:
    """What the records say of the work of a roll-out."""
    nodes = plan.by_task
    shape = index_of(spec)
    wanted = [name for name in shape.scope if not _forced(control, nodes, name)]
    launched = {name: tasks[name] for name in wanted if name in tasks}
    newest = max((tasks[name].generation for name in shape.members if name in tasks), default=0)
    ordered = frozenset(
        name
        for name, record in launched.items()
        if record.id in retired or (name in nodes and record.serial <= control.restarted_at(nodes[name][0]))
    )
    outdated = frozenset(name for name, record in launched.items() if record.config != shape.configs[name])
    stale = frozenset(
        name for name in shape.knowers & launched.keys() if tasks[name].generation < newest and name not in ordered
    )
    # A roll-out that an operator forced to be complete does not launch later what it never launched.
    was_complete = control.completed == shape.target
    absent = frozenset() if was_complete else frozenset(name for name in wanted if name not in tasks)
    return RolloutFacts(absent | ordered, outdated - ordered, stale, frozenset(launched))


def _forced(control: PlanControl, nodes: Mapping[TaskName, tuple[tuple[str, ...], object]], name: TaskName) -> bool:
    return bool(control.forced) and name in nodes and control.covers(control.forced, nodes[name][0])


def steps_to_relaunch(
    plan: PlanDef, control: PlanControl, tasks: Mapping[TaskName, TaskRecord], retired: Mapping[TaskId, str]
) -> frozenset[str]:
    """Steps whose task was not launched for the plan, with its parameters, since it was started or restarted."""

    def is_open(node: Node, step: StepDef) -> bool:
        record = None if step.task is None else tasks.get(step.task)
        own = record is not None and record.plan == plan.name and record.serial > control.restarted_at(node)
        ending = record is not None and record.id in retired
        return (ending or not own) and not control.covers(control.forced, node)

    return frozenset(step.name for node, step in plan.steps() if is_open(node, step))


# --- control
# What operators did to a plan, as it counts now.


#: Stands for all steps of a phase, or all phases of a plan, in what a canary strategy let go.
ALL = "*"
#: What a plan of the user is complete for, when it is.
DONE = "done"

NO_CONTROL = PlanControl()
#: A plan of the user begins when an operator wants it, as in the SDK.
_NOT_STARTED = PlanControl(interrupted=frozenset({()}))


def current_control(spec: ServiceSpec, stored: Mapping[str, PlanControl], plan: PlanDef) -> PlanControl:
    """What holds for a launch plan now: what was forced or let go for other options is void."""
    control = stored.get(plan.name, _NOT_STARTED if plan.kind is PlanKind.CUSTOM else NO_CONTROL)
    target = index_of(spec).target
    if plan.kind is not PlanKind.ROLL_OUT or control.target == target:
        return control
    return replace(control, forced=frozenset(), released=frozenset(), target=target)


def completion_target(spec: ServiceSpec, plan: PlanDef) -> str:
    """What the plan is complete for, when it is."""
    return index_of(spec).target if plan.kind is PlanKind.ROLL_OUT else DONE


def active_rollout(controls: Mapping[str, PlanControl]) -> str:
    """The roll-out that works: deploy until it was complete once, then update."""
    deploy = controls.get(DEPLOY)
    return UPDATE if deploy is not None and deploy.completed else DEPLOY


def was_completed(spec: ServiceSpec, plan: PlanDef, control: PlanControl) -> bool:
    """Whether the plan has been complete, for the options of now, since it was started last."""
    return control.completed == completion_target(spec, plan) or (plan.name == DEPLOY and bool(control.completed))


def latest_launch_number(tasks: Mapping[TaskName, TaskRecord], controls: Mapping[str, PlanControl]) -> int:
    """The greatest number of a launch that there was."""
    launched = max((record.serial for record in tasks.values()), default=0)
    ordered = (max(control.restarted.values(), default=0) for control in controls.values())
    return max(launched, max(ordered, default=0))
