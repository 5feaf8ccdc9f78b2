"""Serve a page with the past runs, with their logs and files, to this user."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from secrets import token_urlsafe
from typing import Any
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from dcos_command.client import ServiceClient, client_at
from dcos_command.command import echo
from dcos_command.logs import TIMES_SUFFIX
from dcos_command.tasks import page_address
from tf_executor.contract.reports import strict_json
from tf_executor.contract.text import encodable, format_size
from tf_scheduler.api.http.auth import Guard, Policy
from tf_scheduler.api.http.endpoint import respond
from tf_scheduler.api.http.server import ApiServer
from tf_scheduler.api.views.base import View
from tf_scheduler.cli.common.folders import RunFolder, short_path, state_home
from tf_scheduler.cli.common.past_runs import files_of, past_runs
from tf_scheduler.errors import JobError
from tf_scheduler.history.compare import run_details, run_row
from tf_scheduler.history.database import find_run
from tf_scheduler.history.model import Run
from tf_scheduler.report import render_page
from tf_scheduler.web.pages import pages

from .advertisements import advertisements

_HOST = "127.0.0.1"
#: Seconds without a request after which the page ends; a tab asks every few seconds, a hidden one every minute.
IDLE = 600.0
#: Maximum points of a curve, and listed files of a run.
_POINTS, _MAX_FILES = 240, 200
#: Forbid scripts in reports, because users choose the names in them.
_REPORT_POLICY = {"content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; sandbox"}


def serve_past_runs(name: str, store: Path | None, show: Callable[[ServiceClient], object], idle: float = IDLE) -> bool:
    """Serve the runs of this user and of the folder `store` until Ctrl-C or idleness.

    `show` gets a client with the page's address, token and home folder. Returns False without runs, or without one that
    `find_run` finds by `name`. Raises JobError if `store` cannot be read.
    """
    runs = past_runs(store)[0]
    try:
        page = RunsPage(store, runs, find_run(runs, name or "last").id)
    except JobError:
        return False
    with ApiServer(page.app(), _HOST, 0) as server:
        client = client_at(f"http://{_HOST}:{server.port}", "", os.environ, ServiceClient.program)
        show(replace(client, token=page.token, home=state_home()))
        echo(f"this page shows past runs; it ends with Ctrl-C, or after {idle / 60:g} minutes without a tab", err=True)
        while (rest := page.used + idle - time.monotonic()) > 0:
            time.sleep(rest)
    return True


class RunsPage:
    """Answers of the page; only this user knows its `token`. `selected`: id of a run.

    Links to reports and files contain a key of their own, because browsers send no token for a link.
    """

    def __init__(self, store: Path | None, runs: Sequence[Run], selected: str) -> None:
        self._store, self._runs, self._selected = store, runs, selected
        self.token, self._key = token_urlsafe(32), token_urlsafe(32)
        #: Time of the last request for the list, as time.monotonic().
        self.used = time.monotonic()

    def app(self) -> Guard:
        """Return the page as an ASGI app."""
        files, static = f"/run/{self._key}/", pages("runs.html")
        routes = [
            Route("/v1/tf/runs", self._list),
            Route("/v1/tf/runs/{name}", self._details),
            Route(files + "{name}/{file:path}", self._file),
        ]
        public = {route.path for route in static}
        policy = Policy(read_token=self.token, loopback_only=True)
        app = Starlette(routes=[*routes, *static])
        return Guard(app, policy, lambda _, path: path in public or path.startswith(files))

    def _list(self, _request: Request) -> Response:
        self.used, unreadable, problem = time.monotonic(), list[str](), ""
        try:
            self._runs, unreadable = past_runs(self._store)
        except JobError as error:  # the page keeps the last list
            problem = str(error)
        return _json(
            store=str(self._store or ""),
            problem=problem,
            unreadable=len(unreadable),
            selected=self._selected,
            services=[{"name": note.name, "page": page_address(note.url, note.token)} for note in advertisements()],
            runs=[run_row(run) for run in self._runs],
        )

    def _details(self, request: Request) -> Response:
        run = self._run(request)
        address, files = f"run/{self._key}/{quote(run.id, safe='')}/", run_files(run)
        links = [
            {"name": name, "size": format_size(path.stat().st_size), "address": address + quote(name)}
            for name, path in list(files.items())[:_MAX_FILES]
        ]
        return _json(**run_details(run, _POINTS), folder=short_path(run.folder), report=f"{address}report", files=links)

    def _file(self, request: Request) -> Response:
        """Answer with the report, or with a file: a log as text, others as a download."""
        run, name = self._run(request), request.path_params["file"]
        if name == "report":
            return Response(render_page(run), headers=_REPORT_POLICY, media_type="text/html")
        path = run_files(run).get(name)
        if path is None:
            raise HTTPException(404)
        if name.startswith("logs/"):
            return FileResponse(path, media_type="text/plain; charset=utf-8")
        return FileResponse(path, media_type="application/octet-stream", filename=Path(name).name)

    def _run(self, request: Request) -> Run:
        run = next((run for run in self._runs if run.id == request.path_params["name"]), None)
        if run is None:
            raise HTTPException(404)
        return run


def run_files(run: Run) -> dict[str, Path]:
    """Return logs and kept files that are not empty, by their names on the page.

    Links are left out: a task writes into these folders and must not choose what is served.
    """
    if not run.folder:
        return {}
    root = RunFolder(Path(run.folder).resolve())
    found = {str(path.relative_to(root.path)): path for path in sorted(root.logs.glob("**/*"))}
    for item in files_of(run)["kept"]:
        folder = Path(item["folder"])  # CHECKPOINT_DIR itself may be a link of the user
        path = folder.parents[1].resolve() / folder.parent.name / folder.name / item["name"]
        found[f"kept/{folder.name}/{item['name']}"] = path
    files = {name: path for name, path in found.items() if path.suffix != TIMES_SUFFIX and path.is_file()}
    return {encodable(name): path for name, path in files.items() if path.resolve() == path and path.stat().st_size}


def _json(**body: Any) -> Response:
    return respond(View(strict_json(body)), as_json=True)
