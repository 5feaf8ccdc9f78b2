"""Which tasks an update restarts, and why: one function each, named as the sentence that it enforces.

The update plan (core.plans) does it; here it is told beforehand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from tf_scheduler.core.plans.outline import launched_with
from tf_scheduler.core.recovery import units
from tf_scheduler.model.ids import TaskName
from tf_scheduler.model.spec import JobKind, ServiceSpec, TaskSpec

#: Parts of what a task is launched with, in words.
_WORDS = {
    "command": "its command",
    "environment": "its environment",
    "python": "its interpreter",
    "image": "its image",
    "volumes": "its volumes",
    "needs": "its resources",
    "cluster_flags": "its command",
    "uris": "the fetched files",
    "fetch": "the fetched files",
    "program": "the program",
    "checkpoint_dir": "the checkpoint folder",
    "cluster": "the size of the cluster, which it must know,",
}

Tasks = Mapping[TaskName, TaskSpec]


@dataclass(frozen=True, slots=True)
class Restart:
    """A task that runs and will be started anew."""

    task: TaskName
    reason: str


@dataclass(frozen=True, slots=True)
class Update:
    """Two specs of one service, task by task."""

    old: ServiceSpec
    new: ServiceSpec
    before: Tasks
    after: Tasks

    @classmethod
    def of(cls, old: ServiceSpec, new: ServiceSpec) -> Update:
        """Of the spec that runs and the spec that shall run."""
        return cls(old, new, {task.name: task for task in old.tasks()}, {task.name: task for task in new.tasks()})

    @property
    def added(self) -> tuple[TaskName, ...]:
        """Tasks that are to be launched for the first time."""
        return tuple(name for name in self.after if name not in self.before)

    @property
    def removed(self) -> tuple[TaskName, ...]:
        """Tasks that are to end."""
        return tuple(name for name in self.before if name not in self.after)

    @property
    def kept(self) -> tuple[TaskName, ...]:
        """Tasks of both, in the order of the new spec."""
        return tuple(name for name in self.after if name in self.before)


def restarts(update: Update) -> list[Restart]:
    """Every task that restarts, once, with its first reason, in the order of the tasks."""
    found: dict[TaskName, str] = {}
    for rule in RULES:
        for restart in rule(update):
            found.setdefault(restart.task, restart.reason)
    return [Restart(name, found[name]) for name in update.kept if name in found]


def a_task_restarts_when_it_is_launched_differently(update: Update) -> Iterator[Restart]:
    """What counts is what the update plan compares."""
    for name in update.kept:
        old, new = launched_with(update.old, update.before[name].job), launched_with(update.new, update.after[name].job)
        changed = [_WORDS.get(part, part) for part in new if old[part] != new[part]]
        if changed:
            yield Restart(name, f"{_listed(list(dict.fromkeys(changed)))} changed")


def tasks_restart_with_one_that_they_cannot_lose(update: Update) -> Iterator[Restart]:
    """A task that is started anew is lost to the others for a while: the table of recovery says who bears it.

    It says the same of all tasks of a job, so one is asked about for all of them.
    """
    first: dict[JobKind, TaskName] = {}
    for restart in a_task_restarts_when_it_is_launched_differently(update):
        first.setdefault(update.after[restart.task].job.kind, restart.task)
    for name in first.values():
        yield from (Restart(other, f"{name} restarts") for other in units.restarts(update.new, [name], moved=False))


RULES: tuple[Callable[[Update], Iterator[Restart]], ...] = (
    a_task_restarts_when_it_is_launched_differently,
    tasks_restart_with_one_that_they_cannot_lose,
)


def _listed(words: list[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
