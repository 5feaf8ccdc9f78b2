"""Endpoints of the DC/OS SDK (dcos-commons, http/endpoints/*)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from tf_executor.contract import bodies
from tf_scheduler.api.http import openapi
from tf_scheduler.api.http.backend import Command
from tf_scheduler.api.http.endpoint import (
    ApiRequest,
    AsyncHandler,
    BadRequestError,
    Endpoint,
    EndpointAccess,
    PureHandler,
    QueryParameter,
)
from tf_scheduler.api.views import configurations, debug, plans, pods, service
from tf_scheduler.api.views.base import ApiAnswer, ApiProblem, View
from tf_scheduler.model.events import AcknowledgeExposures, PodCommand, ReloadSecrets, ScaleRequested
from tf_scheduler.model.ids import TaskName
from tf_scheduler.model.plan import SERVICE_ENDED, Verb
from tf_scheduler.model.task import PodVerb

_PHASE = QueryParameter("phase", "Name or id of a phase of the plan.", minimum=1)
_STEP = QueryParameter("step", "Name or id of a step of the phase.", minimum=1, requires="phase")
_HEALTH_CODES = (200, 202, 203, 207, 208, 317, 318, 319, 320, 321, 500)
_PLAN_CODES = (200, 202, 417)
#: Summaries of the commands to plans.
_VERBS = {
    Verb.START: "Start or resume the plan, with parameters; a complete plan starts again.",
    Verb.STOP: "Interrupt the plan; a later start begins at the first step.",
    Verb.CONTINUE: "Resume after an interrupt, or start the next canary step.",
    Verb.INTERRUPT: "Stop starting new steps; running steps continue.",
    Verb.FORCE_COMPLETE: "Mark as complete regardless of the state.",
    Verb.RESTART: "Restart from the first step; launch the tasks again.",
}
#: Commands of the deprecated /v1/plan.
_OLD_VERBS = (Verb.CONTINUE, Verb.INTERRUPT, Verb.FORCE_COMPLETE, Verb.RESTART)
_POD_VERBS = {
    PodVerb.RESTART: "Restart the task, at its previous address if possible.",
    PodVerb.REPLACE: "Release the task's resources and launch it elsewhere.",
    PodVerb.PAUSE: "Stop the task's program, keep its resources.",
    PodVerb.RESUME: "Resume a paused task.",
}
_FILTER = (
    QueryParameter("plan", "Only this plan."),
    QueryParameter("phase", "Only this phase of the plan."),
    QueryParameter("step", "Only this step of the phase."),
)
_VERBOSE = (QueryParameter("verbose", "Include the reason.", bool, False),)


#: Paths that the SDK lacks: their errors are JSON.
_OWN_PATHS = ("/v1/tf/", "/v1/debug/mesos")


def sdk_routes() -> Iterator[Endpoint]:
    """Return the endpoints, with plain text errors as in the SDK."""
    for row in (*_plans_and_pods(), *_configurations(), *_state(), *_health(), *_debug(), *_commands()):
        yield replace(row, text_errors=not row.path.startswith(_OWN_PATHS))


def _plans_and_pods() -> Iterator[Endpoint]:
    yield _get("/v1/plans", "Names of the plans.", plans.names, list[str], links=_first("/v1/plans/{plan}"))
    for path, missing in (("/v1/plan", {}), ("/v1/plans/{plan}", {404: str})):
        responses = {**dict.fromkeys(_PLAN_CODES, bodies.PlanBody), **missing}
        yield Endpoint("GET", path, "Plan: status 200 complete, 202 in progress, 417 error.", responses, plans.plan)
    yield _get("/v1/pod", "Names of the launched pods.", pods.names, list[str], links=_first("/v1/pod/{pod}"))
    yield _get("/v1/pod/status", "State of all tasks.", pods.statuses, bodies.PodsBody)
    yield _get("/v1/pod/{pod}/status", "State of a task.", pods.status, bodies.PodBody, 404)
    yield _get("/v1/pod/{pod}/info", "TaskInfo and TaskStatus of a task.", pods.info, list[bodies.LaunchBody], 404)
    links, summary = _first("/v1/endpoints/{name}"), "Names of the jobs that have addresses."
    yield _get("/v1/endpoints", summary, service.endpoint_names, list[str], links=links)
    yield _get("/v1/endpoints/{name}", "Addresses of the tasks of a job.", service.endpoint, bodies.EndpointBody, 404)


def _health() -> Iterator[Endpoint]:
    healths: dict[int, Any] = {**dict.fromkeys(_HEALTH_CODES, bodies.HealthBody), 204: None, 205: None}
    summary = "Health of the service; the HTTP status is the value."
    yield Endpoint("GET", "/v1/health", summary, healths, service.health, query=_VERBOSE, access=EndpointAccess.OPEN)


def _get(path: str, summary: str, view: PureHandler, body: Any, *errors: int, **more: Any) -> Endpoint:
    return Endpoint("GET", path, summary, {200: body, **dict.fromkeys(errors, str)}, view, **more)


def _first(path: str) -> dict[str, dict[str, str]]:
    """Return the OpenAPI links from a list of names to endpoints of its first name."""
    return {path: {path[path.rindex("{") + 1 : -1]: "/0"}}


def _configurations() -> Iterator[Endpoint]:
    root, ids = "/v1/configurations", {"id": {"format": "uuid"}}
    links, summary = _first(f"{root}/{{id}}"), "Ids of the configurations, newest first."
    yield _get(root, summary, configurations.ids, list[str], links=links)
    yield _get(f"{root}/targetId", "Id of the target configuration.", configurations.target_ids, list[str])
    yield _get(f"{root}/target", "Target configuration, secrets masked.", configurations.target, dict[str, Any])
    view, body = configurations.configuration, dict[str, Any]
    yield _get(f"{root}/{{id}}", "A configuration.", view, body, 400, 404, path_schemas=ids)


def _state() -> Iterator[Endpoint]:
    root = "/v1/state"
    yield _get(f"{root}/frameworkId", "List with the framework id.", service.framework_id, list[str])
    yield _get(f"{root}/zone/tasks", "Zone of each task.", service.zones, dict[str, str])
    yield _get(f"{root}/zone/tasks/{{task}}", "Zone of a task.", service.zone_of_task, str, 404)
    path, example = f"{root}/zone/{{job}}/{{ip}}", {"job": {"examples": ["worker"]}, "ip": {"examples": ["127.0.0.1"]}}
    yield _get(path, "Zone of the task at an address.", service.zone_of_address, str, 404, path_schemas=example)
    # `state refresh_cache` of the SDK's command line asks for it.
    summary = "Not supported: the scheduler has no cache to refresh."
    yield Endpoint("PUT", f"{root}/refresh", summary, {409: str}, service.refresh, access=EndpointAccess.WRITE)


def _debug() -> Iterator[Endpoint]:
    for version in ("v2", "v1"):
        yield _get(
            f"/{version}/debug/offers", "Recent offer evaluations, with reasons.", debug.offers, bodies.OffersBody
        )
    yield _get("/v1/debug/plans", "Plans, filtered.", debug.plans, dict[str, Any], query=_FILTER)
    for name in ("statuses", "taskStatuses"):
        yield _get(f"/v1/debug/{name}", "Mesos state of each step's task.", debug.statuses, list[dict[str, Any]])
    yield _get("/v1/debug/mesos", "Problems between the scheduler and Mesos.", debug.mesos, bodies.MesosBody)
    yield Endpoint("GET", "/v1/debug/threads", "Stack trace of each thread.", {200: str}, handler=debug.threads)


def _commands() -> Iterator[Endpoint]:
    for verb, summary in _VERBS.items():
        handler, body = partial(_plan_command, verb), openapi.Variables if verb is Verb.START else None
        query = () if verb in (Verb.START, Verb.STOP) else (_PHASE, _STEP)
        for path in ("/v1/plans/{plan}", "/v1/plan") if verb in _OLD_VERBS else ("/v1/plans/{plan}",):
            yield _post(f"{path}/{verb.value}", summary, handler, query=query, body_type=body)
    for pod_verb, summary in _POD_VERBS.items():
        path, handler = f"/v1/pod/{{pod}}/{pod_verb.value}", partial(_pod_command, pod_verb)
        yield _post(path, summary, handler, bodies.PodCommandBody, body_type=openapi.TaskNames, body_optional=True)
    summary = "Change the number of workers, from worker.elastic.min to max."
    yield _post("/v1/tf/scale", summary, _scale, body_type=openapi.Scale)
    summary = "Send the current values of secrets with `reload` to running programs."
    yield _post("/v1/tf/secrets/refresh", summary, _reload_secrets)
    summary = "Acknowledge that another process may have taken secrets."
    yield _post("/v1/tf/secrets/acknowledge", summary, _acknowledge_exposures)


def _post(path: str, summary: str, handler: AsyncHandler, body: Any = bodies.MessageBody, **more: Any) -> Endpoint:
    responses = {200: body, **dict.fromkeys((208, 400, 404, 409, 503), str)}
    return Endpoint("POST", path, summary, responses, handler=handler, access=EndpointAccess.WRITE, **more)


async def _plan_command(verb: Verb, request: ApiRequest) -> ApiAnswer:
    parameters = {} if request.body is None else request.body
    _check_parameters(parameters)
    return await _run(request, plans.command(request.snapshot, verb, request.params, parameters))


def _check_parameters(parameters: object) -> None:
    """Raise BadRequestError unless `parameters` is an object of strings without NUL."""
    if not isinstance(parameters, dict):
        raise BadRequestError("Couldn't parse parameters: expected a JSON object of strings")
    for name, value in parameters.items():
        if not isinstance(value, str):
            raise BadRequestError(f"Couldn't parse parameters: {name}: expected a string")
        if "\0" in value:
            raise BadRequestError(f"Couldn't parse parameters: {name}: NUL character not allowed")


async def _pod_command(verb: PodVerb, request: ApiRequest) -> ApiAnswer:
    """Run a command on a pod (PodResource). The body may list only the pod's task."""
    name, tasks = request.params["pod"], request.body
    if not _is_task_list([] if tasks is None else tasks):
        raise BadRequestError(f"invalid body: expected a JSON list of tasks; the pod has one task: {name}")
    # As in the SDK (PodQueries), also for a task that the pod does not have.
    if tasks not in (None, [], [name]):
        return pods.pod_not_found(name)
    answer = await _run(request, PodCommand(verb, TaskName(name)))
    if answer.code == 404:
        return pods.pod_not_found(name)
    body: bodies.PodCommandBody = {"pod": name, "tasks": [name]}
    return answer if isinstance(answer, ApiProblem) else View(body)


