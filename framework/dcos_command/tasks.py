"""`tasks`, `why`, `cluster`: the tasks, why one waits, and the ClusterSpec they have been given."""

from __future__ import annotations

import json
from typing import Any, Iterator, Mapping, Sequence

from .client import ServiceClient, api_path
from .command import Command, CommandArgument, Params
from .errors import RefusedError
from .output import Line, Renderable, Table, Word, dim, status_word

_NOT_FOUND = 404
TASK = CommandArgument("task", "task", help="Name of the task, such as worker-0.")


def _tasks(service: ServiceClient, _given: Params) -> Any:
    return service.get(api_path("tasks"))


def _show_tasks(found: Mapping[str, Any], _given: Params) -> Renderable:
    rows = [_row(task) for task in found["tasks"]]
    yield Table(("task", "status", "agent", "address", "gpus", "gen", "what"), rows, empty="There are no tasks.")


def _row(task: Mapping[str, Any]) -> Sequence[Any]:
    gpus = task["resources"]["gpus"]
    where = (task["hostname"] or "-", task["address"] or "-", str(gpus) if gpus else "-")
    return task["name"], _state(task), *where, str(task["generation"] or "-"), dim(_note(task))


def _state(task: Mapping[str, Any]) -> Word:
    if task["status"] == "RUNNING" and task["healthy"] is False:
        return Word("RUNNING, not healthy", "wait")
    return status_word(task["status"])


def _note(task: Mapping[str, Any]) -> str:
    """The first reason why it has no place; else what its executor or agent said last."""
    pending = task["pending"]
    more = f" (and {len(pending) - 1} more; see why {task['name']})" if len(pending) > 1 else ""
    return f"{pending[0]}{more}" if pending else str(task["message"] or "")


def _why(service: ServiceClient, given: Params) -> Any:
    """What the API says of all that waits; with a name: of that task, and the task itself."""
    pending = service.get(api_path("pending"))
    if not given.get("task"):
        return pending
    found = [entry for entry in pending["tasks"] if entry["name"] == given["task"]]
    return {**pending, "tasks": found, "task": service.get(api_path("tasks", given["task"]))}


def _show_why(found: Mapping[str, Any], given: Params) -> Iterator[Any]:
    for entry in found["tasks"]:
        step = f" in plan {entry['plan']}" if entry["plan"] else ""
        yield Line((Word(entry["name"], "strong"), " is ", status_word(entry["status"]), step))
        yield from (Line((f"  - {reason}",)) for reason in entry["reasons"] or ("no reason is known yet",))
    if found["tasks"]:
        if found["evaluated_at"] is not None:
            yield Line((dim(f"Offers looked at last: {found['offers']}, of {found['agents']} agents."),))
    elif given.get("task"):
        yield from _not_pending(found["task"])
    else:
        yield "Nothing is pending."


def _not_pending(task: Mapping[str, Any]) -> Iterator[Line]:
    """A task that waits for nothing."""
    where = f" on {task['hostname']} at {task['address']}" if task["hostname"] else ""
    yield Line((Word(task["name"], "strong"), " waits for nothing: it is ", _state(task), where))
    if task["message"]:
        yield Line((f"  {task['message']}",))


def _cluster(service: ServiceClient, given: Params) -> Any:
    found = service.get(api_path("tf", "cluster"))
    if not given.get("task"):
        return found
    for task in found["tasks"]:
        if task["name"] == given["task"]:
            return task["tf_config"]
    raise RefusedError(f"no task of the cluster is called {given['task']}", _NOT_FOUND)


def _show_cluster(found: Mapping[str, Any], given: Params) -> Iterator[Any]:
    if given.get("task"):
        yield json.dumps(found, indent=2)
        return
    yield Line((f"generation {found['generation']}, {found['strategy']}",))
    rows = [
        (task["name"], task["address"] or "-", task["hostname"] or "-", str(task["generation"] or "-"))
        for task in found["tasks"]
    ]
    yield Table(("task", "address", "agent", "generation"), rows, empty="Nothing is launched yet.")


_SOME = CommandArgument("task", "task", required=False, help="Name of a task.")
COMMANDS = (
    Command("tasks", "Every task: its state, where it runs, what it last said.", _tasks, _show_tasks),
    Command("why", "Why TASK, or everything that waits, is pending.", _why, _show_why, (_SOME,)),
    Command("cluster", "The addresses of the ClusterSpec; with TASK its TF_CONFIG.", _cluster, _show_cluster, (_SOME,)),
)
