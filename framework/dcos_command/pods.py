"""`pod ...`: the tasks of the service, as the DC/OS SDK speaks of them, and what operators do to them."""

from __future__ import annotations

from typing import Any, Iterator, Mapping, Sequence

from .client import ServiceClient, api_path
from .command import Command, CommandArgument, CommandOption, Fetch, Params
from .output import Line, Renderable, Table, status_word
from .plans import show_names
from .service import show_json


def fetch_pod_names(service: ServiceClient, _given: Params) -> Any:
    """The names of the pods, as the API gives them."""
    return service.get(api_path("pod"))


def _status(service: ServiceClient, given: Params) -> Any:
    return service.get(api_path("pod", given["pod"], "status") if given.get("pod") else api_path("pod", "status"))


def show_status(found: Mapping[str, Any], given: Params) -> Renderable:
    """A row per task."""
    if given.get("pod"):
        rows = list(_rows(found))
    else:
        rows = [row for kind in found["pods"] for instance in kind["instances"] for row in _rows(instance)]
    yield Table(("pod", "task", "status", "id"), rows, empty="There are no pods yet.")


def _rows(pod: Mapping[str, Any]) -> Iterator[Sequence[Any]]:
    for task in pod["tasks"]:
        yield pod["name"], task["name"], status_word(task["status"]), task["id"]


def _info(service: ServiceClient, given: Params) -> Any:
    return service.get(api_path("pod", given["pod"], "info"))


def _command(verb: str) -> Fetch:
    def send(service: ServiceClient, given: Params) -> Any:
        return service.post(api_path("pod", given["pod"], verb), list(given.get("task") or ()) or None)

    return send


def _show(done: str) -> Any:
    def show(found: Mapping[str, Any], _given: Params) -> Renderable:
        if "pod" not in found:  # it had been done before: the service says so
            yield Line((found["message"],))
            return
        yield Line((f"{found['pod']} {done}: ", ", ".join(found["tasks"]) or "no task"))

    return show


POD = CommandArgument("pod", "pod", help="Name of the pod, such as worker-0.")
_TASKS = CommandOption(
    "task", "Only this task of the pod.", "texts", short="t", metavar="TASK", default=(), kind="task"
)


def _control(verb: str, help_text: str, done: str, **more: Any) -> Command:
    return Command(f"pod {verb}", help_text, _command(verb), _show(done), (POD,), **more)


COMMANDS = (
    Command("pod list", "The names of the pods.", fetch_pod_names, show_names, sdk_json=True),
    Command(
        "pod status",
        "The tasks of a pod, or of all, with their states.",
        _status,
        show_status,
        (CommandArgument("pod", "pod", required=False, help="Name of the pod."),),
    ),
    Command("pod info", "Mesos' documents of its tasks.", _info, show_json, (POD,)),
    _control("restart", "Launch it again, at its place.", "is launched again"),
    _control("replace", "Give up its place, and launch it elsewhere.", "is replaced", confirm="Give up {pod}'s place?"),
    _control(
        "pause",
        "End the program, and keep the place, for somebody to look around.",
        "is paused",
        options=(_TASKS,),
        aliases=("debug pod pause",),
    ),
    _control(
        "resume",
        "Launch the program again after a pause.",
        "is resumed",
        options=(_TASKS,),
        aliases=("debug pod resume",),
    ),
)
