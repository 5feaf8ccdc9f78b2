"""Reverse proxy for TensorBoard that isolates TensorBoard's pages from the API."""

from __future__ import annotations

import asyncio
import hmac
import html
import logging
import re
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from urllib.parse import quote

import h11
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from tf_executor.contract.bodies import BoardBody
from tf_executor.contract.states import TaskState
from tf_scheduler.api.http.endpoint import Endpoint, respond
from tf_scheduler.api.http.server import BODY_TIMEOUT, LimitedStream, Quota
from tf_scheduler.api.views.base import ApiAnswer, ApiProblem, Snapshot, View
from tf_scheduler.api.views.tasks import pending_reasons
from tf_scheduler.errors import SchedulerError
from tf_scheduler.model.spec import JobKind
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.model.task import TaskRecord

#: Timeouts in seconds: connection, head of the answer, next chunk of the body.
CONNECT_TIMEOUT, HEAD_TIMEOUT, READ_TIMEOUT = 5.0, 60.0, 60.0
_PIECE = 64 * 1024

#: A name or address with an optional port, as Content-Security-Policy accepts it.
_HOST = re.compile(r"[A-Za-z0-9.-]+(:[0-9]+)?")

Headers = Sequence[tuple[str, str]]


class ForwardError(SchedulerError):
    """A request or its answer cannot be forwarded."""


@dataclass(slots=True)
class UpstreamResponse:
    """Answer of TensorBoard with an unread body. Close it, or read all `chunks`."""

    _reader: asyncio.StreamReader
    _writer: asyncio.StreamWriter
    _http: h11.Connection = field(default_factory=lambda: h11.Connection(h11.CLIENT))
    status: int = 0
    #: Names in lower case.
    headers: dict[str, str] = field(default_factory=dict)

    async def send(self, request: h11.Request, body: bytes) -> None:
        """Send the request and read the head of the answer."""
        for event in (request, h11.Data(data=body), h11.EndOfMessage()):
            self._writer.write(self._http.send(event) or b"")
        while isinstance(head := await self._next(), h11.InformationalResponse):
            pass
        if not isinstance(head, h11.Response):
            raise ForwardError("connection closed without an answer")
        self.status = head.status_code
        for name, value in ((name.decode("ascii"), value.decode("latin-1")) for name, value in head.headers):
            self.headers[name] = f"{self.headers[name]}, {value}" if name in self.headers else value

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """Yield the decoded body. Raises ForwardError if the body is incomplete."""
        try:
            while isinstance(event := await self._next(), h11.Data):
                yield bytes(event.data)
        finally:
            self.close()

    def close(self) -> None:
        """Abort the connection."""
        self._writer.transport.abort()

    async def _next(self) -> object:
        try:
            while (event := self._http.next_event()) is h11.NEED_DATA:
                self._http.receive_data(await asyncio.wait_for(self._reader.read(_PIECE), READ_TIMEOUT))
        except (OSError, asyncio.TimeoutError, h11.ProtocolError) as error:
            raise ForwardError(f"incomplete answer: {error or 'timeout'}") from error
        return event


async def fetch(address: str, method: str, target: str, headers: Headers, body: bytes = b"") -> UpstreamResponse:
    """Request `target`; follow no redirect. Raises ForwardError."""
    host, _, port = address.rpartition(":")
    try:
        connecting = asyncio.open_connection(host.strip("[]"), int(port))
        answer = UpstreamResponse(*await asyncio.wait_for(connecting, CONNECT_TIMEOUT))
    except (OSError, asyncio.TimeoutError) as error:
        raise ForwardError(f"cannot connect to {address}: {error or 'timeout'}") from error
    own = [("host", address), ("connection", "close"), ("content-length", str(len(body)))]
    try:
        request = h11.Request(method=method, target=target, headers=[*own, *headers])
        await asyncio.wait_for(answer.send(request, body), HEAD_TIMEOUT)
    except BaseException as error:
        answer.close()
        if isinstance(error, asyncio.TimeoutError):
            raise ForwardError(f"{address}: no answer within {HEAD_TIMEOUT:g} s") from error
        if isinstance(error, (OSError, h11.ProtocolError)):
            raise ForwardError(f"{address}: invalid answer: {error}") from error
        raise
    return answer


