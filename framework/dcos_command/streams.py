"""`logs` and `events`: what is said, and what happens; with `--follow` as it does."""

from __future__ import annotations

import json
import time
from typing import Any, Iterator, Mapping, Sequence

from .command import FOLLOW, Command, Given, Option
from .errors import CommandError, UnreachableError, UsageError
from .parts import Line, Parts, Raw, Table, Word, dim
from .service import Service, path
from .sse import Event
from .tasks import TASK

_AGAIN = 1.0  # seconds until an interrupted stream is taken up again
_PATIENCE = 60  # such attempts: a scheduler that is started again is there by then
_LENGTH = 65_536  # bytes of a log
_LIMIT, _MOST = 50, 1000  # events: without -n; as the API has it


def stream(service: Service, where: str, ends: Sequence[str], **query: str | None) -> Iterator[Event]:
    """Every event; taken up again where it was interrupted, until one of `ends`.

    Raise UnreachableError when nothing answers at first, or for too long later.
    """
    last, failures = "", 0
    began = False
    while failures < _PATIENCE:
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
        time.sleep(_AGAIN)
    raise UnreachableError(f"{service.url} does not answer any more")


def _file(given: Given) -> str:
    if given.get("file") and given.get("stderr"):
        raise UsageError("--stderr is --file stderr: give one of them")
    return given.get("file") or ("stderr" if given.get("stderr") else "stdout")


def _logs(service: Service, given: Given) -> Any:
    return service.get(path("tasks", given["task"], "logs"), file=_file(given), length=str(_LENGTH))


def _show_log(found: Mapping[str, Any], _given: Given) -> Parts:
    text = found["data"]
    return (Raw(text if text.endswith("\n") else text + "\n"),) if text else ()


def _follow_log(service: Service, given: Given) -> Iterator[Any]:
    where = path("tasks", given["task"], "logs")
    for event in stream(service, where, ("end", "error"), file=_file(given), follow="true"):
        found = json.loads(event.data)
        if event.name == "error":
            raise CommandError(found["error"]["message"])
        yield {"event": event.name, **found}


def _show_log_item(item: Mapping[str, Any], given: Given) -> Parts:
    if item["event"] == "log":
        yield Raw(item["data"])
    elif item["event"] == "launch":
        yield Line((dim(f"--- {given['task']} is launched again: {item['id']} ---"),))
    elif item["event"] == "end":
        yield Line((dim(f"--- {given['task']} has ended: {item['state']} ---"),))


def _events(service: Service, given: Given) -> Any:
    task = given.get("task")
    found = service.get(path("events"), limit=str(given.get("limit") or _LIMIT), task=task)
    if task and not found["events"]:
        service.get(path("tasks", task))  # refuses, with the names that there are, if there is no such task
    return found


def _show_events(found: Mapping[str, Any], _given: Given) -> Parts:
    rows = [_row(event) for event in found["events"]]
    yield Table(("when", "task", "what"), rows, empty="Nothing has happened yet.")


def _row(event: Mapping[str, Any]) -> Sequence[Any]:
    message = event["message"]
    return clock(event["time"]), event["task"] or "-", Word(message, "wait") if event["warning"] else message


def clock(seconds: float) -> str:
    """Local time."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def _follow_events(service: Service, given: Given) -> Iterator[Any]:
    """The newest first, then each as it happens."""
    found = _events(service, given)
    yield from found["events"]
    begin = {"after": str(found["next"]), "journal": found.get("journal"), "task": given.get("task")}
    for event in stream(service, path("events"), (), follow="true", **begin):
        yield json.loads(event.data)


def _show_event(event: Mapping[str, Any], _given: Given) -> Parts:
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
            Option("stderr", "Its error output.", "flag"),
            Option("file", "Another file of its working directory, such as executor.log."),
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
            Option("task", "Only what is about this task.", short="t", kind="task"),
            Option("limit", "So many of the newest.", "number", short="n", default=_LIMIT, most=_MOST),
        ),
        follow=_follow_events,
        show_item=_show_event,
    ),
)