def _is_task_list(body: object) -> bool:
    """Whether the body has the type `TaskNames`."""
    return isinstance(body, list) and len(body) <= 1 and all(isinstance(item, str) and item for item in body)


async def _scale(request: ApiRequest) -> ApiAnswer:
    body = request.body
    count = body.get("worker") if isinstance(body, dict) and len(body) == 1 else None
    # JSON has one type for numbers, and JSON Schema takes 2.0 for an integer.
    if isinstance(count, float) and count.is_integer():
        count = int(count)
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise BadRequestError('invalid body: expected {"worker": COUNT}, with a whole number of at least 1')
    return await _run(request, ScaleRequested(count))


async def _reload_secrets(request: ApiRequest) -> ApiAnswer:
    return await _run(request, ReloadSecrets())


async def _acknowledge_exposures(request: ApiRequest) -> ApiAnswer:
    return await _run(request, AcknowledgeExposures())


async def _run(request: ApiRequest, command: Command) -> ApiAnswer:
    """Send a command to the loop; return its answer. Raises SchedulerTimeoutError."""
    answer = await request.backend.ask(command) or SERVICE_ENDED
    body: bodies.MessageBody = {"message": answer.message}
    code = int(answer.reply.value)
    return View(body) if code == 200 else ApiProblem(code, answer.message)
