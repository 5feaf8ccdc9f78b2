"""Views of tasks: state, resources, and reasons why tasks are pending; job speed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tf_executor.contract.bodies import (
    PendingBody,
    PendingTaskBody,
    TaskBody,
    TasksBody,
    TaskTextsBody,
)
from tf_executor.contract.reports import Progress
from tf_executor.contract.states import Status
from tf_executor.contract.text import (
    format_memory,
    format_memory_use,
    format_number,
    format_part,
    format_resources,
    is_near_limit,
)
from tf_scheduler.core.plans import scheduling
from tf_scheduler.model.ids import TaskName
from tf_scheduler.model.plan import Step
from tf_scheduler.model.resources import UNIT
from tf_scheduler.model.spec import TaskSpec
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.model.task import TaskRecord

from .base import ApiAnswer, ApiProblem, Snapshot, View
from .pods import display_status
from .reasons import reasons, texts

#: What a launch uses, null until it reports it.
_USAGE = ("memory_used_mb", "memory_peak_mb", "cpus_used")
_SCALARS = ("cpus", "mem", "disk", "gpus")
#: Fields of a launch, null for a task that was never launched.
_LAUNCH = ("id", "agent_id", "hostname", "address", "generation", "launched_at", "plan")


def tasks(snapshot: Snapshot, _params: Mapping[str, Any]) -> ApiAnswer:
    """All tasks in the order of the options, then launched tasks that options lack."""
    body: TasksBody = {
        "tasks": list(_tasks(snapshot.state)),
        "may_still_run": [str(launch) for launch in snapshot.state.stored.abandoned.values()],
        "reasons": texts(snapshot),
    }
    return View(body)


def task(snapshot: Snapshot, params: Mapping[str, Any]) -> ApiAnswer:
    """One task by name."""
    body = next((body for body in _tasks(snapshot.state) if body["name"] == params["name"]), None)
    return unknown_task(snapshot.state, params["name"]) if body is None else View(body)


def unknown_task(state: SchedulerState, name: str) -> ApiProblem:
    """Return 404 with up to 20 valid names."""
    names = tuple(task.name for task in state.spec.tasks())[:20]
    return ApiProblem(404, f"unknown task {name}; known tasks: {', '.join(names) or 'none'}", names)


def _tasks(state: SchedulerState) -> Iterator[TaskBody]:
    tasks: dict[TaskName, TaskSpec | TaskRecord] = {task.name: task for task in state.spec.tasks()}
    tasks.update(state.stored.tasks)
    yield from (_task(state, item) for item in tasks.values())


def _task(state: SchedulerState, item: TaskSpec | TaskRecord) -> TaskBody:
    """Return a task's last launch, or its options if it was never launched."""
    status, usage = state.status(item.name), usage_of(state, item)
    own: Any
    if isinstance(item, TaskSpec):
        resources = {name: getattr(item.job.needs, name) / UNIT for name in _SCALARS}
        memory = resources["mem"]
        own = {"job": item.job.kind.value, "status": "PENDING", "zone": "", "region": "", "resources": resources}
    else:
        resources, memory = resources_of(item), memory_of(state, item)
        place = {"zone": item.location.zone, "region": item.location.region}
        own = {"job": item.job.value, "status": display_status(state, item), **place, "resources": resources}
    return {
        "name": item.name,
        "index": item.index,
        "state": None if status is None else status.state.value,
        "healthy": None if status is None else status.healthy,
        "reason": "" if status is None else status.reason,
        "message": "" if status is None else status.message,
        "exit_code": None if status is None else status.end.exit_code,
        "signal": None if status is None else status.end.signal,
        **{name: getattr(item, name, None) for name in _LAUNCH},  # type: ignore[typeddict-item]
        **own,
        **usage,
        "texts": _texts(resources, memory, usage),
        "near_limit": is_near_limit(usage["memory_used_mb"], memory),
        "pending": pending_reasons(state, item.name),
        "more_ports": list(getattr(item, "more_ports", ())),
        "restarts": getattr(item, "restarts", 0),
        "earlier": [
            {"id": launch.id, "hostname": launch.hostname, "launched_at": launch.launched_at}
            for launch in getattr(item, "earlier", ())
        ],
    }


