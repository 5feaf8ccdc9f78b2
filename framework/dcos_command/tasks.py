"""`tasks`, `why`, `cluster`, `pod ...`: show and control the tasks."""

from __future__ import annotations

import json
from typing import Any, Iterator, Mapping, Sequence

from .client import ServiceClient, api_path
from .command import Command, CommandArgument, CommandOption, Fetch, Params, get, show_json, show_names
from .errors import RefusedError
from .output import Line, Renderable, Table, Word, dim, status_word

_NOT_FOUND = 404
TASK = CommandArgument("task", "task", help="Name of the task.", example="worker-0")


def _show_tasks(answer: Mapping[str, Any], _params: Params) -> Renderable:
    rows = [_row(task) for task in answer["tasks"]]
    yield Table(("task", "status", "agent", "address", "gpus", "gen", "what"), rows, empty="There are no tasks.")
    yield from (Line((Word(text, "wait"),)) for text in answer.get("may_still_run", ()))


def _row(task: Mapping[str, Any]) -> Sequence[Any]:
    gpus = task["resources"]["gpus"]
    place = (task["hostname"] or "-", task["address"] or "-", str(gpus) if gpus else "-")
    return task["name"], _state(task), *place, str(task["generation"] or "-"), dim(_note(task))


def _state(task: Mapping[str, Any]) -> Word:
    if task["status"] == "RUNNING" and task["healthy"] is False:
        return Word("RUNNING, not healthy", "wait")
    return status_word(task["status"])


def _note(task: Mapping[str, Any]) -> str:
    """First reason why the task is pending, else its last executor or agent message."""
    pending = task["pending"]
    more = f" (and {len(pending) - 1} more; see `why {task['name']}`)" if len(pending) > 1 else ""
    return f"{pending[0]}{more}" if pending else str(task["message"] or "")


def _why(service: ServiceClient, params: Params) -> Any:
    """All pending tasks; with a name only that task, together with the task itself."""
    pending = service.get(api_path("pending"))
    if not params.get("task"):
        return pending
    entries = [entry for entry in pending["tasks"] if entry["name"] == params["task"]]
    return {**pending, "tasks": entries, "task": service.get(api_path("tasks", params["task"]))}


def _show_why(answer: Mapping[str, Any], params: Params) -> Iterator[Any]:
    for entry in answer["tasks"]:
        step = f" in plan {entry['plan']}" if entry["plan"] else ""
        yield Line((Word(entry["name"], "strong"), " is ", status_word(entry["status"]), step))
        yield from (Line((f"  - {reason}",)) for reason in entry["reasons"] or ("no reason known yet",))
    if answer["tasks"]:
        if answer["evaluated_at"] is not None:
            yield Line((dim(f"Last evaluation: {answer['offers']} offers of {answer['agents']} agents."),))
    elif params.get("task"):
        task = answer["task"]
        place = f" on {task['hostname']} at {task['address']}" if task["hostname"] else ""
        yield Line((Word(task["name"], "strong"), " is not pending: it is ", _state(task), place))
        if task["message"]:
            yield Line((f"  {task['message']}",))
    else:
        yield "No task is pending."


def _cluster(service: ServiceClient, params: Params) -> Any:
    answer = service.get(api_path("tf", "cluster"))
    if not params.get("task"):
        return answer
    for task in answer["tasks"]:
        if task["name"] == params["task"]:
            return task["tf_config"]
    raise RefusedError(f"task `{params['task']}` is not in the ClusterSpec", _NOT_FOUND)


def _show_cluster(answer: Mapping[str, Any], params: Params) -> Iterator[Any]:
    if params.get("task"):
        yield json.dumps(answer, indent=2)
        return
    yield Line((f"generation {answer['generation']}, {answer['strategy']}",))
    rows = [
        (task["name"], task["address"] or "-", task["hostname"] or "-", str(task["generation"] or "-"))
        for task in answer["tasks"]
    ]
    yield Table(("task", "address", "agent", "generation"), rows, empty="No task has been launched yet.")


def _show_pod_status(answer: Mapping[str, Any], params: Params) -> Renderable:
    pods = [answer] if params.get("pod") else [pod for kind in answer["pods"] for pod in kind["instances"]]
    rows = [
        (pod["name"], task["name"], status_word(task["status"]), task["id"]) for pod in pods for task in pod["tasks"]
    ]
    yield Table(("pod", "task", "status", "id"), rows, empty="There are no pods yet.")


def _pod_command(verb: str) -> Fetch:
    def send(service: ServiceClient, params: Params) -> Any:
        return service.post(api_path("pod", params["pod"], verb), list(params.get("task") or ()) or None)

    return send


_ANY_TASK = CommandArgument("task", "task", required=False, help="Name of a task.", example="worker-0")
_POD = CommandArgument("pod", "pod", help="Name of the pod.", example="worker-0")
_ANY_POD = CommandArgument("pod", "pod", required=False, help="Name of the pod.", example="worker-0")
_TASKS = CommandOption("task", "Select only this task of the pod.", "texts", short="t", metavar="TASK", kind="task")


def _control(verb: str, help_text: str, done: str, **more: Any) -> Command:
    def show(answer: Mapping[str, Any], _params: Params) -> Renderable:
        if "pod" not in answer:  # it was done before; the message is the scheduler's
            yield Line((answer["message"],))
            return
        tasks = "" if answer["tasks"] == [answer["pod"]] else f": {', '.join(answer['tasks']) or 'no task'}"
        yield Line((f"{answer['pod']} {done}{tasks}",))

    return Command(f"pod {verb}", help_text, _pod_command(verb), show, (_POD,), **more)


COMMANDS = (
    Command("tasks", "List the tasks with state, agent and last message.", get("tasks"), _show_tasks),
    Command("why", "Show why tasks are pending.", _why, _show_why, (_ANY_TASK,)),
    Command("cluster", "Show the ClusterSpec, or the TF_CONFIG of a task.", _cluster, _show_cluster, (_ANY_TASK,)),
    Command("pod list", "List the pods.", get("pod"), show_names, sdk_json=True),
    Command(
        "pod status", "List the tasks of a pod, or of all pods.", get("pod/{pod}/status"), _show_pod_status, (_ANY_POD,)
    ),
    Command("pod info", "Show TaskInfo and TaskStatus of the pod's tasks.", get("pod/{pod}/info"), show_json, (_POD,)),
    _control("restart", "Relaunch a pod on its reserved resources.", "is restarted"),
    _control(
        "replace",
        "Release a pod's resources and launch the pod elsewhere.",
        "is replaced",
        confirm="Release the resources of {pod}?",
        examples=("worker-0 --yes",),
    ),
    _control(
        "pause", "Stop a pod, but keep its resources.", "is paused", options=(_TASKS,), aliases=("debug pod pause",)
    ),
    _control(
        "resume", "Launch a paused pod's program again.", "is resumed", options=(_TASKS,), aliases=("debug pod resume",)
    ),
)
