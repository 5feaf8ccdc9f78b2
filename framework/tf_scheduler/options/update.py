"""Preview an update: changed options, restarted, added and removed tasks.

The update plan (core.plans) carries out the restarts.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tf_scheduler.core.plans.scheduling import view_of
from tf_scheduler.core.state.spec_index import config_digest, index_of, launch_settings
from tf_scheduler.errors import Problem
from tf_scheduler.model.ids import TaskName
from tf_scheduler.model.spec import JobKind, ServiceSpec, TaskSpec
from tf_scheduler.model.state import SchedulerState

from .rules.update import find_refusals
from .schema.document import OPTIONS, mask_value
from .spec import to_spec

#: Launch setting -> description in messages.
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
    "cluster": "the size of the cluster",
}

Tasks = Mapping[TaskName, TaskSpec]


@dataclass(frozen=True, slots=True)
class TaskRestart:
    """A running task that the update restarts."""

    task: TaskName
    reason: str


@dataclass(frozen=True, slots=True)
class Update:
    """Two specs of one service and their tasks by name."""

    old: ServiceSpec
    new: ServiceSpec
    before: Tasks
    after: Tasks

    @classmethod
    def of(cls, old: ServiceSpec, new: ServiceSpec) -> Update:
        return cls(old, new, {task.name: task for task in old.tasks()}, {task.name: task for task in new.tasks()})

    @property
    def added(self) -> tuple[TaskName, ...]:
        """New tasks."""
        return tuple(name for name in self.after if name not in self.before)

    @property
    def removed(self) -> tuple[TaskName, ...]:
        """Tasks without a place in the new spec."""
        return tuple(name for name in self.before if name not in self.after)

    @property
    def kept(self) -> tuple[TaskName, ...]:
        """Tasks of both specs, in the order of the new spec."""
        return tuple(name for name in self.after if name in self.before)


def restarts_by_options(update: Update) -> list[TaskRestart]:
    """Return each restarted task with its first reason, in the order of the tasks."""
    found: dict[TaskName, str] = {}
    for rule in RESTART_RULES:
        for restart in rule(update):
            found.setdefault(restart.task, restart.reason)
    return [TaskRestart(name, found[name]) for name in update.kept if name in found]


def restarts_of_changed_launches(update: Update) -> Iterator[TaskRestart]:
    """Compare the same launch settings as the update plan."""
    for name in update.kept:
        old, new = (
            launch_settings(update.old, update.before[name].job),
            launch_settings(update.new, update.after[name].job),
        )
        changed = [_WORDS.get(part, part) for part in new if old[part] != new[part]]
        if changed:
            yield TaskRestart(name, f"{_listed(list(dict.fromkeys(changed)))} changed")


def restarts_of_dependents(update: Update) -> Iterator[TaskRestart]:
    """Restart the tasks that the recovery rules restart with a lost peer.

    The rules treat all tasks of a job alike, so one task per job is enough.
    """
    first: dict[JobKind, TaskName] = {}
    for restart in restarts_of_changed_launches(update):
        first.setdefault(update.after[restart.task].job.kind, restart.task)
    for name in first.values():
        yield from (
            TaskRestart(other, f"{name} restarts") for other in index_of(update.new).restarts([name], moved=False)
        )


RESTART_RULES: tuple[Callable[[Update], Iterator[TaskRestart]], ...] = (
    restarts_of_changed_launches,
    restarts_of_dependents,
)


def _listed(words: list[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def restarts_by_state(state: SchedulerState, update: Update) -> list[TaskRestart]:
    """Return running tasks that the update plan restarts, in the order of the new spec, with their first reason.

    Each task is compared with its own launch: an earlier update may not have reached all tasks.
    """
    open_tasks = view_of(replace(state, spec=update.new, stored=replace(state.stored, full_spec=None))).open_tasks
    names = [name for name in update.after if name in open_tasks and _runs(state, name)]
    outdated = [name for name in names if state.stored.tasks[name].config != config_digest(update.new, name)]
    reasons = {restart.task: restart.reason for restart in restarts_by_options(update)}
    return [TaskRestart(name, _reason(name, outdated, reasons)) for name in names]


def _reason(name: TaskName, outdated: list[TaskName], reasons: Mapping[TaskName, str]) -> str:
    if name in outdated:
        return reasons.get(name, "it was launched with earlier options")
    return f"{outdated[0]} restarts" if outdated else "requested by an operator or an earlier update"


def added_tasks(state: SchedulerState, update: Update) -> tuple[TaskName, ...]:
    """Return the new tasks, without those that still run because an earlier update has not removed them yet."""
    return tuple(name for name in update.added if not _runs(state, name))


def removed_tasks(state: SchedulerState, update: Update) -> tuple[TaskName, ...]:
    """Return the tasks to stop, with those that an earlier update has not stopped yet."""
    remaining = (name for name in state.stored.tasks if name not in update.before and name not in update.after)
    return (*update.removed, *remaining)


def _runs(state: SchedulerState, name: TaskName) -> bool:
    return name in state.stored.tasks and state.is_live(state.stored.tasks[name])


Document = Mapping[str, Any]
#: Maximum options or tasks in a message; maximum characters of a value.
_MAX_ITEMS, _MAX_VALUE = 12, 60


@dataclass(frozen=True, slots=True)
class OptionChange:
    """An option with its old and new value; secrets are masked."""

    path: str
    old: Any
    new: Any


@dataclass(frozen=True, slots=True)
class Difference:
    """The effects of an update; a refused update has none."""

    changed: tuple[OptionChange, ...]
    refused: tuple[Problem, ...] = ()
    restarted: tuple[TaskRestart, ...] = ()
    added: tuple[TaskName, ...] = ()
    removed: tuple[TaskName, ...] = ()


def difference(old: Document, new: Document, state: SchedulerState | None = None) -> Difference:
    """Compare two resolved documents. `state` holds the launches; None: all tasks run with the old options."""
    changed = tuple(changed_options(old, new))
    if refused := find_refusals(old, new):
        return Difference(changed, tuple(refused))
    update = Update.of(to_spec(old), to_spec(new))
    if state is None:
        return Difference(changed, (), tuple(restarts_by_options(update)), update.added, update.removed)
    again = restarts_by_state(state, update)
    return Difference(changed, (), tuple(again), added_tasks(state, update), removed_tasks(state, update))


def changed_options(old: Document, new: Document) -> Iterator[OptionChange]:
    """Return all options with different values."""
    for option in OPTIONS:
        before, after = option.value(old), option.value(new)
        if before != after:
            yield OptionChange(str(option), mask_value(option, before), mask_value(option, after))


def describe_difference(difference: Difference) -> str:
    """Return a text such as `worker.count 2 -> 4; chief-0 restarts: its image changed; worker-2 is added`."""
    parts = [_some([f"{item.path} {_value(item.old)} -> {_value(item.new)}" for item in difference.changed])]
    reasons: dict[str, list[str]] = {}
    for item in difference.restarted:
        reasons.setdefault(item.reason, []).append(item.task)
    for reason, tasks in reasons.items():
        parts.append(f"{_some(tasks)} {'restarts' if len(tasks) == 1 else 'restart'}: {reason}")
    for word, names in (("added", difference.added), ("removed", difference.removed)):
        if names:
            parts.append(f"{_some(names)} {'is' if len(names) == 1 else 'are'} {word}")
    return "; ".join(filter(None, parts)) or "no visible option"


def _some(texts: Sequence[str]) -> str:
    more = f" and {len(texts) - _MAX_ITEMS} more" if len(texts) > _MAX_ITEMS else ""
    return ", ".join(texts[:_MAX_ITEMS]) + more


def _value(value: Any) -> str:
    text = value if isinstance(value, str) and value else json.dumps(value, default=str)
    return text if len(text) <= _MAX_VALUE else f"{text[: _MAX_VALUE - 1]}…"
