"""Endpoints of the DC/OS SDK: its paths, keys and codes (dcos-commons, http/endpoints/*)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tf_scheduler.api.http.backend import Backend, Command, SchedulerTimeoutError
from tf_scheduler.api.http.endpoint import (
    ApiRequest,
    AsyncHandler,
    Endpoint,
    EndpointAccess,
    PureHandler,
    QueryParameter,
)
from tf_scheduler.api.views import configurations, debug, plans, pods, service
from tf_scheduler.api.views.base import ApiAnswer, ApiProblem, View
from tf_scheduler.api.views.plans import command
from tf_scheduler.api.views.pods import pod_not_found
from tf_scheduler.api.views.types import (
    EndpointBody,
    HealthBody,
    LaunchBody,
    MessageBody,
    OffersBody,
    PlanBody,
    PodBody,
    PodCommandBody,
    PodsBody,
)
from tf_scheduler.model.events import PodCommand
from tf_scheduler.model.ids import TaskName
from tf_scheduler.model.plan import SERVICE_ENDED, Verb
from tf_scheduler.model.plan import Answer as LoopAnswer
from tf_scheduler.model.task import PodVerb

#: Responses of all commands.
COMMAND_RESPONSES: dict[int, Any] = {200: MessageBody, 208: str, 400: str, 404: str, 409: str, 503: str}


def plan_command_handler(backend: Backend, verb: Verb) -> AsyncHandler:
    """Return the handler of a command to a plan."""

    async def handle(request: ApiRequest) -> ApiAnswer:
        parameters = {} if request.body is None else request.body
        problem = _empty_parameter(request.params) or _invalid_parameters(parameters)
        if problem is not None:
            return problem
        return await run_command(backend, command(request.snapshot, verb, request.params, parameters))

    return handle


def _empty_parameter(params: Mapping[str, Any]) -> ApiProblem | None:
    """Reject empty names: a script with an unset variable must not command the whole plan."""
    for name in ("phase", "step"):
        if params.get(name) == "":
            return ApiProblem(400, f"{name}: empty; give a name, or omit the parameter for all")
    return None


def _invalid_parameters(parameters: object) -> ApiProblem | None:
    if not isinstance(parameters, dict):
        return ApiProblem(400, "Couldn't parse parameters: expected a JSON object of strings")
    for name, value in parameters.items():
        if not isinstance(value, str):
            return ApiProblem(400, f"Couldn't parse parameters: {name}: expected a string")
        if "\0" in value:
            return ApiProblem(400, f"Couldn't parse parameters: {name}: NUL character not allowed")
    return None


async def run_command(backend: Backend, event: Command) -> ApiAnswer:
    """Send a command to the loop and return its answer with the SDK's status."""
    try:
        answer = await backend.ask(event)
    except SchedulerTimeoutError as error:
        return ApiProblem(503, str(error))
    return _to_api_answer(SERVICE_ENDED if answer is None else answer)


def _to_api_answer(answer: LoopAnswer) -> ApiAnswer:
    code = int(answer.reply.value)
    if code == 200:
        body: MessageBody = {"message": answer.message}
        return View(body)
    return ApiProblem(code, answer.message)


_PHASE = QueryParameter("phase", "Name or id of a phase of the plan.")
_STEP = QueryParameter("step", "Name or id of a step of the phase.")
_HEALTH_CODES = (200, 202, 203, 207, 208, 318, 319, 320, 321, 500)
_PLAN_CODES = (200, 202, 417)
#: Summaries of the commands to plans.
_VERBS = {
    Verb.START: "Start or resume the plan, with parameters; a complete plan starts again.",
    Verb.STOP: "Interrupt the plan; the next start begins at its first step.",
    Verb.CONTINUE: "Resume after an interrupt, or start the next canary step.",
    Verb.INTERRUPT: "Stop starting new steps; running steps continue.",
    Verb.FORCE_COMPLETE: "Mark as complete regardless of the state.",
    Verb.RESTART: "Restart from the first step; its tasks are launched again.",
}
#: Commands of the deprecated /v1/plan.
_OLD_VERBS = (Verb.CONTINUE, Verb.INTERRUPT, Verb.FORCE_COMPLETE, Verb.RESTART)
_FILTER = (
    QueryParameter("plan", "Only this plan."),
    QueryParameter("phase", "Only this phase of the plan."),
    QueryParameter("step", "Only this step of the phase."),
)


def _get(
    path: str,
    summary: str,
    view: PureHandler,
    body: Any,
    *missing: int,
    query: tuple[QueryParameter, ...] = (),
    ids: bool = False,
) -> Endpoint:
    """Return a GET endpoint; `ids`: its path parameter `id` is a UUID."""
    bodies, formats = {200: body, **dict.fromkeys(missing, str)}, {"id": "uuid"} if ids else {}
    return Endpoint("GET", path, summary, bodies, view, query=query, path_formats=formats)


def sdk_routes() -> Iterator[Endpoint]:
    """Return the read-only endpoints."""
    yield _get("/v1/plans", "Names of the plans.", plans.names, list[str])
    for path, missing in (("/v1/plan", ()), ("/v1/plans/{plan}", (404,))):
        bodies = {**dict.fromkeys(_PLAN_CODES, PlanBody), **dict.fromkeys(missing, str)}
        yield Endpoint("GET", path, "Plan: status 200 complete, 202 in progress, 417 error.", bodies, plans.plan)
    yield from _pods()
    yield _get("/v1/endpoints", "Names of the jobs that have addresses.", service.endpoint_names, list[str])
    yield _get("/v1/endpoints/{name}", "Addresses of the tasks of a job.", service.endpoint, EndpointBody, 404)
    yield from _configurations()
    yield from _state()
    verbose = (QueryParameter("verbose", "Include the reason.", bool, False),)
    healths: dict[int, Any] = {**dict.fromkeys(_HEALTH_CODES, HealthBody), 204: None, 205: None}
    summary = "Health of the service; the HTTP status is the value."
    yield Endpoint("GET", "/v1/health", summary, healths, service.health, query=verbose, access=EndpointAccess.OPEN)
    yield from _debug()