def usage_of(state: SchedulerState, item: TaskSpec | TaskRecord) -> dict[str, float | None]:
    """Return the resources that the processes of a launch use; None for unknown ones."""
    launch, usage = state.process.usage.get(item.name, (None, None))
    own = usage if launch == getattr(item, "id", None) else None
    return {name: getattr(own, name, None) for name in _USAGE}


def memory_of(state: SchedulerState, record: TaskRecord) -> float:
    """Return the memory of a launch without its executor, in MB."""
    return resources_of(record)["mem"] - state.spec.executor.needs.mem / UNIT


def _texts(resources: Mapping[str, float], memory: float, usage: Mapping[str, float | None]) -> TaskTextsBody:
    used, peak, cpus = usage["memory_used_mb"], usage["memory_peak_mb"], usage["cpus_used"]
    memory_text = format_memory(memory)
    if used is not None:
        memory_text = format_memory_use(used, memory)
    elif peak is not None:
        memory_text = f"{format_memory_use(peak, memory)} at most"
    return {
        "resources": format_resources(resources["cpus"], resources["mem"], resources["gpus"]),
        "cpus": format_number(resources["cpus"]) if cpus is None else format_part(cpus, resources["cpus"]),
        "memory": memory_text,
    }


def resources_of(record: TaskRecord) -> dict[str, float]:
    """Return the resources of a launch and its executor; memory in MB."""
    amounts = dict.fromkeys(_SCALARS, 0.0)
    for item in record.resources:
        if item.name in _SCALARS and isinstance(item.value, int):
            amounts[item.name] += item.value / UNIT
    return amounts


def pending_reasons(state: SchedulerState, name: TaskName) -> list[str]:
    """Return the reasons why a task has not been placed."""
    return [str(reason) for reason in state.session.round.reasons.get(name, ())]


def pending(snapshot: Snapshot, _params: Mapping[str, Any]) -> ApiAnswer:
    """Incomplete steps, with the reasons of the last offer evaluation or of the plan."""
    state, found = snapshot.state, reasons(snapshot)
    last = state.process.evaluations[-1] if state.process.evaluations else None
    body: PendingBody = {
        "evaluated_at": None if last is None else last.at,
        "offers": 0 if last is None else last.offers,
        "agents": 0 if last is None else last.agents,
        "tasks": list(_pending(snapshot, [each.text for each in found if each.stops_scheduler])),
        "reasons": [each.text for each in found],
    }
    return View(body)


_WAITING = (Status.PENDING, Status.PREPARED, Status.WAITING, Status.DELAYED, Status.ERROR)


def _pending(snapshot: Snapshot, stops: Sequence[str]) -> Iterator[PendingTaskBody]:
    """Yield each waiting task once, with the first started plan that has its step.

    `stops`: why the scheduler can launch none of them.
    """
    listed: set[str] = set()
    asleep = scheduling.view_of(snapshot.state, snapshot.view).unstarted_plans()
    for plan in (plan for plan in snapshot.plans().values() if plan.name not in asleep):
        for phase, step in ((part, step) for part in plan.phases for step in part.steps):
            if step.task is None or step.task in listed or not _waits(step):
                continue
            listed.add(step.task)
            why = pending_reasons(snapshot.state, step.task) or [step.message or "waiting for other steps"]
            yield {
                "name": step.task,
                "plan": plan.name,
                "phase": phase.name,
                "step": step.name,
                "status": step.display_status,
                "reasons": [*stops, *why],
            }


def _waits(step: Step) -> bool:
    """Whether a step waits; a paused task's incomplete step waits for the operator."""
    return step.status in _WAITING or (step.override is not None and step.status is not Status.COMPLETE)


def job_speed(reports: Mapping[TaskName, Progress], leader: str | None) -> float | None:
    """Return the examples per second of the job; None if no task reports them.

    `reports`: last report of each task. A value for the whole job counts once; the leader's is preferred. Otherwise,
    the values of all tasks are added up.
    """
    speeds = {
        name: report.examples_per_second for name, report in reports.items() if report.examples_per_second is not None
    }
    whole = sorted((name for name in speeds if reports[name].of == "job"), key=lambda name: name != leader)
    return sum(speeds[name] for name in whole[:1] or speeds) if speeds else None
