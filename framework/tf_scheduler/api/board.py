"""TensorBoard below the scheduler's own address: `/tensorboard/`. Its answers are passed on, but no rights of ours.

Only the address of the task's own record is asked. Nothing of the visitor's login reaches it, and what it answers is a
page that may ask for nothing but itself (docs/page.md, TensorBoard).
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import secrets
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import aclosing
from urllib.parse import quote

from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from tf_scheduler.model.spec import JobKind
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.model.task import TaskRecord, TaskState

from .endpoint import Endpoint
from .fetch import Fetched, Unanswered, fetch
from .respond import respond
from .shapes import BoardBody
from .views.base import Answer, Problem, Snapshot, View
from .views.tasks import reasons

log = logging.getLogger(__name__)

#: Below the address of the scheduler, which has a prefix of its own on DC/OS.
FOLDER = "tensorboard"
#: Requests under way at one time.
SEATS = 32
#: Bytes of an answer at most.
LIMIT = 512 * 1024 * 1024
#: Seconds that a client may take to send its body.
_SLOW = 30.0
#: Headers that are passed on: none that say who asks, none of the connection, none that reach beyond the page itself
#: (Set-Cookie, Location, Link, Refresh, Service-Worker-Allowed ...).
_ASKED = ("accept", "accept-encoding", "accept-language", "content-type", "if-modified-since", "if-none-match", "range")
_OWN_PREFIX = "x-tensorboard-"
_ELSEWHERE = (301, 302, 303, 307, 308)
_TOLD = (
    *("accept-ranges", "cache-control", "content-disposition", "content-encoding", "content-language"),
    *("content-range", "content-type", "etag", "expires", "last-modified", "vary"),
)


class Board:
    """Its routes, and its row of the API. `key`: part of the address, which lets those in who were told it."""

    def __init__(self, look: Callable[[], Snapshot]) -> None:
        self._look = look
        self._key = secrets.token_urlsafe(16)
        self._free = SEATS

    def lets_in(self, path: str) -> bool:
        """Whether the path has the key: for a browser that cannot send the token of the page that led here."""
        folder, _, rest = path.removeprefix("/").partition("/")
        return folder == FOLDER and hmac.compare_digest(rest.partition("/")[0].encode(), self._key.encode())

    def rows(self) -> Iterator[Endpoint]:
        """`GET /v1/tf/tensorboard`."""
        what = "Where TensorBoard is, if it runs."
        yield Endpoint("GET", "/v1/tf/tensorboard", what, {200: BoardBody}, self._shown, ours=True)

    def routes(self) -> tuple[Route, ...]:
        """Behind the guard. Relative links, as TensorBoard's own are."""
        return (
            Route(f"/{FOLDER}/", self._lead, methods=["GET"]),
            Route(f"/{FOLDER}/{{key}}/{{rest:path}}", self._serve, methods=["GET", "POST"]),
        )

    def _shown(self, snapshot: Snapshot, _given: Mapping[str, object]) -> Answer:
        found = running(snapshot.state)
        if isinstance(found, Problem):
            return View({"running": False, "reason": found.message, "task": None, "address": None, "path": None})
        path = f"{FOLDER}/{self._key}/"
        return View({"running": True, "reason": "", "task": found.name, "address": found.address, "path": path})

    async def _lead(self, _request: Request) -> Response:
        found = running(self._look().state)
        return respond(found, as_json=True) if isinstance(found, Problem) else RedirectResponse(f"{self._key}/", 307)

    async def _serve(self, request: Request) -> Response:
        # It commands nothing: no line of the audit log, which would have the key in it.
        request.scope["api.quiet"] = True
        if "service-worker" in request.headers:
            # It could answer in our place from then on, without what keeps its pages in.
            return respond(Problem(403, "no page of TensorBoard may install a service worker here"), as_json=True)
        snapshot = self._look()
        found = running(snapshot.state)
        if isinstance(found, Problem):
            return respond(found, as_json=True)
        if self._free <= 0:
            return respond(Problem(503, f"{SEATS} requests to TensorBoard are under way: ask again"), as_json=True)
        self._free -= 1
        try:
            answer = await self._asked(request, found)
        except Unanswered as error:
            self._leave()
            return respond(Problem(503, f"TensorBoard does not answer (yet): {error}"), as_json=True)
        except BaseException:
            self._leave()
            raise
        return _Passed(answer, _told(answer, snapshot.state.spec.name), self._leave)

    def _leave(self) -> None:
        self._free += 1

    async def _asked(self, request: Request, record: TaskRecord) -> Fetched:
        try:
            body = await asyncio.wait_for(request.body(), _SLOW)
        except (asyncio.TimeoutError, ClientDisconnect) as error:
            raise Unanswered("the body of the request is cut off") from error
        query = request.scope["query_string"].decode("latin-1")
        target = "/" + quote(request.path_params["rest"], safe="/:@!$&'()*+,;=~") + (f"?{query}" if query else "")
        given = request.headers.items()
        headers = [(name, value) for name, value in given if name in _ASKED or name.startswith(_OWN_PREFIX)]
        answer = await fetch(record.address, request.method, target, headers, body)
        if answer.status in _ELSEWHERE:
            answer.close()
            raise Unanswered("it leads elsewhere, which is not followed")
        return answer


