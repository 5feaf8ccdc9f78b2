"""`logs` and `events`: what is said, and what happens; with `--follow` as it does."""

from __future__ import annotations

import json
import time
from typing import Any, Iterator, Mapping, Sequence

from .client import ServiceClient, api_path
from .command import FOLLOW, Command, CommandOption, Params
from .errors import CommandError, UnreachableError, UsageError
from .output import Line, Raw, Renderable, Table, Word, dim
from .tasks import TASK
from .transport import ServerSentEvent

_RETRY_SECONDS = 1.0  # seconds until an interrupted stream is taken up again
_MAX_RETRIES = 60  # such attempts: a scheduler that is started again is there by then
_LOG_BYTES = 65_536  # bytes of a log
_DEFAULT_EVENTS, _MAX_EVENTS = 50, 1000  # events: without -n; as the API has it


def follow_stream(
    service: ServiceClient, where: str, ends: Sequence[str], **query: str | None
) -> Iterator[ServerSentEvent]:
    """Every event; taken up again where it was interrupted, until one of `ends`.

    Raise UnreachableError when nothing answers at first, or for too long later.
    """
    last, failures = "", 0
    began = False
    while failures < _MAX_RETRIES:
        try:
            for event in service.events(where, last, **query):
                began, failures, last = True, 0, event.id or last
                yield event
                if event.name in ends:
                    return
        except UnreachableError:
            if not began:
                raise
        failures += 1
        time.sleep(_RETRY_SECONDS)
    raise UnreachableError(f"{service.url} does not answer any more")


def _file(given: Params) -> str:
    if given.get("file") and given.get("stderr"):
        raise UsageError("--stderr is --file stderr: give one of them")
    return given.get("file") or ("stderr" if given.get("stderr") else "stdout")


def _logs(service: ServiceClient, given: Params) -> Any:
    return service.get(api_path("tasks", given["task"], "logs"), file=_file(given), length=str(_LOG_BYTES))


def _show_log(found: Mapping[str, Any], _given: Params) -> Renderable:
    text = found["data"]
    return (Raw(text if text.endswith("\n") else text + "\n"),) if text else ()


def _follow_log(service: ServiceClient, given: Params) -> Iterator[Any]:
    where = api_path("tasks", given["task"], "logs")
    for event in follow_stream(service, where, ("end", "error"), file=_file(given), follow="true"):
        found = json.loads(event.data)
        if event.name == "error":
            raise CommandError(found["error"]["message"])
        yield {"event": event.name, **found}


def _show_log_item(item: Mapping[str, Any], given: Params) -> Renderable:
    if item["event"] == "log":
        yield Raw(item["data"])
    elif item["event"] == "launch":
        yield Line((dim(f"--- {given['task']} is launched again: {item['id']} ---"),))
    elif item["event"] == "end":
        yield Line((dim(f"--- {given['task']} has ended: {item['state']} ---"),))


def _events(service: ServiceClient, given: Params) -> Any:
    task = given.get("task")
    found = service.get(api_path("events"), limit=str(given.get("limit") or _DEFAULT_EVENTS), task=task)
    if task and not found["events"]:
        service.get(api_path("tasks", task))  # refuses, with the names that there are, if there is no such task
    return found


def _show_events(found: Mapping[str, Any], _given: Params) -> Renderable:
    rows = [_row(event) for event in found["events"]]
    yield Table(("when", "task", "what"), rows, empty="Nothing has happened yet.")


def _row(event: Mapping[str, Any]) -> Sequence[Any]:
    message = event["message"]
    return local_time(event["time"]), event["task"] or "-", Word(message, "wait") if event["warning"] else message


def local_time(seconds: float) -> str:
    """Local time."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def _follow_events(service: ServiceClient, given: Params) -> Iterator[Any]:
    """The newest first, then each as it happens."""
    found = _events(service, given)
    yield from found["events"]
    begin = {"after": str(found["next"]), "journal": found.get("journal"), "task": given.get("task")}
    for event in follow_stream(service, api_path("events"), (), follow="true", **begin):
        yield json.loads(event.data)


def _show_event(event: Mapping[str, Any], _given: Params) -> Renderable:
    when, task, what = _row(event)
    yield Line((dim(when), "  ", f"{task:<12}  ", what))


COMMANDS = (
    Command(
        "logs",
        "The end of what TASK has written.",
        _logs,
        _show_log,
        (TASK,),
        (
            FOLLOW,
            CommandOption("stderr", "Its error output.", "flag"),
            CommandOption("file", "Another file of its working directory, such as executor.log."),
        ),
        follow=_follow_log,
        show_item=_show_log_item,
    ),
    Command(
        "events",
        "What happened, and why.",
        _events,
        _show_events,
        (),
        (
            FOLLOW,
            CommandOption("task", "Only what is about this task.", short="t", kind="task"),
            CommandOption(
                "limit", "So many of the newest.", "number", short="n", default=_DEFAULT_EVENTS, maximum=_MAX_EVENTS
            ),
        ),
        follow=_follow_events,
        show_item=_show_event,
    ),
)
