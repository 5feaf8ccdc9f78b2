"""Preview an update: changes, restarts, added and removed tasks, and refusals.

The update plan (core.plans) carries out the restarts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tf_executor.contract.text import join_words
from tf_scheduler.core.elastic.cluster_size import keep_size
from tf_scheduler.core.plans.scheduling import view_of
from tf_scheduler.core.state.spec_index import config_digest, index_of, launch_settings, wanted_spec
from tf_scheduler.errors import Problem
from tf_scheduler.model.ids import TaskName
from tf_scheduler.model.spec import JobKind, ServiceSpec
from tf_scheduler.model.state import SchedulerState

from .schema.document import OPTIONS, mask_value
from .schema.fields import json_excerpt
from .schema.values import Document
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
    "digests": "the fetched files",
    "program": "the program",
    "checkpoint_dir": "the checkpoint folder",
    "storage": "the storage of checkpoints",
    "cluster": "the size of the cluster",
}

#: Maximum options or tasks in a message; maximum characters of a value.
_MAX_ITEMS, _MAX_VALUE = 12, 60


@dataclass(frozen=True, slots=True)
class TaskRestart:
    """A running task that the update restarts."""

    task: TaskName
    reason: str
    #: Last reported step, and the step at the last checkpoint; None: unknown.
    step: int | None = None
    saved_step: int | None = None


@dataclass(frozen=True, slots=True)
class OptionChange:
    """An option with its old and new value; secrets are masked."""

    path: str
    old: Any
    new: Any


@dataclass(frozen=True, slots=True)
class Difference:
    """The effects of an update; a refused update restarts, adds and removes no tasks."""

    changed: tuple[OptionChange, ...]
    refused: tuple[Problem, ...] = ()
    restarted: tuple[TaskRestart, ...] = ()
    added: tuple[TaskName, ...] = ()
    removed: tuple[TaskName, ...] = ()
    #: Number of workers that was requested in place of `worker.count`.
    requested: int | None = None


def difference(old: Document, new: Document, state: SchedulerState | None = None) -> Difference:
    """Compare two resolved documents; `state` None: all tasks run with `old`."""
    changed = tuple(changed_options(old, new))
    if refused := tuple(find_refusals(old, new)):
        return Difference(changed, refused)
    before, after = to_spec(old), to_spec(new)
    requested = None
    if state is not None:  # an operator may have requested another number of workers
        options, size = after, state.stored.resized
        before, after = (wanted_spec(spec, size) for spec in (before, after))
        requested = None if after is options else size.wanted
    old_names, new_names = ({task.name: None for task in spec.tasks()} for spec in (before, after))
    reasons = _restart_reasons(before, after)
    added = [name for name in new_names if name not in old_names]
    removed = [name for name in old_names if name not in new_names]
    if state is not None:
        reasons = _reasons_by_state(state, after, reasons)
        # An earlier update may not have stopped all tasks that it removed.
        added = [name for name in added if not _runs(state, name)]
        removed += [name for name in state.stored.tasks if name not in old_names and name not in new_names]
    if state is not None and _waits(state, after):
        restarted = tuple(TaskRestart(name, f"{reason}, at the next checkpoint") for name, reason in reasons.items())
    else:
        restarted = tuple(TaskRestart(name, reason, *_steps(state, name)) for name, reason in reasons.items())
    return Difference(changed, (), restarted, tuple(added), tuple(removed), requested)


def _restart_reasons(old: ServiceSpec, new: ServiceSpec) -> dict[TaskName, str]:
    """Return the tasks of both specs that restart, each with its first reason."""
    before = {task.name: task.job for task in old.tasks()}
    remaining = {task.name: task.job for task in new.tasks() if task.name in before}
    reasons: dict[TaskName, str] = {}
    first_of_job: dict[JobKind, TaskName] = {}
    for name, job in remaining.items():
        was, now = launch_settings(old, before[name]), launch_settings(new, job)
        changed = dict.fromkeys(_WORDS.get(part, part) for part in now if was[part] != now[part])
        if changed:
            reasons[name] = f"{join_words([*changed])} changed"
            first_of_job.setdefault(job.kind, name)
    # The recovery rules treat all tasks of a job alike, so one task per job is enough.
    for name in first_of_job.values():
        for other in index_of(new).restarts([name], moved=False):
            reasons.setdefault(other, f"{name} restarts")
    return {name: reasons[name] for name in remaining if name in reasons}


def _reasons_by_state(state: SchedulerState, spec: ServiceSpec, reasons: Mapping[TaskName, str]) -> dict[TaskName, str]:
    """Return the running tasks that the update plan restarts, with their first reason.

    Tasks are in the order of the spec. Each task's last launch is compared with the new options, because an earlier
    update may not have reached all tasks.
    """
    open_tasks = view_of(replace(state, spec=spec, stored=replace(state.stored, full_spec=None))).open_tasks
    names = [task.name for task in spec.tasks() if task.name in open_tasks and _runs(state, task.name)]
    outdated = [name for name in names if state.stored.tasks[name].config != config_digest(spec, name)]
    own = {name: reasons.get(name, "it was launched with earlier options") for name in outdated}
    other = f"{outdated[0]} restarts" if outdated else "requested by an operator or an earlier update"
    return {name: own.get(name, other) for name in names}


def _waits(state: SchedulerState, spec: ServiceSpec) -> bool:
    """Whether the number of running tasks changes only after their next checkpoint."""
    updated = replace(state, spec=spec, stored=replace(state.stored, full_spec=None))
    return keep_size(updated, 0.0).state.stored.resized.until is not None


def _steps(state: SchedulerState | None, name: TaskName) -> tuple[int | None, int | None]:
    """Return a running task's last step, and the step of its checkpoint, if known."""
    report = None if state is None else state.process.progress.get(state.stored.tasks[name].id)
    return (None, None) if report is None else (report.step, report.saved_step)


