"""The admin router: one address for Cosmos, Marathon, Mesos and the services."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from urllib.parse import quote
from uuid import UUID

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from kit.cosmos import CosmosError
from tf_scheduler.api.http.endpoint import parse_body
from tf_scheduler.package.sources import VERSIONS, content_type

from . import logs
from .agents import Agents
from .app import App
from .connecting import scheme_of
from .cosmos import Cosmos
from .errors import MarathonError
from .folder import Folder
from .marathon import Marathon
from .marathon_api import MarathonApi
from .mesos import Answer, Mesos
from .passing import passed_on
from .task import HOST
from .visitors import is_json

log = logging.getLogger(__name__)

#: Version of the answer -> what gives it.
_Versions = Mapping[str, Callable[[Mapping[str, Any]], Any]]

_ANY = ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH"]
#: Other parts of DC/OS, below Admin Router: `dcos task metrics`, `dcos node log`, `dcos job` ...
_MISSING = ("system", "slave", "agent", "mesos_dns", "service/marathon", "service/metronome", "cosmos", "package")
_CAPABILITIES = ("PACKAGE_MANAGEMENT", "LOGGING_V2")
_CAPABILITIES_TYPE = "application/vnd.dcos.capabilities+json;charset=utf-8;version=v1"
_ERROR_TYPE = "application/vnd.dcos.package.error+json;charset=utf-8;version=v1"


def create_app(cosmos: Cosmos, marathon: Marathon, mesos: Mesos, folder: Folder, cluster_id: UUID) -> Starlette:
    """The whole app; `folder`: repository and artefacts, served below /universe."""
    router = _Router(marathon, mesos)
    about = {"CLUSTER_ID": str(cluster_id), "CLUSTER": "local"}
    return Starlette(
        routes=[
            *_cosmos_routes(cosmos),
            Route("/metadata", lambda _: JSONResponse(about)),
            Route(
                "/dcos-metadata/dcos-version.json", lambda _: JSONResponse({"version": "2.2", "dcos-variant": "open"})
            ),
            Route("/pkgpanda/active.buildinfo.full.json", lambda _: JSONResponse({}), methods=["GET", "HEAD"]),
            Route("/system/v1/logs/v2/task/{task}/file/{name:path}", router.log),
            Route("/slave/{agent}/{path:path}", router.agent),
            Route("/mesos_dns/v1/hosts/{name}", _host),
            Route("/service/marathon/ping", lambda _: PlainTextResponse("pong")),
            Route("/service/marathon/v2/{path:path}", router.marathon_api, methods=_ANY),
            *(Route(f"/{name}/{{path:path}}", _missing, methods=_ANY) for name in _MISSING),
            Route("/service/{path:path}", router.service, methods=_ANY),
            Route("/mesos/{path:path}", router.mesos, methods=_ANY),
            Route("/universe/universe-{version}.json", lambda request: _repository(request, folder)),
            Mount("/universe", StaticFiles(directory=folder.universe)),
        ]
    )


def _host(request: Request) -> Response:
    """Mesos-DNS: one address for the known names, an empty one for others."""
    name = request.path_params["name"]
    known = name.rstrip(".") in ("master.mesos", "leader.mesos", "marathon.mesos")
    return JSONResponse([{"host": f"{name}." if known else "", "ip": HOST if known else ""}])


def _missing(request: Request) -> Response:
    path = request.url.path
    text = f"the local DC/OS does not have {request.method} {path}"
    return JSONResponse({"message": text}, 501)


def _repository(request: Request, folder: Folder) -> Response:
    """A repository document with the media type of its version."""
    version = request.path_params["version"]
    path = folder.universe / f"universe-{version}.json"
    if version not in VERSIONS or not path.is_file():
        return PlainTextResponse("Not Found", 404)
    return Response(path.read_bytes(), media_type=content_type(version))


def _cosmos_routes(cosmos: Cosmos) -> list[Route]:
    calls: Mapping[str, tuple[str, _Versions]] = {
        "/package/describe": ("package.describe", {"v3": cosmos.describe, "v2": cosmos.describe_flat}),
        "/package/render": ("package.render", {"v1": cosmos.render}),
        "/package/install": ("package.install", {"v2": cosmos.install, "v1": cosmos.install_flat}),
        "/package/list": ("package.list", {"v1": cosmos.installed}),
        "/package/list-versions": ("package.list-versions", {"v1": cosmos.versions}),
        "/package/search": ("package.search", {"v1": cosmos.search}),
        "/package/uninstall": ("package.uninstall", {"v1": cosmos.uninstall}),
        "/package/repository/list": ("package.repository.list", {"v1": cosmos.repository_list}),
        "/package/repository/add": ("package.repository.add", {"v1": cosmos.repository_add}),
        "/package/repository/delete": ("package.repository.delete", {"v1": cosmos.repository_delete}),
        "/cosmos/service/describe": ("service.describe", {"v1": cosmos.service_describe}),
        "/cosmos/service/update": ("service.update", {"v1": cosmos.service_update}),
    }
    names = JSONResponse({"capabilities": [{"name": name} for name in _CAPABILITIES]}, media_type=_CAPABILITIES_TYPE)
    routes = [Route(path, _cosmos_endpoint(*call), methods=["POST"]) for path, call in calls.items()]
    return [*routes, Route("/capabilities", lambda _: names)]


def _cosmos_endpoint(name: str, versions: _Versions) -> Callable[[Request], Any]:
    """Check the media types, and turn errors into Cosmos' documents."""
    asked = f"application/vnd.dcos.{name}-request+json;charset=utf-8;version=v1"
    given = {
        f"application/vnd.dcos.{name}-response+json;charset=utf-8;version={v}": call for v, call in versions.items()
    }

    async def answer(request: Request) -> Response:
        try:
            _accepted(request, "Content-Type", [asked])
            media_type = _accepted(request, "Accept", given)
            found = await run_in_threadpool(given[media_type], _parsed(await request.body()))
        except CosmosError as error:
            return _refusal(error)
        except Exception as error:
            log.exception("%s failed", name)
            return _refusal(CosmosError("unhandled_exception", f"{type(error).__name__}: {error}", http_status=500))
        return Response(json.dumps(found), media_type=media_type)

    return answer