def _pods() -> Iterator[Endpoint]:
    yield _get("/v1/pod", "Names of the launched pods.", pods.names, list[str])
    yield _get("/v1/pod/status", "State of all tasks.", pods.statuses, PodsBody)
    yield _get("/v1/pod/{pod}/status", "State of a task.", pods.status, PodBody, 404)
    yield _get("/v1/pod/{pod}/info", "TaskInfo and TaskStatus of a task.", pods.info, list[LaunchBody], 404)


def _configurations() -> Iterator[Endpoint]:
    root = "/v1/configurations"
    yield _get(root, "Ids of the configurations, newest first.", configurations.ids, list[str])
    yield _get(f"{root}/targetId", "Id of the target configuration.", configurations.target_ids, list[str])
    yield _get(f"{root}/target", "Target configuration, secrets masked.", configurations.target, dict[str, Any])
    yield _get(f"{root}/{{id}}", "A configuration.", configurations.configuration, dict[str, Any], 400, 404, ids=True)


def _state() -> Iterator[Endpoint]:
    root = "/v1/state"
    yield _get(f"{root}/frameworkId", "List with the framework id.", service.framework_id, list[str])
    yield _get(f"{root}/zone/tasks", "Zone of each task.", service.zones, dict[str, str])
    yield _get(f"{root}/zone/tasks/{{task}}", "Zone of a task.", service.zone_of_task, str, 404)
    yield _get(f"{root}/zone/{{job}}/{{ip}}", "Zone of the task at an address.", service.zone_of_address, str, 404)
    summary = "Not supported: the scheduler has no cache to refresh."
    yield Endpoint("PUT", f"{root}/refresh", summary, {409: str}, service.refresh, access=EndpointAccess.WRITE)


def _debug() -> Iterator[Endpoint]:
    for version in ("v2", "v1"):
        yield _get(f"/{version}/debug/offers", "Recent offer evaluations, with reasons.", debug.offers, OffersBody)
    yield _get("/v1/debug/plans", "Plans, filtered.", debug.plans, dict[str, Any], query=_FILTER)
    for name in ("statuses", "taskStatuses"):
        yield _get(f"/v1/debug/{name}", "Mesos state of each step's task.", debug.statuses, list[dict[str, Any]])
    yield _get("/v1/debug/reservations", "Reservation ids by agent.", debug.reservations, dict[str, list[str]])
    yield Endpoint("GET", "/v1/debug/threads", "Stack trace of each thread.", {200: str}, handler=debug.threads)


def plan_commands(backend: Backend) -> Iterator[Endpoint]:
    """Return the commands to plans."""
    for verb, summary in _VERBS.items():
        takes = dict[str, str] if verb is Verb.START else None
        query = () if verb in (Verb.START, Verb.STOP) else (_PHASE, _STEP)
        for path in (f"/v1/plans/{{plan}}/{verb.value}", *([f"/v1/plan/{verb.value}"] if verb in _OLD_VERBS else [])):
            handler = plan_command_handler(backend, verb)
            yield Endpoint(
                "POST",
                path,
                summary,
                COMMAND_RESPONSES,
                handler=handler,
                query=query,
                body_type=takes,
                access=EndpointAccess.WRITE,
            )


_POD_VERBS = {
    PodVerb.RESTART: "Restart the task, at its previous address if possible.",
    PodVerb.REPLACE: "Release the task's resources and launch it elsewhere.",
    PodVerb.PAUSE: "Stop the task's program, keep its resources.",
    PodVerb.RESUME: "Resume a paused task.",
}


def pod_commands(backend: Backend) -> Iterator[Endpoint]:
    """Return the commands to pods; the optional body is a list of tasks (dcos-commons, PodResource)."""
    for verb, summary in _POD_VERBS.items():
        path, handler = f"/v1/pod/{{pod}}/{verb.value}", _pod_command_handler(backend, verb)
        bodies = {**COMMAND_RESPONSES, 200: PodCommandBody}
        yield Endpoint(
            "POST",
            path,
            summary,
            bodies,
            handler=handler,
            body_type=list[str],
            body_optional=True,
            access=EndpointAccess.WRITE,
        )


def _pod_command_handler(backend: Backend, verb: PodVerb) -> AsyncHandler:
    """Return the handler of a command; a pod is one task, so a list of tasks can only name that task."""

    async def handle(request: ApiRequest) -> ApiAnswer:
        name = request.params["pod"]
        if request.body is not None and not _names_only(request.body, name):
            return ApiProblem(400, f"invalid body: expected a JSON list of tasks; the pod has one task: {name}")
        answer = await run_command(backend, PodCommand(verb, TaskName(name)))
        if isinstance(answer, ApiProblem):
            return pod_not_found(name) if answer.code == 404 else answer
        body: PodCommandBody = {"pod": name, "tasks": [name]}
        return View(body)

    return handle


def _names_only(body: object, name: str) -> bool:
    return isinstance(body, list) and all(item == name for item in body)