log = logging.getLogger(__name__)

#: Path below the scheduler's address, which has a prefix on DC/OS.
FOLDER = "tensorboard"
#: Maximum number of concurrent requests.
MAX_REQUESTS = 32
#: Maximum size of an answer in bytes.
MAX_BYTES = 512 * 1024 * 1024
#: Forwarded header fields: none with credentials, none of the connection, and none that affect more than the page
#: (Set-Cookie, Location, Link, Refresh, Service-Worker-Allowed).
_REQUEST_HEADERS = (
    "accept",
    "accept-encoding",
    "accept-language",
    "content-type",
    "if-modified-since",
    "if-none-match",
    "range",
)
_OWN_PREFIX = "x-tensorboard-"
_REDIRECTS = (301, 302, 303, 307, 308)
_RESPONSE_HEADERS = (
    *("accept-ranges", "cache-control", "content-disposition", "content-encoding", "content-language"),
    *("content-range", "content-type", "etag", "expires", "last-modified", "vary"),
)


#: Name of the scheduler's own page that shows TensorBoard in a frame.
FRAMED = "framed"
#: The sandbox has an opaque origin, where storages and cookies raise, and workers start from blobs only. TensorBoard
#: needs them all.
_STORAGE = b"""<!doctype html><script>{
const values = new Map();
const storage = {
  getItem: (key) => values.get(String(key)) ?? null,
  setItem: (key, value) => void values.set(String(key), String(value)),
  removeItem: (key) => void values.delete(String(key)), clear: () => values.clear(),
  key: (at) => [...values.keys()][at] ?? null, get length() { return values.size; },
};
for (const name of ["localStorage", "sessionStorage"]) Object.defineProperty(window, name, { value: storage });
Object.defineProperty(document, "cookie", { get: () => "", set: () => {} });
window.Worker = class extends Worker {
  constructor(url, options) {
    const script = `importScripts(${JSON.stringify(new URL(url, location).href)})`;
    super(URL.createObjectURL(new Blob([script], { type: "text/javascript" })), options);
  }
};
}</script>"""
_FRAMED = """<!doctype html><html lang="en"><meta charset="utf-8"><title>TensorBoard of {0}</title>
<meta name="viewport" content="width=device-width">
<style>html,body{{height:100%;margin:0}}body{{display:flex;flex-direction:column;font:14px system-ui,sans-serif}}
p{{margin:0;padding:6px 12px;background:#fff3cd;color:#3d2f00}}iframe{{flex:1;border:0}}</style>
<p role="note">TensorBoard of <b>{0}</b>. Programs of this service make the page below, not the scheduler: enter no
token or password in it.</p><iframe title="TensorBoard" sandbox="{1}" src="./"></iframe></html>
"""
_SANDBOX = "allow-scripts allow-downloads"