def _runs(state: SchedulerState, name: TaskName) -> bool:
    return name in state.stored.tasks and state.is_live(state.stored.tasks[name])


def changed_options(old: Document, new: Document) -> Iterator[OptionChange]:
    """Return the options whose values differ between two documents."""
    for option in OPTIONS:
        before, after = option.value(old), option.value(new)
        if before != after:
            yield OptionChange(str(option), mask_value(option, before), mask_value(option, after))


def describe_difference(difference: Difference) -> str:
    """Return a text like `worker.count 2 -> 4; chief-0 restarts: its image changed`."""
    parts = [_some([f"{item.path} {_value(item.old)} -> {_value(item.new)}" for item in difference.changed])]
    reasons: dict[str, list[str]] = {}
    for item in difference.restarted:
        reasons.setdefault(item.reason, []).append(item.task)
    for reason, tasks in reasons.items():
        parts.append(f"{_some(tasks)} {'restarts' if len(tasks) == 1 else 'restart'}: {reason}")
    for word, names in (("added", difference.added), ("removed", difference.removed)):
        if names:
            parts.append(f"{_some(names)} {'is' if len(names) == 1 else 'are'} {word}")
    return "; ".join(filter(None, parts)) or "no option"


def _some(texts: Sequence[str]) -> str:
    more = f" and {len(texts) - _MAX_ITEMS} more" if len(texts) > _MAX_ITEMS else ""
    return ", ".join(texts[:_MAX_ITEMS]) + more


def _value(value: Any) -> str:
    text = value if isinstance(value, str) and value else json.dumps(value, default=str)
    return text if len(text) <= _MAX_VALUE else f"{text[: _MAX_VALUE - 1]}…"


# --- Refusals
#
# Mesos fixes the user and the principal of a framework (UPDATE_FRAMEWORK refuses changes, SUBSCRIBE ignores them), and
# allocates the resources of a running task to its role. The DC/OS SDK also fixes service, user, region and network.

_ANOTHER = "install another service"
_NETWORK = "tasks on different networks cannot connect"
#: Option of `service` -> why its value is fixed.
_FIXED = {
    "kind": _ANOTHER,
    "user": "the user of a Mesos framework is fixed",
    "region": "running and new tasks would be in different regions",
    # Jobs, leader and recovery depend on the strategy.
    "strategy": _ANOTHER,
    "addressing": _NETWORK,
    "virtual_network_enabled": _NETWORK,
    "virtual_network_name": _NETWORK,
    "virtual_network_plugin_labels": _NETWORK,
}


def find_refusals(old: Document, new: Document) -> Iterator[Problem]:
    """Yield the changes between two resolved documents that an update must not make."""
    before, after = to_spec(old), to_spec(new)
    # State, role and addresses of a running service depend on its name.
    if before.name != after.name:
        yield _refusal("service.name", old, new, _ANOTHER)
    elif before.role != after.role:
        yield _refusal("service.role", old, new, "resources of running tasks are allocated to the previous role")
    for name, reason in _FIXED.items():
        if old["service"][name] != new["service"][name]:
            yield _refusal(f"service.{name}", old, new, reason)
    for name in ("principal", "service_account"):
        if before.principal != after.principal and old["service"][name] != new["service"][name]:
            yield _refusal(f"service.{name}", old, new, "the principal of a Mesos framework is fixed")
    # A scheduler without state would start a second service next to the running tasks.
    if _without_parameters(old["scheduler"]["state"]) != _without_parameters(new["scheduler"]["state"]):
        reason = "the state would be lost; export it, reinstall the service, import it"
        yield _refusal("scheduler.state", old, new, reason)


def _without_parameters(address: str) -> str:
    """Remove the connection parameters from a ZooKeeper address: they may change."""
    return address.partition("?")[0] if address.startswith(("zk://", "zks://")) else address


def _refusal(path: str, old: Document, new: Document, reason: str) -> Problem:
    section, name = path.split(".")
    before, after = json_excerpt(old[section][name]), json_excerpt(new[section][name])
    return Problem(path, f"cannot change from {before} to {after}: {reason}")
