"""Rows of what the SDK had nothing to say about: docs/api.md, Ours."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from starlette.responses import Response

from tf_scheduler.errors import SchedulerError

from .backend import Backend, Journal
from .curves import POINTS
from .endpoint import Act, Call, Endpoint, Query
from .logs import PATH, Logs
from .overview import overview, to_json
from .shapes import (
    ClusterBody,
    EndBody,
    ErrorBody,
    EventBody,
    EventsBody,
    LaunchedBody,
    LogBody,
    LogEventBody,
    PendingBody,
    ResultBody,
    TaskBody,
    TasksBody,
    TrainingBody,
)
from .streams import Streams, entries
from .views import events, tasks, training
from .views.base import Answer, Problem, Snapshot, View

_MOST = 1000
_FOLLOW = Query("follow", "Go on with what comes next, as server-sent events.", bool, False)
_EVENTS = (
    Query("after", "Number of the last that is known; without it, the newest are shown.", int),
    Query("journal", "Whose number that is, as an answer tells it: of another journal, everything is new.", str, ""),
    Query("limit", "How many at most.", int, 100, 1, _MOST),
    Query("task", "Only those about this task."),
    _FOLLOW,
)
_LOG = (
    Query("file", "Path below the task's working directory.", str, "stdout", pattern=PATH),
    Query("offset", "First byte; without it, the last `length` bytes.", int),
    Query("length", "Bytes at most.", int, 65_536, 1, 1_048_576),
    _FOLLOW,
)
_LOG_EVENTS = {"log": LogEventBody, "launch": LaunchedBody, "end": EndBody, "error": ErrorBody}
_POINTS = (Query("points", "Points of each task's curve at most.", int, 0, 0, POINTS),)


def ours(backend: Backend) -> Iterator[Endpoint]:
    """All of them."""
    streams = Streams()
    for row in (*_looks(), *_acts(backend, streams)):
        yield replace(row, ours=True, bodies={**row.bodies, 400: ErrorBody})


def _looks() -> Iterator[Endpoint]:
    yield Endpoint("GET", "/v1/tasks", "Every task.", {200: TasksBody}, tasks.tasks)
    yield Endpoint("GET", "/v1/tasks/{name}", "One task.", {200: TaskBody, 404: ErrorBody}, tasks.task)
    what = "Generation, ClusterSpec, and the TF_CONFIG of each task."
    yield Endpoint("GET", "/v1/tf/cluster", what, {200: ClusterBody}, training.cluster)
    yield Endpoint("GET", "/v1/tf/result", "How the service ended.", {200: ResultBody}, training.result)
    yield Endpoint("GET", "/v1/tf/overview", "All of it at a glance.", {200: dict[str, Any]}, _overview)
    yield Endpoint("GET", "/v1/pending", "Why each task that waits does so.", {200: PendingBody}, tasks.pending)


def _overview(snapshot: Snapshot, _given: object) -> Answer:
    return View(to_json(overview(snapshot.state)))


def _acts(backend: Backend, streams: Streams) -> Iterator[Endpoint]:
    what = "How far the training is."
    act = _progress(backend)
    yield Endpoint("GET", "/v1/tf/progress", what, {200: TrainingBody}, act=act, query=_POINTS)
    what, bodies = "What an update would do.", {200: dict[str, Any], 404: ErrorBody, 409: ErrorBody}
    path = "/v1/tf/update/preview"
    yield Endpoint("POST", path, what, bodies, act=_foretell(backend), takes=dict[str, Any])
    what, bodies = "What happened, and why.", {200: EventsBody, 503: ErrorBody}
    yield Endpoint(
        "GET", "/v1/events", what, bodies, act=_events(backend, streams), query=_EVENTS, streams={"event": EventBody}
    )
    path, what = "/v1/tasks/{name}/logs", "A file of a task, read from its agent."
    bodies = {200: LogBody, 404: ErrorBody, 502: ErrorBody, 503: ErrorBody}
    yield Endpoint("GET", path, what, bodies, act=Logs(backend, streams), query=_LOG, streams=_LOG_EVENTS)


def _progress(backend: Backend) -> Act:
    async def act(call: Call) -> Answer:
        points = call.given["points"]
        return training.progress(call.snapshot, backend.curve() if points else {}, points)

    return act


def _foretell(backend: Backend) -> Act:
    async def act(call: Call) -> Answer:
        if backend.foretell is None:
            return Problem(404, "this scheduler cannot tell what other options would change")
        if (late := _too_late(call.snapshot)) is not None:
            return late
        if not isinstance(call.body, dict):
            return Problem(400, "the body must be a JSON object with options, or environment")
        try:
            return View(dict(backend.foretell(call.body)))
        except SchedulerError as error:
            return Problem(400, str(error))

    return act


def _too_late(snapshot: Snapshot) -> Problem | None:
    """Why other options would change nothing any more."""
    name = snapshot.state.spec.name
    if snapshot.uninstalling:
        return Problem(409, f"the service {name!r} is being uninstalled; it takes no other options any more")
    if snapshot.state.over or snapshot.state.result is not None:
        return Problem(409, f"the service {name!r} has ended; it takes no other options any more, install it again")
    return None


def _events(backend: Backend, streams: Streams) -> Act:
    async def act(call: Call) -> Answer | Response:
        journal, task = backend.journal, call.given["task"]
        if call.follows and journal is not None:
            start = _start(journal, call, events.Place.read(call.headers.get("last-event-id", "")))
            return streams.open(entries(journal, journal.last if start is None else start, task), call.client)
        if call.follows:
            return Problem(503, "this scheduler keeps no events")
        limit = call.given["limit"]
        if journal is None:
            return events.page((), events.Known(), call.given["after"], limit, task)
        after = _start(journal, call)
        known = events.Known(journal.id, journal.first, journal.last)
        # What comes while this is answered is for the next answer.
        found = [entry for entry in journal.after(after or 0) if entry.number <= known.last]
        return events.page(found, known, after, limit, task)

    return act


def _start(journal: Journal, call: Call, seen: events.Place | None = None) -> int | None:
    """The number after which to go on; None: the reader does not say."""
    if seen is None and call.given["after"] is not None:
        seen = events.Place(call.given["after"], call.given["journal"])
    return None if seen is None else seen.within(journal.id, journal.last)
