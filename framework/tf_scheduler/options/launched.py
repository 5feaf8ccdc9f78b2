"""What an update does to what runs: each task is compared with what it was launched with, as the update plan does.

An earlier update may not have reached all tasks, and some may never have been launched.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tf_scheduler.core.plans import config_of
from tf_scheduler.core.plans.facts import open_tasks
from tf_scheduler.model.ids import TaskName
from tf_scheduler.model.state import SchedulerState

from .restarts import Restart, Update, restarts


def restarted(state: SchedulerState, update: Update) -> list[Restart]:
    """Tasks that run and are to be launched again, in the order of the new spec, each with its first reason.

    `update` has the words for it, as far as its options tell the reason.
    """
    wanted = open_tasks(replace(state, spec=update.new, full=None))
    names = [name for name in update.after if name in wanted and _runs(state, name)]
    outdated = [name for name in names if state.tasks[name].config != config_of(update.new, name)]
    said = {restart.task: restart.reason for restart in restarts(update)}
    return [Restart(name, _reason(name, outdated, said)) for name in names]


def _reason(name: TaskName, outdated: list[TaskName], said: Mapping[TaskName, str]) -> str:
    if name in outdated:
        return said.get(name, "it was launched with earlier options")
    return f"{outdated[0]} restarts" if outdated else "an operator or an earlier update wants it"


def added(state: SchedulerState, update: Update) -> tuple[TaskName, ...]:
    """Tasks that are to be launched and were not before; not those that an earlier update wanted to end, and run."""
    return tuple(name for name in update.added if not _runs(state, name))


def removed(state: SchedulerState, update: Update) -> tuple[TaskName, ...]:
    """Tasks that are to end; also those that an earlier update has not ended yet."""
    left = (name for name in state.tasks if name not in update.before and name not in update.after)
    return (*update.removed, *left)


def _runs(state: SchedulerState, name: TaskName) -> bool:
    return name in state.tasks and state.is_live(state.tasks[name])