class _Passed(StreamingResponse):
    """An answer of TensorBoard's. `leave`: told when it is over, however that comes."""

    def __init__(self, answer: Fetched, headers: Mapping[str, str], leave: Callable[[], None]) -> None:
        super().__init__(_pieces(answer), answer.status, headers)
        self._answer, self._leave = answer, leave

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._answer.close()
            self._leave()


def _told(answer: Fetched, service: str) -> dict[str, str]:
    """Without its length: what is cut off ends early, and is neither JSON nor a whole archive then."""
    told = {name: answer.headers[name] for name in _TOLD if name in answer.headers}
    theirs = answer.headers.get("content-security-policy")
    return {**told, "content-security-policy": ", ".join(filter(None, (policy(service), theirs)))}


async def _pieces(answer: Fetched) -> AsyncIterator[bytes]:
    left = LIMIT
    try:
        async with aclosing(answer.pieces()) as pieces:
            async for piece in pieces:
                left -= len(piece)
                if left < 0:
                    raise Unanswered(f"it has more than {LIMIT} bytes")
                yield piece
    except Unanswered as error:
        log.warning("an answer of TensorBoard is not passed on to its end: %s", error)


def running(state: SchedulerState) -> TaskRecord | Problem:
    """The task's record, whose address is the only one that is ever asked; or why there is none."""
    wanted = next((task for task in state.spec.tasks() if task.job.kind is JobKind.TENSORBOARD), None)
    record = next((record for record in state.tasks.values() if record.job is JobKind.TENSORBOARD), None)
    if record is None and wanted is None:
        return Problem(404, "this service has no TensorBoard: see the option service.use_tensorboard")
    if record is None:
        why = "; ".join(reasons(state, wanted.name)) if wanted else ""
        return Problem(503, f"TensorBoard has not been launched yet{f': {why}' if why else ''}")
    status = state.statuses.get(record.id)
    if status is None or status.state is not TaskState.RUNNING:
        word = "launching" if status is None else status.state.spoken
        return Problem(503, f"TensorBoard does not run: {record.name} on {record.hostname} is {word}")
    return record


def policy(service: str) -> str:
    """Content-Security-Policy: scripts of its own, and no request, frame or window of anything else of this origin.

    By path, not by 'self', for what else is at this origin could command the scheduler. The host is any: ours is not
    known behind a proxy. It has no rights there. No frames at all: one may be led back to this origin, where no path is
    looked at any more (W3C CSP 3, 7.6), and what shows there a text of ours, or a proxy's, could command everything.
    """
    places = f"*:*/{FOLDER}/ *:*/service/{quote(service)}/{FOLDER}/"
    return (
        f"default-src {places} data: blob: 'unsafe-inline' 'unsafe-eval'; frame-src 'none'; object-src 'none'; "
        "form-action 'none'; base-uri 'none'; frame-ancestors 'none'; "
        "sandbox allow-scripts allow-same-origin allow-downloads allow-modals"
    )
