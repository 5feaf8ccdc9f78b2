"""API of a queue service: its jobs, and the way to each job's own API."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Mapping
from functools import partial
from heapq import nlargest
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

from tf_executor.contract import bodies
from tf_scheduler.api.app import app_of
from tf_scheduler.api.http.backend import Backend
from tf_scheduler.api.http.endpoint import ApiRequest, BadRequestError, Endpoint, EndpointAccess
from tf_scheduler.api.routes.operations import service_routes
from tf_scheduler.api.routes.sdk import sdk_routes
from tf_scheduler.api.views.base import ApiAnswer, ApiProblem, Snapshot, View
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.queue.job import Job, JobId
from tf_scheduler.web.pages import pages

from .job_file import OPERATOR
from .loop import QueueError, QueueService
from .views import QueueSnapshot, job_body, queue_body

#: Path of a request to a job's own API or page.
_OF_JOB = re.compile(r"/v1/jobs/(?P<job>[^/]+)(?P<rest>/(?:v1(?:/.*)?|page/.*|tensorboard/.*)?)")
#: Paths that a queue service has as every service.
_SHARED = ("/v1/plan", "/v1/configurations", "/v1/tf/update/preview")
#: Ended jobs that the queue shows.
_ENDED = 20
#: Health of a service that does not reach Mesos: a restart by Marathon would not help.
_WITHOUT_MESOS = 318


class QueueApi:
    """The app of the service; it passes requests of a job on to the job's own app."""

    def __init__(self, queue: QueueService) -> None:
        self._queue = queue
        self._backend = Backend(self._snapshot, preview_update=self._preview)
        policy = queue.settings.access.policy
        self._app = app_of((*self._rows(),), self._backend, policy, pages=pages("queue.html"))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app: ASGIApp = self._app
        match = _OF_JOB.fullmatch(scope["path"]) if scope["type"] == "http" else None
        if match is not None:
            try:
                run = await asyncio.to_thread(self._queue.run_of, JobId(match["job"]))
                app = run.app or self._app
                prefix = scope["path"][: match.start("rest")]
                # The job's app sees its own paths, as behind a proxy.
                scope = {**scope, "path": match["rest"], "raw_path": match["rest"].encode(), "api.prefix": prefix}
            except QueueError:
                pass  # answered by `_no_scheduler`, after the login
        await app(scope, receive, send)

    def _snapshot(self) -> Snapshot:
        queue = self._queue
        settings = queue.settings
        return QueueSnapshot(
            SchedulerState(settings.spec),
            settings.uninstalling,
            weaknesses=settings.weaknesses,
            master_error=queue.view.problem,
            unfinished=queue.unfinished,
        )

    def _rows(self) -> Iterator[Endpoint]:
        job, write = bodies.QueuedJobBody, EndpointAccess.WRITE
        file = dict[str, Any]
        yield Endpoint(
            "GET", "/v1/queue", "Order, shares and expected starts.", {200: bodies.QueueBody}, handler=self._show
        )
        yield Endpoint("GET", "/v1/jobs", "All jobs, newest first.", {200: bodies.JobsBody}, handler=self._list)
        yield Endpoint(
            "POST",
            "/v1/jobs",
            "Submit a job file. 200: it was submitted before.",
            {201: job, 200: job, 400: str, 403: str, 409: str},
            handler=self._submit,
            body_type=file,
            access=write,
        )
        root = "/v1/jobs/{job}"
        yield Endpoint("GET", root, "A job.", {200: job, 404: str}, handler=self._job)
        yield Endpoint(
            "GET", f"{root}/options", "Its job file.", {200: file, 403: str, 404: str}, handler=self._options
        )
        summary = "Replace its job file; a running job is updated."
        changed = {200: job, 400: str, 403: str, 404: str, 409: str}
        yield Endpoint("POST", f"{root}/options", summary, changed, handler=self._update, body_type=file, access=write)
        summary = "Change its queue or its priority."
        yield Endpoint("POST", f"{root}/move", summary, changed, handler=self._move, body_type=file, access=write)
        yield Endpoint(
            "POST", f"{root}/cancel", "Cancel it.", {202: job, 403: str, 404: str}, handler=self._cancel, access=write
        )
        for method in ("GET", "POST"):
            for path in (f"{root}/", f"{root}/{{rest:path}}"):
                yield Endpoint(method, path, "API of the job.", {404: str, 409: str}, handler=self._no_scheduler)
        yield from (row for row in (*sdk_routes(), *service_routes()) if row.path.startswith(_SHARED))
        healthy = {200: bodies.HealthBody, _WITHOUT_MESOS: bodies.HealthBody}
        yield Endpoint("GET", "/v1/health", "Health.", healthy, handler=self._health, access=EndpointAccess.OPEN)
        for method in ("GET", "POST"):
            yield Endpoint(method, "/v1/{rest:path}", "Only jobs have it.", {404: str}, handler=self._only_jobs)

    # --- answers

    async def _show(self, _request: ApiRequest) -> ApiAnswer:
        queue = self._queue
        jobs = tuple(queue.store.jobs.values())
        unfinished = [job for job in jobs if not job.state.has_ended]
        last = nlargest(_ENDED, (job for job in jobs if job.state.has_ended), key=lambda job: job.since)
        body = queue_body(queue.name, unfinished, queue.options.queues, queue.view, queue.used_seconds())
        options = {"order": queue.options.order.value, "preemption": queue.options.preemption.value}
        return View({**body, **options, "identities": self._identities(), "ended": [self._body(job) for job in last]})

    async def _list(self, _request: ApiRequest) -> ApiAnswer:
        jobs = sorted(self._queue.store.jobs.values(), key=lambda job: -job.submitted)
        positions = self._queue.view.positions()
        return View({"jobs": [self._body(job, positions.get(job.id)) for job in jobs]})

    async def _job(self, request: ApiRequest) -> ApiAnswer:
        job = self._queue.job(JobId(request.params["job"]))
        return View(self._body(job, self._queue.view.positions().get(job.id)))

    async def _submit(self, request: ApiRequest) -> ApiAnswer:
        is_operator = request.principal.is_operator
        submit = partial(self._queue.submit, _body(request), _user(request), is_operator=is_operator)
        job, is_new = await asyncio.to_thread(submit)
        return View(self._body(job), 201 if is_new else 200)

    async def _options(self, request: ApiRequest) -> ApiAnswer:
        job = self._own(request)
        return View(self._queue.masked_file(job.id))

    async def _update(self, request: ApiRequest) -> ApiAnswer:
        job = self._own(request)
        return View(self._body(await asyncio.to_thread(self._queue.update, job.id, _body(request), job.owner)))

    async def _move(self, request: ApiRequest) -> ApiAnswer:
        job, body = self._own(request), _body(request)
        if unknown := body.keys() - {"queue", "priority"}:
            raise BadRequestError(f"unknown member {sorted(unknown)[0]}: expected queue, priority")
        queue, priority = body.get("queue"), body.get("priority")
        if queue is not None and not isinstance(queue, str):
            raise BadRequestError("queue: must be text")
        is_number = isinstance(priority, int) and not isinstance(priority, bool)
        if priority is not None and not (is_number and 0 <= priority <= bodies.MAX_PRIORITY):
            raise BadRequestError(f"priority: must be a whole number from 0 to {bodies.MAX_PRIORITY}")
        return View(self._body(await asyncio.to_thread(self._queue.move, job.id, queue, priority)))

    async def _cancel(self, request: ApiRequest) -> ApiAnswer:
        job = self._own(request)
        return View(self._body(await asyncio.to_thread(self._queue.cancel, job.id, _user(request))), 202)

    async def _no_scheduler(self, request: ApiRequest) -> ApiAnswer:
        """Answer a request for the API of a job without a scheduler."""
        try:
            await asyncio.to_thread(self._queue.run_of, JobId(request.params["job"]))
        except QueueError as error:
            return ApiProblem(error.http_status, str(error), kind=error.kind)
        raise QueueError("unknown path of a job", 404)  # or its scheduler has started meanwhile

    async def _only_jobs(self, _request: ApiRequest) -> ApiAnswer:
        name = self._queue.name
        raise QueueError(f"{name} is a queue of jobs: name one of them, such as {name}/JOB; `queue` lists them", 404)

    def _preview(self, update: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the effects of an update: running jobs keep their tasks."""
        options, spec = self._queue.settings.options, self._queue.settings.spec
        assert options is not None, "a queue service has options"
        return {**options.preview(update, SchedulerState(spec)), "restarted": [], "added": [], "removed": []}

    async def _health(self, _request: ApiRequest) -> ApiAnswer:
        problem = self._queue.view.problem
        code = _WITHOUT_MESOS if problem and not self._queue.settings.uninstalling else 200
        return View({"value": code, "reasons": [problem or "accepts jobs", *self._queue.settings.weaknesses]}, code)

    def _own(self, request: ApiRequest) -> Job:
        """Return the job of a request that only its owner and the operator may send."""
        job = self._queue.job(JobId(request.params["job"]))
        if not request.principal.owns(job.owner):
            raise QueueError(f"job {job.id} belongs to {job.owner}; you are {_user(request)}", 403, "forbidden")
        return job

    def _body(self, job: Job, position: int | None = None) -> Mapping[str, Any]:
        return job_body(self._queue.name, job, self._queue.view, position)

    def _identities(self) -> str:
        """Return who the owners are."""
        policy = self._queue.settings.access.policy
        if policy.users or policy.client_certificates:
            return "each user has a token or a certificate (api.users, api.client_ca_file)"
        if policy.is_restricted:
            return "one shared token: all jobs have the same owner; to tell users apart, set api.users"
        return "requests have no identity: all jobs have the same owner; to tell users apart, set api.users"


def _user(request: ApiRequest) -> str:
    """Return who sends a request: a user, or the operator, whatever name a login has."""
    return OPERATOR if request.principal.is_operator else request.principal.name


def _body(request: ApiRequest) -> Mapping[str, Any]:
    if not isinstance(request.body, dict):
        raise BadRequestError("invalid body: expected a JSON object")
    return request.body
