"""Endpoints of `/v1/state/files` (dcos-commons, StateResource): small files that operators store with the service."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from email.parser import BytesParser
from email.policy import HTTP
from typing import Any

from starlette.responses import JSONResponse, Response

from tf_scheduler.api.http.backend import Backend
from tf_scheduler.api.http.endpoint import TEXT, ApiRequest, AsyncHandler, Endpoint, EndpointAccess
from tf_scheduler.api.views.base import ApiAnswer, ApiProblem, View
from tf_scheduler.api.views.service import properties
from tf_scheduler.api.views.types import MessageBody
from tf_scheduler.errors import FileError

_FILES, _PROPERTIES = "/v1/state/files", "/v1/state/properties"
#: Prefix of the properties that are files.
_FILE = "file-"
_FORM = "multipart/form-data"


def file_routes(backend: Backend) -> Iterator[Endpoint]:
    """Return the endpoints of files and properties; each file is also a property."""
    yield Endpoint("GET", _PROPERTIES, "Names of properties.", {200: list[str]}, handler=_properties(backend))
    bodies: dict[int, Any] = {200: Any, 404: str}
    yield Endpoint("GET", f"{_PROPERTIES}/{{key}}", "A property.", bodies, handler=_property(backend))
    yield Endpoint("GET", _FILES, "Names of files.", {200: list[str]}, handler=_names(backend))
    yield Endpoint("GET", f"{_FILES}/{{name}}", "A file.", {200: str, 404: str}, handler=_content(backend))
    bodies = {200: MessageBody, 400: str, 409: str, 503: str}
    summary, handler = "Store a file of up to 1024 bytes.", _put(backend)
    yield Endpoint(
        "PUT", f"{_FILES}/{{name}}", summary, bodies, handler=handler, body_type=bytes, access=EndpointAccess.WRITE
    )


def _properties(backend: Backend) -> AsyncHandler:
    async def handle(request: ApiRequest) -> ApiAnswer:
        return View(sorted([*properties(request.snapshot), *(f"{_FILE}{name}" for name in _file_names(backend))]))

    return handle


def _property(backend: Backend) -> AsyncHandler:
    async def handle(request: ApiRequest) -> ApiAnswer | Response:
        key, stored = request.params["key"], properties(request.snapshot)
        if key in stored:
            return JSONResponse(stored[key]) if isinstance(stored[key], str) else View(stored[key])
        content = None if backend.operator_files is None else backend.operator_files.content(key.removeprefix(_FILE))
        if content is None or not key.startswith(_FILE):
            return ApiProblem(404, f"Property {key} not found")
        return JSONResponse(content.decode(errors="replace"))

    return handle


def _file_names(backend: Backend) -> list[str]:
    return [] if backend.operator_files is None else list(backend.operator_files.names())


def _names(backend: Backend) -> AsyncHandler:
    async def handle(_request: ApiRequest) -> ApiAnswer:
        return View(_file_names(backend))

    return handle


def _content(backend: Backend) -> AsyncHandler:
    async def handle(request: ApiRequest) -> ApiAnswer | Response:
        name = request.params["name"]
        content = None if backend.operator_files is None else backend.operator_files.content(name)
        return ApiProblem(404, f"File {name} not found") if content is None else Response(content, media_type=TEXT)

    return handle


def _put(backend: Backend) -> AsyncHandler:
    async def handle(request: ApiRequest) -> ApiAnswer:
        snapshot, name = request.snapshot, request.params["name"]
        if backend.operator_files is None or snapshot.uninstalling or snapshot.state.process.finished:
            return ApiProblem(409, "the service has finished and stores no files")
        content = uploaded_file(request.headers.get("content-type", ""), request.body)
        if content is None:
            return ApiProblem(400, "missing form part: file")
        try:
            await asyncio.to_thread(backend.operator_files.keep, name, content)
        except FileError as error:
            return ApiProblem(error.http_status, str(error))
        return View({"message": f"Received cmd: store file {name}"})

    return handle


def uploaded_file(kind: str, body: bytes) -> bytes | None:
    """Return the part `file` of a form (RFC 7578), None if it is missing; other media types are the file itself."""
    if not kind.lower().startswith(_FORM):
        return body
    form = BytesParser(policy=HTTP).parsebytes(b"Content-Type: " + kind.encode("latin-1") + b"\r\n\r\n" + body)
    for part in form.iter_parts() if form.is_multipart() else ():
        if part.get_param("name", header="content-disposition") == "file":
            content = part.get_payload(decode=True)
            return content if isinstance(content, bytes) else None
    return None
