"""Endpoints of `/v1/state/files` (dcos-commons, StateResource): operators' files."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from email.parser import BytesParser
from email.policy import HTTP
from typing import Any

from starlette.responses import JSONResponse, Response

from tf_executor.contract.bodies import MessageBody
from tf_scheduler.api.http.endpoint import TEXT, ApiRequest, BadRequestError, Endpoint, EndpointAccess
from tf_scheduler.api.views.base import ApiAnswer, ApiProblem, View
from tf_scheduler.api.views.service import properties
from tf_scheduler.model.ids import OPERATOR_FILE

_FILES, _PROPERTIES = "/v1/state/files", "/v1/state/properties"
#: Prefix of the properties that are files.
_FILE = "file-"
_FORM = "multipart/form-data"


def file_routes() -> Iterator[Endpoint]:
    """Return the endpoints of files and properties; each file is also a property."""
    for row in _rows():
        yield replace(row, text_errors=True)


def _rows() -> Iterator[Endpoint]:
    links, summary = {f"{_PROPERTIES}/{{key}}": {"key": "/0"}}, "Names of properties."
    yield Endpoint("GET", _PROPERTIES, summary, {200: list[str]}, handler=_properties, links=links)
    yield Endpoint("GET", f"{_PROPERTIES}/{{key}}", "A property.", {200: Any, 404: str}, handler=_property)
    path = f"{_FILES}/{{name}}"
    yield Endpoint("GET", _FILES, "Names of files.", {200: list[str]}, handler=_names, links={path: {"name": "/0"}})
    yield Endpoint("GET", path, "A file.", {200: str, 404: str}, handler=_get)
    names = {"name": {"pattern": f"^{OPERATOR_FILE}$"}}
    summary, bodies = "Store a file of up to 1024 bytes.", {200: MessageBody, 400: str, 409: str, 503: str}
    yield Endpoint(
        "PUT", path, summary, bodies, handler=_put, body_type=bytes, access=EndpointAccess.WRITE, path_schemas=names
    )


async def _properties(request: ApiRequest) -> ApiAnswer:
    return View(sorted([*properties(request.snapshot), *(f"{_FILE}{name}" for name in _file_names(request))]))


async def _property(request: ApiRequest) -> ApiAnswer | Response:
    key, stored = request.params["key"], properties(request.snapshot)
    if key in stored:
        return JSONResponse(stored[key]) if isinstance(stored[key], str) else View(stored[key])
    content = _content(request, key.removeprefix(_FILE)) if key.startswith(_FILE) else None
    if content is None:
        return ApiProblem(404, f"Property {key} not found")
    return JSONResponse(content.decode(errors="replace"))


async def _names(request: ApiRequest) -> ApiAnswer:
    return View(_file_names(request))


async def _get(request: ApiRequest) -> ApiAnswer | Response:
    content = _content(request, request.params["name"])
    if content is None:
        return ApiProblem(404, f"File {request.params['name']} not found")
    return Response(content, media_type=TEXT)


async def _put(request: ApiRequest) -> ApiAnswer:
    snapshot, name, files = request.snapshot, request.params["name"], request.backend.operator_files
    if files is None or snapshot.uninstalling or snapshot.state.process.finished:
        return ApiProblem(409, "the service has finished, is being uninstalled, or cannot store files")
    content = uploaded_file(request.headers.get("content-type", ""), request.body)
    if content is None:
        raise BadRequestError("missing file: expected a form part `file`, or a body")
    await asyncio.to_thread(files.keep, name, content)
    return View({"message": f"Received cmd: store file {name}"})


def _file_names(request: ApiRequest) -> list[str]:
    return [] if request.backend.operator_files is None else list(request.backend.operator_files.names())


def _content(request: ApiRequest, name: str) -> bytes | None:
    return None if request.backend.operator_files is None else request.backend.operator_files.content(name)


def uploaded_file(kind: str, body: bytes) -> bytes | None:
    """Return the part `file` of a form (RFC 7578), or the whole body; None if missing."""
    if not kind.lower().startswith(_FORM):
        return body or None
    form = BytesParser(policy=HTTP).parsebytes(b"Content-Type: " + kind.encode("latin-1") + b"\r\n\r\n" + body)
    for part in form.iter_parts() if form.is_multipart() else ():
        if part.get_param("name", header="content-disposition") == "file":
            content = part.get_payload(decode=True)
            return content if isinstance(content, bytes) else None
    return None