class TensorBoardProxy:
    """Proxy for TensorBoard. The random key in its path authorizes browsers."""

    def __init__(self, look: Callable[[], Snapshot]) -> None:
        self._look = look
        self._key = secrets.token_urlsafe(16)
        self._requests = Quota(MAX_REQUESTS, "requests to TensorBoard")

    def is_authorized_path(self, path: str) -> bool:
        """Whether the path has the key. Browsers that follow a link send no token."""
        folder, _, rest = path.removeprefix("/").partition("/")
        return folder == FOLDER and hmac.compare_digest(rest.partition("/")[0].encode(), self._key.encode())

    def endpoint(self) -> Endpoint:
        summary = "Address of TensorBoard, if it is running."
        return Endpoint("GET", "/v1/tf/tensorboard", summary, {200: BoardBody}, self._status)

    def routes(self) -> tuple[Route, ...]:
        """Return the routes of the proxy, for use behind the guard."""
        return (
            Route(f"/{FOLDER}/", self._redirect, methods=["GET"]),
            Route(f"/{FOLDER}/{{key}}/{FRAMED}", self._frame, methods=["GET"]),
            Route(f"/{FOLDER}/{{key}}/{{rest:path}}", self._serve, methods=["GET", "POST", "OPTIONS"]),
        )

    def _status(self, snapshot: Snapshot, _params: Mapping[str, object]) -> ApiAnswer:
        target = find_tensorboard(snapshot.state)
        if isinstance(target, ApiProblem):
            return View({"running": False, "reason": target.message, "task": None, "address": None, "path": None})
        path = f"{FOLDER}/{self._key}/"
        return View({"running": True, "reason": "", "task": target.name, "address": target.address, "path": path})

    async def _redirect(self, _request: Request) -> Response:
        target = find_tensorboard(self._look().state)
        if isinstance(target, ApiProblem):
            return respond(target, as_json=True)
        return RedirectResponse(f"{self._key}/{FRAMED}")

    async def _frame(self, request: Request) -> Response:
        """Return a page with TensorBoard in a frame, and with a note on the content.

        The browser shows the address of this page, and `frame-src` limits where the frame can navigate.
        """
        request.scope["api.quiet"] = True
        service = self._look().state.spec.name
        places = " ".join(_places(service, _hosts(request)))
        policy = f"default-src 'none'; style-src 'unsafe-inline'; frame-src {places}; base-uri 'none'; "
        policy += "form-action 'none'; frame-ancestors 'none'"
        headers = {"content-security-policy": policy, "cache-control": "no-store"}
        return Response(_FRAMED.format(html.escape(service), _SANDBOX), headers=headers, media_type="text/html")

    async def _serve(self, request: Request) -> Response:
        # Excluded from the audit log: the request changes nothing, and its path has the key.
        request.scope["api.quiet"] = True
        if "service-worker" in request.headers:
            # A service worker could answer requests to the scheduler without its security headers.
            return respond(ApiProblem(403, "TensorBoard pages cannot install a service worker"), as_json=True)
        if request.headers.get("sec-fetch-dest") == "document":
            return RedirectResponse("../" * request.path_params["rest"].count("/") + FRAMED)
        # The sandboxed page has the origin `null`. The key in the path lets it read: other sites do not know the key.
        is_authorized = self.is_authorized_path(f"/{FOLDER}/{request.path_params['key']}/")
        shared = {"access-control-allow-origin": "null"} if is_authorized else {}
        if request.method == "OPTIONS":
            # TensorBoard sends headers of its own, about which browsers ask first.
            return Response(status_code=204, headers={**shared, "access-control-allow-headers": "*"})
        snapshot = self._look()
        target = find_tensorboard(snapshot.state)
        if isinstance(target, ApiProblem):
            return respond(target, as_json=True)
        if problem := self._requests.acquire():
            return respond(problem, as_json=True)
        try:
            answer = await self._forward(request, target)
        except BaseException as error:
            self._requests.release()
            if not isinstance(error, ForwardError):
                raise
            return respond(ApiProblem(503, f"request to TensorBoard failed: {error}"), as_json=True)

        def end() -> None:
            answer.close()
            self._requests.release()

        headers = {**_response_headers(answer, snapshot.state.spec.name, _hosts(request)), **shared}
        is_plain = headers.get("content-encoding", "identity") == "identity"
        is_start = (answer.status, request.path_params["rest"]) == (200, "") and is_plain
        is_page = is_start and headers.get("content-type", "").startswith("text/html")
        pieces = _pieces(answer, _STORAGE if is_page else b"")
        return LimitedStream(pieces, end, status_code=answer.status, headers=headers)

    async def _forward(self, request: Request, record: TaskRecord) -> UpstreamResponse:
        try:
            body = await asyncio.wait_for(request.body(), BODY_TIMEOUT)
        except (asyncio.TimeoutError, ClientDisconnect) as error:
            raise ForwardError("the client sent an incomplete request body") from error
        query = request.scope["query_string"].decode("latin-1")
        target = "/" + quote(request.path_params["rest"], safe="/:@!$&'()*+,;=~") + (f"?{query}" if query else "")
        headers = [
            (name, value)
            for name, value in request.headers.items()
            if name in _REQUEST_HEADERS or name.startswith(_OWN_PREFIX)
            # The page is not compressed, because `_STORAGE` precedes it.
            if name != "accept-encoding" or request.path_params["rest"]
        ]
        answer = await fetch(record.address, request.method, target, headers, body)
        if answer.status in _REDIRECTS:
            answer.close()
            raise ForwardError("the answer is a redirect, which the scheduler does not follow")
        return answer


