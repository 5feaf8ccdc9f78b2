"""The table -> its OpenAPI document."""

from __future__ import annotations

import re
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any

from .endpoint import Access, Endpoint, Query
from .guard import HEALTH
from .respond import TOO_MANY
from .schema import Schemas
from .shapes import ErrorBody

#: Of the API, as its paths have it; that of the program is no matter of its clients.
VERSION = "1"
_SECURITY: list[dict[str, list[str]]] = [{"bearer": []}, {"basic": []}, {}]
_SCHEMES = {"bearer": {"type": "http", "scheme": "bearer"}, "basic": {"type": "http", "scheme": "basic"}}
_FILE = {"type": "object", "required": ["file"], "properties": {"file": {"type": "string", "format": "binary"}}}
_FORM: dict[str, Any] = {"multipart/form-data": {"schema": _FILE}}
#: The standard library has no words for the SDK's.
_HEALTH_CODES = {318: "Initializing", 319: "Waiting for the store", 320: "Backing up", 321: "Restoring"}


def document(table: Iterable[Endpoint]) -> dict[str, Any]:
    """OpenAPI 3.1."""
    schemas = Schemas()
    paths: dict[str, dict[str, Any]] = {}
    for row in table:
        paths.setdefault(row.path, {})[row.method.lower()] = _operation(row, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "TensorFlow on Mesos",
            "version": VERSION,
            "description": "The scheduler of one service: plans, tasks, training. The explanations are in docs/api.md.",
        },
        # Of the document's own address: it is also served below /service/NAME/.
        "servers": [{"url": ".."}],
        "paths": paths,
        "components": {"schemas": schemas.named, "securitySchemes": _SCHEMES},
    }


def _operation(row: Endpoint, schemas: Schemas) -> dict[str, Any]:
    found: dict[str, Any] = {
        "summary": row.what,
        "operationId": _name(row),
        "tags": [row.path.split("/")[2]],
        "responses": _responses(row, schemas),
    }
    names = re.findall(r"{(\w+)}", row.path)
    parameters = [*(_in_path(name, row.formats.get(name)) for name in names), *map(_in_query, row.query)]
    if parameters:
        found["parameters"] = parameters
    if row.takes is not None:
        content = _FORM if row.takes is bytes else {"application/json": {"schema": schemas.of(row.takes)}}
        found["requestBody"] = {"required": not row.optional, "content": content}
    if row.access is not Access.OPEN:
        found["security"] = _SECURITY
    return found


def _name(row: Endpoint) -> str:
    """`get_plans_plan`: unique, as method and path are together."""
    return "_".join([row.method.lower(), *re.findall(r"\w+", row.path)])


def _in_path(name: str, form: str | None) -> dict[str, Any]:
    schema = {"type": "string", "minLength": 1, **({"format": form} if form else {})}
    return {"name": name, "in": "path", "required": True, "schema": schema}


def _in_query(item: Query) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": {str: "string", int: "integer", bool: "boolean"}[item.kind]}
    if item.kind is int:
        schema |= {"minimum": item.least, "maximum": item.most}
    if item.pattern:
        schema["pattern"] = item.pattern
    if item.default is not None:
        schema["default"] = item.default
    return {"name": item.name, "in": "query", "required": False, "description": item.what, "schema": schema}


def _responses(row: Endpoint, schemas: Schemas) -> dict[str, Any]:
    bodies = dict(row.bodies)
    if row.access is not Access.OPEN:
        bodies = {**bodies, 401: ErrorBody, 403: str}
    if row.path != HEALTH:
        bodies[TOO_MANY] = ErrorBody
    bodies.setdefault(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, str)
    if row.query or row.takes is not None:
        bodies.setdefault(400, str)
    return {str(code): _response(row, code, kind, schemas) for code, kind in sorted(bodies.items())}


def _response(row: Endpoint, code: int, kind: Any, schemas: Schemas) -> dict[str, Any]:
    words = _HEALTH_CODES.get(code) or HTTPStatus(code).phrase
    if kind is None:
        return {"description": words}
    content: dict[str, Any] = {}
    if kind is str:
        content["text/plain"] = {"schema": {"type": "string"}}
        if code >= HTTPStatus.BAD_REQUEST:
            # To clients that accept it.
            content["application/json"] = {"schema": schemas.of(ErrorBody)}
    else:
        content["application/json"] = {"schema": schemas.of(kind)}
    if row.streams and code == HTTPStatus.OK:
        content["text/event-stream"] = {"schema": _events(row, schemas)}
    return {"description": words, "content": content}


def _events(row: Endpoint, schemas: Schemas) -> dict[str, Any]:
    """What is sent is a text without an end; OpenAPI 3.1 has no words for its parts, so they have a field of ours."""
    told = f"Server-sent events; the data of each is JSON: {', '.join(row.streams)}. x-events has their schemas."
    events = {name: schemas.of(kind) for name, kind in row.streams.items()}
    return {"type": "string", "description": told, "x-events": events}
