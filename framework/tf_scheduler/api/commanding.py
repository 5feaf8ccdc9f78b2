"""Commands of operators: checked here as far as the request goes, decided by the scheduler's loop."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tf_scheduler.model.events import Event
from tf_scheduler.model.plan import ENDED, Verb
from tf_scheduler.model.plan import Answer as LoopAnswer

from .asking import NoAnswer
from .backend import Backend
from .endpoint import Act, Call
from .shapes_sdk import MessageBody
from .views.base import Answer, Problem, View
from .views.plans import command

#: What a command may answer; 200 with a message of its own kind.
CODES: dict[int, Any] = {200: MessageBody, 208: str, 400: str, 404: str, 409: str, 503: str}


def on_plan(backend: Backend, verb: Verb) -> Act:
    """The handler of one verb."""

    async def act(call: Call) -> Answer:
        parameters = {} if call.body is None else call.body
        wrong = _empty(call.given) or _wrong(parameters)
        if wrong is not None:
            return wrong
        return await ask(backend, command(call.snapshot, verb, call.given, parameters))

    return act


def _empty(given: Mapping[str, Any]) -> Problem | None:
    """A script whose variable is not set must not command the whole plan."""
    for name in ("phase", "step"):
        if given.get(name) == "":
            return Problem(400, f"The {name} is empty: name one, or leave {name} out for all of them")
    return None


def _wrong(parameters: object) -> Problem | None:
    if not isinstance(parameters, dict):
        return Problem(400, "Couldn't parse parameters: the body must be a JSON object of texts, {} for none")
    for name, value in parameters.items():
        if not isinstance(value, str):
            return Problem(400, f"Couldn't parse parameters: the value of {name} must be a text")
        if "\0" in value:
            return Problem(400, f"Couldn't parse parameters: the value of {name} must not contain a NUL character")
    return None


async def ask(backend: Backend, event: Event) -> Answer:
    """What the loop says, as the SDK's status."""
    try:
        found = await backend.ask(event)
    except NoAnswer as error:
        return Problem(503, str(error))
    return _told(ENDED if found is None else found)


def _told(found: LoopAnswer) -> Answer:
    code = int(found.reply.value)
    if code == 200:
        body: MessageBody = {"message": found.message}
        return View(body)
    return Problem(code, found.message)