def _accepted(request: Request, header: str, wanted: Iterable[str]) -> str:
    """The media type that the header accepts."""
    found = request.headers.get(header)
    if found is None:
        raise CosmosError("not_present", f"Item header '{header}' not present but required")
    for media_type in wanted:
        if media_type in found.replace(" ", ""):
            return media_type
    # dcos/cosmos, finch/package.scala
    comma = "," if header == "Content-Type" else ""
    rule = f"Media type was [{found}]{comma} but should be one of [{', '.join(wanted)}]"
    raise CosmosError("not_valid", f"Item header '{header}' deemed invalid by rule: {rule}")


def _refusal(error: CosmosError) -> Response:
    return Response(json.dumps(error.document()), error.http_status, media_type=_ERROR_TYPE)


def _parsed(body: bytes) -> Mapping[str, Any]:
    try:
        found = parse_body(body)
    except ValueError as error:
        raise CosmosError(
            "json_error", f"JSON parse error: {error}", {"type": "parse", "reason": str(error)}
        ) from error
    if not isinstance(found, dict):
        raise CosmosError(
            "json_error", "JSON decode error: an object is needed", {"type": "decode", "reason": "object"}
        )
    return found


class _Router:
    """Endpoints that forward requests."""

    def __init__(self, marathon: Marathon, mesos: Mesos) -> None:
        self._marathon, self._mesos, self._api = marathon, mesos, MarathonApi(marathon)
        self._agents = Agents(mesos)

    async def marathon_api(self, request: Request) -> Response:
        path, body = request.path_params["path"], await request.body()
        if body and not is_json(kind := request.headers.get("content-type", "")):
            return JSONResponse({"message": f"the body must be application/json, not {kind[:80]!r}"}, 415)
        try:
            query = request.query_params
            code, found = await run_in_threadpool(self._api.answer, request.method, path, query, body)
        except MarathonError as error:
            return JSONResponse(error.document(), error.http_status)
        return JSONResponse(found, code)

    async def service(self, request: Request) -> Response:
        """/service/<name>/<rest>, where the name may have folders."""
        found = self._service(request.path_params["path"])
        if found is None:
            return PlainTextResponse("404 Not Found: no such service", 404)
        app, port, rest = found
        if port is None:
            return PlainTextResponse("503 Service Unavailable: the service does not run at the moment", 503)
        asked = _quoted(rest, request.url.query)
        body = await request.body()
        address = f"{HOST}:{port}"
        return await run_in_threadpool(passed_on, scheme_of(app), address, request.method, asked, request.headers, body)

    def _service(self, path: str) -> tuple[App, int | None, str] | None:
        """App, port and rest of the path for the longest matching app name, or None."""
        best: tuple[int, App, int | None, str] | None = None
        for shown in self._marathon.snapshots().values():
            labels = shown.app.definition["labels"]
            name = labels.get("DCOS_SERVICE_NAME", "").strip("/")
            if name and (path == name or path.startswith(f"{name}/")) and (best is None or len(name) > best[0]):
                ports = shown.task.place.ports if shown.task else ()
                index = int(labels.get("DCOS_SERVICE_PORT_INDEX", "0"))
                port = ports[index] if index < len(ports) else None
                best = len(name), shown.app, port, path[len(name) :].lstrip("/")
        return None if best is None else best[1:]

    async def mesos(self, request: Request) -> Response:
        path, body = _quoted(request.path_params["path"], ""), await request.body()
        headers, query = request.headers, request.url.query
        return _response(await run_in_threadpool(self._mesos.answer, request.method, path, query, headers, body))

    async def agent(self, request: Request) -> Response:
        agent, path = request.path_params["agent"], request.path_params["path"]
        query = request.url.query
        return _response(await run_in_threadpool(self._agents.answer, agent, path, request.query_params, query))

    async def log(self, request: Request) -> Response:
        """As text, or as events for who follows."""
        sandbox = await run_in_threadpool(self._mesos.sandbox, request.path_params["task"])
        try:
            path = logs.file_of(sandbox, request.path_params["name"])
        except logs.NoSuchFileError as error:
            return PlainTextResponse(str(error), 404)
        query = request.query_params
        skip = query.get("skip", "0")
        if not skip.removeprefix("-").isdecimal():
            return PlainTextResponse(f"skip must be a number of lines, not {skip[:40]!r}", 400)
        text, end = logs.tail(path, query.get("cursor", "BEG"), int(skip))
        if "text/event-stream" in request.headers.get("accept", ""):
            return StreamingResponse(logs.follow(path, text, end), media_type="text/event-stream")
        return Response(text, 200 if text else 204, media_type="text/plain")


def _quoted(path: str, query: str) -> str:
    """Quote a decoded path for forwarding."""
    found = "/" + quote(path, safe="/:@!$&'()*+,;=~")
    return f"{found}?{query}" if query else found


def _response(answer: Answer) -> Response:
    return Response(answer.body, answer.status, answer.headers)
