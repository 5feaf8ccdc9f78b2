"""Which tasks a roll-out still has to launch: what the records say, then what Mesos said of those few.

The first part changes only with a launch or an order, so a status update of one task among ten thousand costs nothing
here as long as nothing is open.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from tf_scheduler.core.memo import remembered
from tf_scheduler.model.ids import TaskId, TaskName
from tf_scheduler.model.plan import PlanControl
from tf_scheduler.model.spec import ServiceSpec
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.model.task import TaskRecord, TaskState, TaskStatus

from .control import control_of, in_force
from .define import by_task, launch_plans
from .outline import outline


@dataclass(frozen=True, slots=True)
class Facts:
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


def open_tasks(state: SchedulerState) -> frozenset[TaskName]:
    """Tasks that the roll-out in force has to launch, now or when it is their turn."""
    deploy, update, *_ = launch_plans(state.spec)
    plan = deploy if in_force(state) == deploy.name else update
    nodes = by_task(plan)
    return _open(state.spec, state.tasks, state.statuses, state.retired, control_of(state, plan), nodes)


@remembered
def _open(
    spec: ServiceSpec,
    tasks: Mapping[TaskName, TaskRecord],
    statuses: Mapping[TaskId, TaskStatus],
    retired: Mapping[TaskId, str],
    control: PlanControl,
    nodes: Mapping[TaskName, tuple[tuple[str, ...], object]],
) -> frozenset[TaskName]:
    facts = _facts(spec, tasks, retired, control, nodes)
    if not facts.open and not facts.outdated and not facts.stale:
        return facts.open

    def unfinished(names: AbstractSet[TaskName]) -> frozenset[TaskName]:
        return frozenset(name for name in names if not _finished(statuses.get(tasks[name].id)))

    shape, stale = outline(spec), unfinished(facts.stale)
    first = facts.open | unfinished(facts.outdated) | stale
    mates = set(shape.knowers if stale else ())
    for kind in {shape.tasks[name].job.kind for name in first}:
        mates |= shape.mates[kind]
    return first | unfinished((mates & facts.launched) - first)


def _finished(status: TaskStatus | None) -> bool:
    """A task that has finished is never launched again, unless an operator wants it."""
    return status is not None and status.state is TaskState.FINISHED


@remembered
def _facts(
    spec: ServiceSpec,
    tasks: Mapping[TaskName, TaskRecord],
    retired: Mapping[TaskId, str],
    control: PlanControl,
    nodes: Mapping[TaskName, tuple[tuple[str, ...], object]],
) -> Facts:
    shape = outline(spec)
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
    return Facts(absent | ordered, outdated - ordered, stale, frozenset(launched))


def _forced(control: PlanControl, nodes: Mapping[TaskName, tuple[tuple[str, ...], object]], name: TaskName) -> bool:
    return bool(control.forced) and name in nodes and control.covers(control.forced, nodes[name][0])
