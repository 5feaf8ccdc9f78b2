"""Endpoints that sdk.py lacks: tasks, training, events, update preview, metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from functools import partial
from typing import Any

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tf_executor.contract import bodies
from tf_scheduler.api.http import openapi
from tf_scheduler.api.http.backend import MAX_POINTS, JournalReader
from tf_scheduler.api.http.endpoint import (
    ApiRequest,
    AsyncHandler,
    BadRequestError,
    Endpoint,
    EndpointAccess,
    QueryParameter,
)
from tf_scheduler.api.views import service, tasks, training
from tf_scheduler.api.views.base import ApiAnswer, ApiProblem, Snapshot, View
from tf_scheduler.api.views.overview import overview
from tf_scheduler.errors import JobError, OptionsError

from .streams import EventStreams, follow_journal
from .task_files import MAX_PATH, PATH_PATTERN, TaskFileHandler, execute

_MAX_EVENTS = 1000
_RUNS_TIMEOUT = 15.0  # seconds
_LAUNCH = (QueryParameter("launch", "Id of the launch of the task. Default: the last launch.", str, ""),)
_FOLLOW = QueryParameter(
    "follow",
    "Stream further data as server-sent events; the header `Accept: text/event-stream` has the same effect.",
    bool,
    False,
)
_EVENTS = (
    QueryParameter("after", "Only events with numbers greater than this. Default: the newest events.", int),
    QueryParameter(
        "journal", "Id of the journal that `after` refers to. For another id all events are returned.", str, ""
    ),
    QueryParameter("limit", "Maximum number of events.", int, 100, 1, _MAX_EVENTS),
    QueryParameter("task", "Only events of this task."),
    _FOLLOW,
)
_LOG = (
    QueryParameter(
        "file", "Path below the task's working directory.", str, "stdout", maximum=MAX_PATH, pattern=PATH_PATTERN
    ),
    QueryParameter("offset", "Position of the first byte. Default: return the last `length` bytes.", int),
    QueryParameter("length", "Maximum number of bytes.", int, 65_536, 1, 1_048_576),
    QueryParameter("launch", "Id of an earlier launch, in `earlier` of the task. Default: the last launch.", str, ""),
    QueryParameter("binary", "Return `data` in base64, for files that are not text; not in streams.", bool, False),
    _FOLLOW,
)
_FOLDER = (
    QueryParameter(
        *("folder", "Folder below the task's working directory. Default: that directory.", str, ""),
        maximum=MAX_PATH,
        pattern=f"^$|{PATH_PATTERN}",
    ),
)
_LOG_EVENTS = {
    "log": bodies.LogEventBody,
    "launch": bodies.LaunchedBody,
    "end": bodies.EndBody,
    "error": bodies.ErrorBody,
}
_PROGRESS = (
    QueryParameter("points", "Maximum number of points of each task's curve.", int, 0, 0, MAX_POINTS),
    QueryParameter("tasks", "Names of the listed tasks, separated by commas. Default: all tasks.", str, ""),
)


def service_routes() -> Iterator[Endpoint]:
    """Yield the endpoints of tasks, training, events and updates."""
    yield from _views()
    yield from _handlers(EventStreams())


def _views() -> Iterator[Endpoint]:
    first = "/tasks/0/name"
    links = {"/v1/tasks/{name}": {"name": first}, "/v1/state/zone/tasks/{task}": {"task": first}}
    yield Endpoint("GET", "/v1/tasks", "All tasks.", {200: bodies.TasksBody}, tasks.tasks, links=links)
    yield Endpoint("GET", "/v1/tasks/{name}", "One task.", {200: bodies.TaskBody, 404: bodies.ErrorBody}, tasks.task)
    summary = "Generation, ClusterSpec, and TF_CONFIG of each task."
    yield Endpoint("GET", "/v1/tf/cluster", summary, {200: bodies.ClusterBody}, training.cluster)
    yield Endpoint("GET", "/v1/tf/result", "Result of the job.", {200: bodies.ResultBody}, training.result)
    yield Endpoint("GET", "/v1/tf/overview", "Overview of the service.", {200: dict[str, Any]}, _overview)
    yield Endpoint("GET", "/v1/pending", "Reasons why tasks are pending.", {200: bodies.PendingBody}, tasks.pending)


def _overview(snapshot: Snapshot, _params: object) -> ApiAnswer:
    return View(asdict(overview(snapshot)))


def _handlers(streams: EventStreams) -> Iterator[Endpoint]:
    path, responses = "/v1/tf/progress", _bodies(bodies.TrainingBody)
    yield Endpoint("GET", path, "Training progress.", responses, handler=_progress, query=_PROGRESS)
    path, responses = "/v1/tf/run", _bodies(dict[str, Any], 404)
    yield Endpoint("GET", path, "Record of the run for the history, secrets masked.", responses, handler=_run)
    path, responses = "/v1/tf/runs", _bodies(dict[str, Any], 404, 503)
    yield Endpoint("GET", path, "This run and earlier runs of the service.", responses, handler=_runs)
    path, summary = "/v1/tf/runs/{name}", "One run, with its options and the curve of its leading task."
    yield Endpoint("GET", path, summary, responses, handler=_past_run, query=_PROGRESS[:1])
    path, responses = "/v1/tf/update/preview", _bodies(bodies.PreviewBody, 404, 409, 503)
    yield Endpoint("POST", path, "Effects of an update.", responses, handler=_preview_update, body_type=openapi.Update)
    handler: AsyncHandler = partial(_events, streams)
    path, responses = "/v1/events", _bodies(bodies.EventsBody, 503)
    kinds, summary = {"event": bodies.EventBody}, "Events of the service."
    yield Endpoint("GET", path, summary, responses, handler=handler, query=_EVENTS, events=kinds)
    path, responses, reader = "/v1/tasks/{name}/logs", _bodies(bodies.LogBody, 404, 502, 503), TaskFileHandler(streams)
    summary = "File of a task, read from its agent."
    yield Endpoint("GET", path, summary, responses, handler=reader, query=_LOG, events=_LOG_EVENTS)
    path, responses = "/v1/tasks/{name}/files", _bodies(bodies.FilesBody, 404, 502, 503)
    summary = "Entries of a folder of a task, listed by its agent."
    yield Endpoint("GET", path, summary, responses, handler=reader.files, query=_FOLDER)
    path, responses = "/v1/tasks/{name}/exec", _bodies(bodies.StartedBody, 400, 403, 404, 409, 413, 503)
    summary, body_type = "Run a command in a task, as its program runs.", openapi.ExecCommand
    yield Endpoint("POST", path, summary, responses, handler=execute, body_type=body_type, access=EndpointAccess.WRITE)
    path, responses = "/v1/tasks/{name}/exec/{id}", _bodies(bodies.ExecutedBody, 404, 409, 501, 502, 503)
    yield Endpoint(
        "GET", path, "State, output and end of a command.", responses, handler=reader.executed, query=_LAUNCH
    )


def _bodies(body: Any, *errors: int) -> dict[int, Any]:
    return {200: body, **dict.fromkeys(errors, bodies.ErrorBody)}


async def _progress(request: ApiRequest) -> ApiAnswer:
    points, names = request.params["points"], request.params["tasks"]
    curves = request.backend.curves.current() if points else {}
    return training.progress(request.snapshot, curves, points, frozenset(filter(None, names.split(","))))


_NO_RUNS = ApiProblem(404, "this scheduler does not record its run")


async def _run(request: ApiRequest) -> ApiAnswer:
    try:
        if request.backend.runs is not None:
            return View(dict(await asyncio.to_thread(request.backend.runs.current)))  # reads a file
    except JobError as error:
        return ApiProblem(404, str(error))
    return _NO_RUNS


async def _runs(request: ApiRequest) -> ApiAnswer:
    runs = request.backend.runs
    return _NO_RUNS if runs is None else await _read_runs(runs.list)


async def _past_run(request: ApiRequest) -> ApiAnswer:
    runs, name, points = request.backend.runs, request.params["name"], request.params["points"]
    return _NO_RUNS if runs is None else await _read_runs(lambda: runs.get(name, points))


async def _read_runs(read: Callable[[], Mapping[str, Any] | None]) -> ApiAnswer:
    """Read runs in a thread, with a timeout, because a shared folder may not answer."""
    try:
        answer = await asyncio.wait_for(asyncio.to_thread(read), _RUNS_TIMEOUT)
    except asyncio.TimeoutError:
        return ApiProblem(503, f"the folder of past runs has not answered within {_RUNS_TIMEOUT:g} s")
    except JobError as error:
        return ApiProblem(503, str(error))
    return ApiProblem(404, "unknown run") if answer is None else View(dict(answer))


async def _preview_update(request: ApiRequest) -> ApiAnswer:
    preview = request.backend.preview_update
    if preview is None:
        return ApiProblem(404, "this scheduler does not support update previews")
    if (late := _rejects_options(request.snapshot)) is not None:
        return late
    if not isinstance(request.body, dict):
        raise BadRequestError("invalid body: expected a JSON object with `options` or `environment`")
    try:
        return View(dict(preview(request.body)))
    except OptionsError as error:
        return ApiProblem(409, str(error))


def _rejects_options(snapshot: Snapshot) -> ApiProblem | None:
    """Return why an update would have no effect; None if it would have one."""
    name = snapshot.state.spec.name
    if snapshot.uninstalling:
        return ApiProblem(409, f"the service {name!r} is being uninstalled and accepts no options")
    if snapshot.state.process.finished or snapshot.state.stored.result is not None:
        return ApiProblem(409, f"the service {name!r} has finished and accepts no options; install it again")
    return None


async def _events(streams: EventStreams, request: ApiRequest) -> ApiAnswer | Response:
    journal, task = request.backend.journal, request.params["task"]
    if request.wants_stream and journal is not None:
        start = _start(journal, request, service.JournalPosition.parse(request.headers.get("last-event-id", "")))
        return streams.open(follow_journal(journal, journal.last if start is None else start, task))
    if request.wants_stream:
        return ApiProblem(503, "this scheduler stores no events")
    limit = request.params["limit"]
    if journal is None:
        return service.events_page((), ("", 1, 0), request.params["after"], limit, task)
    after, last = _start(journal, request), journal.last
    # Leave entries added meanwhile to the next request, so that `next` is consistent.
    entries = [entry for entry in journal.after(after or 0) if entry.number <= last]
    return service.events_page(entries, (journal.id, journal.first, last), after, limit, task)


def _start(journal: JournalReader, request: ApiRequest, position: service.JournalPosition | None = None) -> int | None:
    """Return the event number after which to continue; None if the request names none."""
    if position is None and request.params["after"] is not None:
        position = service.JournalPosition(request.params["after"], request.params["journal"])
    return None if position is None else position.resolve(journal.id, journal.last)


# --- Metrics

#: Media type of Prometheus' text format.
_PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
#: Other methods count as `other`, because clients can send any.
_METHODS = ("GET", "HEAD", "OPTIONS", "POST", "PUT", "DELETE", "PATCH")


def metric_routes(prometheus: Callable[[], bytes], dropwizard: Callable[[], Any]) -> Iterator[Endpoint]:
    """Yield the endpoints of metrics. Both functions are called in the API's thread."""

    async def as_json(_request: ApiRequest) -> ApiAnswer:
        return View(dropwizard())

    async def as_text(_request: ApiRequest) -> Response:
        return Response(prometheus(), media_type=_PROMETHEUS)

    summary = "The SDK's metrics in Dropwizard's format; the gauges include the scheduler's own metrics."
    yield Endpoint("GET", "/v1/metrics", summary, {200: dict[str, Any]}, handler=as_json, text_errors=True)
    summary = "Metrics in Prometheus' format."
    yield Endpoint("GET", "/v1/metrics/prometheus", summary, {200: str}, handler=as_text, text_errors=True)


class RequestCounter:
    """ASGI middleware that counts requests by method and status (0: no answer)."""

    def __init__(self, app: ASGIApp, count: Callable[[str, int], None]) -> None:
        self._app, self._count = app, count

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        code = 0

        async def counted(message: Message) -> None:
            nonlocal code
            if message["type"] == "http.response.start":
                code = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, counted)
        finally:
            method = scope["method"]
            self._count(method if method in _METHODS else "other", code)
