"""Commands to pods (dcos-commons, PodResource); a pod of ours is one task."""

from __future__ import annotations

from collections.abc import Iterator

from tf_scheduler.model.events import PodCommand
from tf_scheduler.model.ids import TaskName
from tf_scheduler.model.recovery import PodVerb

from .backend import Backend
from .commanding import CODES, ask
from .endpoint import Access, Act, Call, Endpoint
from .shapes_sdk import PodCommandBody
from .views.base import Answer, Problem, View
from .views.pods import not_found

_POD_VERBS = {
    PodVerb.RESTART: "Launch it again, at its old place if that can be had.",
    PodVerb.REPLACE: "Launch it again at another place.",
    PodVerb.PAUSE: "End its program and keep its place, where nothing runs before it is resumed.",
    PodVerb.RESUME: "Go on after a pause.",
}


def pod_commands(backend: Backend) -> Iterator[Endpoint]:
    """The body is optional: a list of tasks of the pod, as the SDK has it."""
    for verb, what in _POD_VERBS.items():
        path, act = f"/v1/pod/{{pod}}/{verb.value}", _on_pod(backend, verb)
        bodies = {**CODES, 200: PodCommandBody}
        yield Endpoint("POST", path, what, bodies, act=act, takes=list[str], optional=True, access=Access.WRITE)


def _on_pod(backend: Backend, verb: PodVerb) -> Act:
    """The handler of one verb; a pod has one task, so a list of tasks can only name that one."""

    async def act(call: Call) -> Answer:
        name = call.given["pod"]
        if call.body is not None and not _names_only(call.body, name):
            return Problem(400, f"The body must be a JSON list of tasks of the pod; pod {name} has one: {name}")
        found = await ask(backend, PodCommand(verb, TaskName(name)))
        if isinstance(found, Problem):
            return not_found(name) if found.code == 404 else found
        body: PodCommandBody = {"pod": name, "tasks": [name]}
        return View(body)

    return act


def _names_only(body: object, name: str) -> bool:
    return isinstance(body, list) and all(item == name for item in body)
