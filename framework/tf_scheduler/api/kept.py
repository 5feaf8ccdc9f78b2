"""Rows of `/v1/state/files` (dcos-commons, StateResource): small files that operators' tools keep with the service."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from email.parser import BytesParser
from email.policy import HTTP
from typing import Any

from starlette.responses import JSONResponse, Response

from tf_scheduler.interfaces import FileError

from .backend import Backend
from .endpoint import Access, Act, Call, Endpoint
from .respond import TEXT
from .shapes_sdk import MessageBody
from .views.base import Answer, Problem, View
from .views.state import properties

_ROOM, _PROPERTIES = "/v1/state/files", "/v1/state/properties"
#: Begins the name of the property that a file is.
_FILE = "file-"
_FORM = "multipart/form-data"


def kept_files(backend: Backend) -> Iterator[Endpoint]:
    """All of them; each file is a property, too."""
    yield Endpoint("GET", _PROPERTIES, "Names of properties.", {200: list[str]}, act=_properties(backend))
    bodies: dict[int, Any] = {200: Any, 404: str}
    yield Endpoint("GET", f"{_PROPERTIES}/{{key}}", "A property.", bodies, act=_property(backend))
    yield Endpoint("GET", _ROOM, "Names of files.", {200: list[str]}, act=_names(backend))
    yield Endpoint("GET", f"{_ROOM}/{{name}}", "A file.", {200: str, 404: str}, act=_content(backend))
    bodies = {200: MessageBody, 400: str, 409: str, 503: str}
    what, act = "Keep a file of 1024 bytes at most.", _keep(backend)
    yield Endpoint("PUT", f"{_ROOM}/{{name}}", what, bodies, act=act, takes=bytes, access=Access.WRITE)


def _properties(backend: Backend) -> Act:
    async def act(call: Call) -> Answer:
        return View(sorted([*properties(call.snapshot), *(f"{_FILE}{name}" for name in _kept(backend))]))

    return act


def _property(backend: Backend) -> Act:
    async def act(call: Call) -> Answer | Response:
        key, found = call.given["key"], properties(call.snapshot)
        if key in found:
            return JSONResponse(found[key]) if isinstance(found[key], str) else View(found[key])
        content = None if backend.kept is None else backend.kept.content(key.removeprefix(_FILE))
        if content is None or not key.startswith(_FILE):
            return Problem(404, f"Property {key} not found")
        return JSONResponse(content.decode(errors="replace"))

    return act


def _kept(backend: Backend) -> list[str]:
    return [] if backend.kept is None else list(backend.kept.names())


def _names(backend: Backend) -> Act:
    async def act(_call: Call) -> Answer:
        return View(_kept(backend))

    return act


def _content(backend: Backend) -> Act:
    async def act(call: Call) -> Answer | Response:
        name = call.given["name"]
        found = None if backend.kept is None else backend.kept.content(name)
        return Problem(404, f"File {name} not found") if found is None else Response(found, media_type=TEXT)

    return act


def _keep(backend: Backend) -> Act:
    async def act(call: Call) -> Answer:
        snapshot, name = call.snapshot, call.given["name"]
        if backend.kept is None or snapshot.uninstalling or snapshot.state.over:
            return Problem(409, "The service has ended, nothing is kept any more")
        content = uploaded(call.headers.get("content-type", ""), call.body)
        if content is None:
            return Problem(400, "The form has no part called file")
        try:
            await asyncio.to_thread(backend.kept.keep, name, content)
        except FileError as error:
            return Problem(error.code, str(error))
        return View({"message": f"Received cmd: store file {name}"})

    return act


def uploaded(kind: str, body: bytes) -> bytes | None:
    """The part `file` of a form (RFC 7578), None when there is none; of anything else the body itself."""
    if not kind.lower().startswith(_FORM):
        return body
    form = BytesParser(policy=HTTP).parsebytes(b"Content-Type: " + kind.encode("latin-1") + b"\r\n\r\n" + body)
    for part in form.iter_parts() if form.is_multipart() else ():
        if part.get_param("name", header="content-disposition") == "file":
            found = part.get_payload(decode=True)
            return found if isinstance(found, bytes) else None
    return None
