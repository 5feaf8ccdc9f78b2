"""Every task, and why those that are pending are so."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tf_scheduler.api.shapes import PendingBody, PendingTaskBody, ResourcesBody, TaskBody, TasksBody
from tf_scheduler.core import plans
from tf_scheduler.model.ids import TaskName, task_name
from tf_scheduler.model.plan import Status, Step
from tf_scheduler.model.resources import UNIT, Needs
from tf_scheduler.model.spec import JobKind, TaskSpec
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.model.task import TaskRecord

from .base import Answer, Problem, Snapshot, View
from .pods import word_of

_SCALARS = ("cpus", "mem", "disk", "gpus")


def tasks(snapshot: Snapshot, _given: Mapping[str, Any]) -> Answer:
    """In the order of the options, and then those that the options no longer have."""
    body: TasksBody = {"tasks": list(_tasks(snapshot.state))}
    return View(body)


def task(snapshot: Snapshot, given: Mapping[str, Any]) -> Answer:
    """One of them."""
    found = next((body for body in _tasks(snapshot.state) if body["name"] == given["name"]), None)
    return no_such_task(snapshot.state, given["name"]) if found is None else View(found)


def no_such_task(state: SchedulerState, name: str) -> Problem:
    """404, with the names that there are."""
    names = ", ".join([*(task.name for task in state.spec.tasks())][:20]) or "none"
    return Problem(404, f"no task is called {name}; there are: {names}")


def _tasks(state: SchedulerState) -> Iterator[TaskBody]:
    wanted = list(state.spec.tasks())
    names = {task.name for task in wanted}
    for task in wanted:
        record = state.tasks.get(task.name)
        yield _unlaunched(state, task) if record is None else _launched(state, record)
    yield from (_launched(state, record) for name, record in state.tasks.items() if name not in names)


def _unlaunched(state: SchedulerState, task: TaskSpec) -> TaskBody:
    return {
        "name": task.name,
        "job": task.job.kind.value,
        "index": task.index,
        "state": None,
        "status": "PENDING",
        "healthy": None,
        "reason": "",
        "message": "",
        "exit_code": None,
        "signal": None,
        "id": None,
        "agent_id": None,
        "hostname": None,
        "zone": "",
        "region": "",
        "address": None,
        "generation": None,
        "launched_at": None,
        "plan": None,
        "resources": _needs(task.job.needs),
        "pending": reasons(state, task.name),
    }


def _launched(state: SchedulerState, record: TaskRecord) -> TaskBody:
    status = state.statuses.get(record.id)
    return {
        "name": record.name,
        "job": record.job.value,
        "index": record.index,
        "state": None if status is None else status.state.value,
        "status": word_of(state, record),
        "healthy": None if status is None else status.healthy,
        "reason": "" if status is None else status.reason,
        "message": "" if status is None else status.message,
        "exit_code": None if status is None else status.exit_code,
        "signal": None if status is None else status.signal,
        "id": record.id,
        "agent_id": record.agent_id,
        "hostname": record.hostname,
        "zone": record.place.zone,
        "region": record.place.region,
        "address": record.address,
        "generation": record.generation,
        "launched_at": record.launched_at,
        "plan": record.plan,
        "resources": _used(record),
        "pending": reasons(state, record.name),
    }


def _needs(needs: Needs) -> ResourcesBody:
    return {name: getattr(needs, name) / UNIT for name in _SCALARS}  # type: ignore[return-value]


def _used(record: TaskRecord) -> ResourcesBody:
    found: ResourcesBody = {"cpus": 0.0, "mem": 0.0, "disk": 0.0, "gpus": 0.0}
    for item in record.resources:
        if item.name in _SCALARS and isinstance(item.value, int):
            found[item.name] += item.value / UNIT  # type: ignore[literal-required]
    return found


def reasons(state: SchedulerState, name: TaskName) -> list[str]:
    """Why a task has no place, as far as it was tried."""
    return [str(reason) for reason in state.pending.get(name, ())]


def pending(snapshot: Snapshot, _given: Mapping[str, Any]) -> Answer:
    """Steps that are not complete, with the reasons of the last look at offers, or what else they wait for."""
    state = snapshot.state
    last = state.evaluations[-1] if state.evaluations else None
    body: PendingBody = {
        "evaluated_at": None if last is None else last.at,
        "offers": 0 if last is None else last.offers,
        "agents": 0 if last is None else last.agents,
        "tasks": list(_pending(snapshot)),
    }
    return View(body)


_WAITING = (Status.PENDING, Status.PREPARED, Status.WAITING, Status.DELAYED, Status.ERROR)


def _pending(snapshot: Snapshot) -> Iterator[PendingTaskBody]:
    """A task that several plans want counts for the first of them; one that waits to be started wants none."""
    told: set[str] = set()
    asleep = plans.asleep(snapshot.state)
    for plan in (plan for plan in snapshot.plans().values() if plan.name not in asleep):
        for phase in plan.phases:
            for step in phase.steps:
                if step.task is None or step.task in told or not _waits(step):
                    continue
                told.add(step.task)
                yield {
                    "name": step.task,
                    "plan": plan.name,
                    "phase": phase.name,
                    "step": step.name,
                    "status": step.shown,
                    "reasons": reasons(snapshot.state, step.task) or [step.message or "it is not its turn yet"],
                }


def _waits(step: Step) -> bool:
    """A task that is paused waits for an operator; of a plan that is complete nothing does."""
    return step.status in _WAITING or (step.override is not None and step.status is not Status.COMPLETE)


def leader(state: SchedulerState) -> TaskName | None:
    """The task that the success of the job hangs on: the chief, else worker 0."""
    names = {task.name for task in state.spec.tasks()}
    heads = (task_name(kind.value, 0) for kind in (JobKind.CHIEF, JobKind.WORKER))
    return next((name for name in heads if name in names), None)
