"""Commands `logs` and `events`: task output and service events, also live."""

from __future__ import annotations

import time
from typing import Any, Iterator, Mapping, Sequence

from .client import ServiceClient, api_path
from .command import FOLLOW, Command, CommandOption, Params
from .errors import CommandError, UnreachableError, UsageError
from .output import Line, Raw, Renderable, Table, Word, dim, local_time
from .tasks import TASK
from .transport import ServerSentEvent

_RETRY_SECONDS = 1.0
_MAX_RETRIES = 60  # a restarted scheduler answers within a minute
_LOG_BYTES = 65_536
_DEFAULT_EVENTS, _MAX_EVENTS = 50, 1000  # the API's maximum


def follow_stream(
    service: ServiceClient, path: str, last_events: Sequence[str], **query: str | None
) -> Iterator[ServerSentEvent]:
    """Yield events up to one of `last_events`; resume an interrupted stream.

    Raise UnreachableError if the first request gets no answer, or too many later ones in a row.
    """
    last, failures = "", 0
    started = False
    while failures < _MAX_RETRIES:
        try:
            for event in service.events(path, last, **query):
                started, failures, last = True, 0, event.id or last
                yield event
                if event.name in last_events:
                    return
        except UnreachableError:
            if not started:
                raise
        failures += 1
        time.sleep(_RETRY_SECONDS)
    raise UnreachableError(f"{service.url} stopped answering")


def _file(params: Params) -> str:
    if params.get("file") and params.get("stderr"):
        raise UsageError("--stderr and --file: cannot be combined; --stderr is the same as --file stderr")
    return params.get("file") or ("stderr" if params.get("stderr") else "stdout")


def _logs(service: ServiceClient, params: Params) -> Any:
    return service.get(api_path("tasks", params["task"], "logs"), file=_file(params), length=str(_LOG_BYTES))


def _show_log(answer: Mapping[str, Any], _params: Params) -> Renderable:
    text = answer["data"]
    return (Raw(text if text.endswith("\n") else text + "\n"),) if text else ()


def _follow_log(service: ServiceClient, params: Params) -> Iterator[Any]:
    path = api_path("tasks", params["task"], "logs")
    for event in follow_stream(service, path, ("end", "error"), file=_file(params), follow="true"):
        item = service.event_content(path, event)
        if event.name == "error":
            raise CommandError(item["error"]["message"])
        yield {**item, "event": event.name}


def _show_log_item(item: Mapping[str, Any], params: Params) -> Renderable:
    if item["event"] == "log":
        yield Raw(item["data"])
    elif item["event"] == "launch":
        yield Line((dim(f"--- {params['task']} was relaunched as {item['id']} ---"),))
    elif item["event"] == "end":
        yield Line((dim(f"--- {params['task']} has ended: {item['state']} ---"),))


def _events(service: ServiceClient, params: Params) -> Any:
    task = params.get("task")
    answer = service.get(api_path("events"), limit=str(params.get("limit") or _DEFAULT_EVENTS), task=task)
    if task and not answer["events"]:
        service.get(api_path("tasks", task))  # raises, with the valid names, if the task does not exist
    return answer


def _show_events(answer: Mapping[str, Any], _params: Params) -> Renderable:
    yield Table(("when", "task", "what"), [_row(event) for event in answer["events"]], empty="No events yet.")


def _row(event: Mapping[str, Any]) -> Sequence[Any]:
    message = event["message"]
    return local_time(event["time"]), event["task"] or "-", Word(message, "wait") if event["warning"] else message


def _follow_events(service: ServiceClient, params: Params) -> Iterator[Any]:
    """The newest events first, then each event as it happens."""
    newest = _events(service, params)
    yield from newest["events"]
    start = {"after": str(newest["next"]), "journal": newest.get("journal"), "task": params.get("task")}
    path = api_path("events")
    for event in follow_stream(service, path, (), follow="true", **start):
        yield service.event_content(path, event)


def _show_event(event: Mapping[str, Any], _params: Params) -> Renderable:
    when, task, message = _row(event)
    yield Line((dim(when), "  ", f"{task:<12}  ", message))


COMMANDS = (
    Command(
        "logs",
        "Show the last lines of TASK's output.",
        _logs,
        _show_log,
        (TASK,),
        (
            FOLLOW,
            CommandOption("stderr", "Show standard error instead of standard output.", "flag"),
            CommandOption("file", "Show this file of the task's working directory.", metavar="NAME"),
        ),
        follow=_follow_log,
        show_item=_show_log_item,
        examples=("worker-0 -f", "worker-0 --stderr", "worker-0 --file executor.log"),
    ),
    Command(
        "events",
        "Show the events of the service with their reasons.",
        _events,
        _show_events,
        (),
        (
            FOLLOW,
            CommandOption("task", "Show events of TASK only.", short="t", kind="task", metavar="TASK"),
            CommandOption(
                "limit",
                "Number of events to show.",
                "number",
                short="n",
                metavar="N",
                default=_DEFAULT_EVENTS,
                maximum=_MAX_EVENTS,
            ),
        ),
        follow=_follow_events,
        show_item=_show_event,
        examples=("-f", "--task worker-0 -n 200"),
    ),
)