def _hosts(request: Request) -> list[str]:
    """Return the valid hosts in the fields Host and X-Forwarded-Host of the request."""
    named = (request.headers.get("host", ""), request.headers.get("x-forwarded-host", ""))
    return [host for host in dict.fromkeys(named) if _HOST.fullmatch(host)]


def _response_headers(answer: UpstreamResponse, service: str, hosts: Sequence[str]) -> dict[str, str]:
    """Return the headers without Content-Length, so that clients detect truncation."""
    fields = {name: answer.headers[name] for name in _RESPONSE_HEADERS if name in answer.headers}
    # TensorBoard's own policy is dropped: it refuses the script and the workers of `_STORAGE`.
    return {**fields, "content-security-policy": content_security_policy(service, hosts)}


async def _pieces(answer: UpstreamResponse, prefix: bytes = b"") -> AsyncIterator[bytes]:
    left = MAX_BYTES
    if prefix:
        yield prefix
    try:
        async with aclosing(answer.chunks()) as pieces:
            async for piece in pieces:
                left -= len(piece)
                if left < 0:
                    raise ForwardError(f"answer larger than {MAX_BYTES} bytes")
                yield piece
    except ForwardError as error:
        log.warning("answer of TensorBoard truncated: %s", error)


def find_tensorboard(state: SchedulerState) -> TaskRecord | ApiProblem:
    """Return the record of the running TensorBoard (the only upstream), or a problem."""
    wanted = next((task for task in state.spec.tasks() if task.job.kind is JobKind.TENSORBOARD), None)
    record = next((record for record in state.stored.tasks.values() if record.job is JobKind.TENSORBOARD), None)
    if record is None and wanted is None:
        return ApiProblem(404, "this service has no TensorBoard; set the option service.use_tensorboard")
    if record is None:
        why = "; ".join(pending_reasons(state, wanted.name)) if wanted else ""
        return ApiProblem(503, f"TensorBoard has not been launched{f': {why}' if why else ''}")
    status = state.stored.statuses.get(record.id)
    if status is None or status.state is not TaskState.RUNNING:
        phrase = "is launching" if status is None else status.state.phrase
        return ApiProblem(503, f"TensorBoard is not running: {record.name} on {record.hostname} {phrase}")
    return record


def _places(service: str, hosts: Sequence[str]) -> list[str]:
    """Return the paths of TensorBoard on each host, as sources for the policy."""
    return [f"{host}{path}" for host in hosts for path in (f"/{FOLDER}/", f"/service/{quote(service)}/{FOLDER}/")]


def content_security_policy(service: str, hosts: Sequence[str]) -> str:
    """Return the Content-Security-Policy that limits TensorBoard's pages to its path.

    The sources are paths of the requested host, not 'self', because requests to other paths of this host can command
    the scheduler. Other hosts could receive what a viewer types, or redirect to any path: a browser does not check the
    path after a redirect (W3C CSP 3, 7.6). Frames are forbidden for the same reason. The sandbox's origin is opaque, so
    that the page has no rights of the scheduler's origin. The page can still change its own address (`pushState`); the
    page around it does not show this address.
    """
    places, viewers = " ".join(_places(service, hosts)), " ".join(hosts) or "'none'"
    return (
        f"default-src {places} data: blob: 'unsafe-inline' 'unsafe-eval'; frame-src 'none'; object-src 'none'; "
        f"form-action 'none'; base-uri 'none'; frame-ancestors {viewers}; "
        f"sandbox {_SANDBOX}"
    )
