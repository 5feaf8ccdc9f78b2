"""Which tasks are to be placed now."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from tf_scheduler.core.memo import remembered_of_plans
from tf_scheduler.core.recovery.units import READERS
from tf_scheduler.model.ids import TaskName
from tf_scheduler.model.spec import JobKind, Strategy, TaskSpec
from tf_scheduler.model.state import SchedulerState

from .claims import Claim, claims
from .control import control_of
from .define import Kind, Work, by_task
from .facts import open_tasks
from .outline import outline
from .recovery import is_ripe, to_relaunch


@dataclass(frozen=True, slots=True)
class Gang:
    """Tasks that are launched all or none, on behalf of one plan. Never empty."""

    #: Of several plans whose tasks need each other: the first of them.
    plan: str
    tasks: tuple[TaskSpec, ...]


def wanted(state: SchedulerState) -> tuple[Gang, ...]:
    """The gangs that are to be placed now, the more urgent first; empty: no offers are needed.

    Gangs are independent: one that finds no place does not keep the others from theirs. No task is in two of them.
    """
    return _choice(state)[0]


def purposes(state: SchedulerState) -> Mapping[TaskName, str]:
    """Wanted task -> the plan that wants it."""
    return _choice(state)[1]


Choice = tuple[tuple[Gang, ...], Mapping[TaskName, str]]


@remembered_of_plans
def _choice(state: SchedulerState) -> Choice:
    found = claims(state)
    groups = [group for claim in found for group in _groups(state, claim)]
    gangs = _after_dispatcher(state, _joined(state, groups))
    return gangs, {name: _purpose(state, claim, name) for claim in found for name in _launches(claim)}


def _launches(claim: Claim) -> Iterator[TaskName]:
    return (step.task for step in claim.steps if step.work is Work.LAUNCH and step.task is not None)


def _purpose(state: SchedulerState, claim: Claim, name: TaskName) -> str:
    """The plan whose parameters the next launch carries.

    A task that is launched again only because the addresses of others have changed, or because it was lost, keeps
    those of the plan that launched it last.
    """
    record, plan = state.tasks.get(name), claim.plan
    if record is None or plan.kind is Kind.CUSTOM or record.config != outline(state.spec).configs[name]:
        return plan.name
    ordered = record.serial <= control_of(state, plan).restarted_at(by_task(plan)[name][0])
    return plan.name if ordered else record.plan


def _groups(state: SchedulerState, claim: Claim) -> list[Gang]:
    """The tasks of one plan that can be launched. Those of a gang wait until all of them have ended."""
    names = list(_launches(claim))
    gone = [name for name in names if not _lives(state, name) and is_ripe(state, name)]
    tasks = outline(state.spec).tasks
    alone = {name for name in names if not claim.plan.gang or _goes_alone(state, tasks[name])}
    together = [name for name in names if name not in alone]
    found = [Gang(claim.plan.name, (tasks[name],)) for name in gone if name in alone]
    complete = together and len(gone) - len(found) == len(together)
    return [*([Gang(claim.plan.name, tuple(tasks[name] for name in together))] if complete else []), *found]


def _goes_alone(state: SchedulerState, task: TaskSpec) -> bool:
    """Whether nobody waits for the task, whatever the plan says of gangs."""
    return task.job.kind.aside or state.spec.strategy is Strategy.INDEPENDENT


def _lives(state: SchedulerState, name: TaskName) -> bool:
    record = state.tasks.get(name)
    return record is not None and state.is_live(record)


def _joined(state: SchedulerState, groups: Iterable[Gang]) -> tuple[Gang, ...]:
    """Tasks that must know every address go together, and only when every address is known with theirs."""
    knowers = outline(state.spec).knowers
    together = [gang for gang in groups if any(task.name in knowers for task in gang.tasks)]
    if not together:
        return tuple(groups)
    absent = (open_tasks(state) | frozenset(to_relaunch(state))) & outline(state.spec).members
    # Those whose addresses are still open, but that can be placed now, go with them: one decision for all.
    together = [gang for gang in groups if gang in together or any(task.name in absent for task in gang.tasks)]
    one = Gang(together[0].plan, tuple(task for gang in together for task in gang.tasks))
    if not absent - {task.name for task in one.tasks}:
        return (one, *(gang for gang in groups if gang not in together))
    others = (_without(gang, knowers) for gang in groups)
    return tuple(gang for gang in others if gang.tasks)


def _after_dispatcher(state: SchedulerState, gangs: tuple[Gang, ...]) -> tuple[Gang, ...]:
    """Who reads from a data service is launched with its dispatcher, or when that has an address."""
    tasks = outline(state.spec).tasks
    dispatchers = frozenset(name for name, task in tasks.items() if task.job.kind is JobKind.DISPATCHER)
    if not dispatchers & (open_tasks(state) | frozenset(to_relaunch(state))):
        return gangs
    readers = frozenset(name for name, task in tasks.items() if task.job.kind in READERS)
    found = (gang if dispatchers <= {task.name for task in gang.tasks} else _without(gang, readers) for gang in gangs)
    return tuple(gang for gang in found if gang.tasks)


def _without(gang: Gang, names: frozenset[TaskName]) -> Gang:
    return Gang(gang.plan, tuple(task for task in gang.tasks if task.name not in names))
