"""Rows of the DC/OS SDK's endpoints: its paths, keys and codes (dcos-commons, http/endpoints/*)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tf_scheduler.model.plan import Verb

from .backend import Backend
from .commanding import CODES, on_plan
from .endpoint import Access, Endpoint, Look, Query
from .shapes_sdk import EndpointBody, HealthBody, LaunchBody, OffersBody, PlanBody, PodBody, PodsBody
from .views import configurations, debug, endpoints, health, plans, pods, state

_PHASE = Query("phase", "Name or id of a phase of the plan.")
_STEP = Query("step", "Name or id of a step of that phase.")
_HEALTH_CODES = (200, 202, 203, 207, 208, 318, 319, 320, 321, 500)
_PLAN_CODES = (200, 202, 417)
#: Verb -> what the document says of it.
_VERBS = {
    Verb.START: "Go on, with parameters; from the beginning when it is complete.",
    Verb.STOP: "Interrupt, and from the beginning when it is continued.",
    Verb.CONTINUE: "Go on after an interrupt, or let the next canary go.",
    Verb.INTERRUPT: "Begin no further step.",
    Verb.FORCE_COMPLETE: "Count as complete, whatever it is.",
    Verb.RESTART: "From the beginning: its tasks are launched again.",
}
#: Those that the deprecated /v1/plan has.
_OLD_VERBS = (Verb.CONTINUE, Verb.INTERRUPT, Verb.FORCE_COMPLETE, Verb.RESTART)
_FILTER = (
    Query("plan", "Only this plan."),
    Query("phase", "Only this phase of it."),
    Query("step", "Only this step of that."),
)


def _get(
    path: str, what: str, look: Look, body: Any, *missing: int, query: tuple[Query, ...] = (), ids: bool = False
) -> Endpoint:
    """`ids`: its `{id}` is a UUID."""
    bodies, formats = {200: body, **dict.fromkeys(missing, str)}, {"id": "uuid"} if ids else {}
    return Endpoint("GET", path, what, bodies, look, query=query, formats=formats)


def sdk() -> Iterator[Endpoint]:
    """What only looks."""
    yield _get("/v1/plans", "Names of the plans.", plans.names, list[str])
    for path, missing in (("/v1/plan", ()), ("/v1/plans/{plan}", (404,))):
        bodies = {**dict.fromkeys(_PLAN_CODES, PlanBody), **dict.fromkeys(missing, str)}
        yield Endpoint("GET", path, "A plan: 200 complete, 202 under way, 417 in error.", bodies, plans.plan)
    yield from _pods()
    yield _get("/v1/endpoints", "Names of the jobs that have addresses.", endpoints.names, list[str])
    yield _get("/v1/endpoints/{name}", "Addresses of the tasks of a job.", endpoints.endpoint, EndpointBody, 404)
    yield from _configurations()
    yield from _state()
    verbose = (Query("verbose", "With the reason.", bool, False),)
    healths: dict[int, Any] = {**dict.fromkeys(_HEALTH_CODES, HealthBody), 204: None, 205: None}
    what = "How the service is; the status is the value."
    yield Endpoint("GET", "/v1/health", what, healths, health.health, query=verbose, access=Access.OPEN)
    yield from _debug()


def _pods() -> Iterator[Endpoint]:
    yield _get("/v1/pod", "Names of the pods: the tasks that were launched.", pods.names, list[str])
    yield _get("/v1/pod/status", "State of all tasks.", pods.statuses, PodsBody)
    yield _get("/v1/pod/{pod}/status", "State of a task.", pods.status, PodBody, 404)
    yield _get("/v1/pod/{pod}/info", "TaskInfo and TaskStatus of a task.", pods.info, list[LaunchBody], 404)


def _configurations() -> Iterator[Endpoint]:
    room = "/v1/configurations"
    yield _get(room, "Ids of the configurations, newest first.", configurations.ids, list[str])
    yield _get(f"{room}/targetId", "Id of the one in force.", configurations.target_ids, list[str])
    yield _get(f"{room}/target", "The one in force, secrets masked.", configurations.target, dict[str, Any])
    yield _get(f"{room}/{{id}}", "One by id.", configurations.configuration, dict[str, Any], 400, 404, ids=True)


def _state() -> Iterator[Endpoint]:
    room = "/v1/state"
    yield _get(f"{room}/frameworkId", "A list of one id, or none.", state.framework_id, list[str])
    yield _get(f"{room}/zone/tasks", "Task -> its zone.", state.zones, dict[str, str])
    yield _get(f"{room}/zone/tasks/{{task}}", "Zone of a task.", state.zone_of_task, str, 404)
    yield _get(f"{room}/zone/{{job}}/{{ip}}", "Zone of the task at an address.", state.zone_of_address, str, 404)
    what = "There is no cache to refresh."
    yield Endpoint("PUT", f"{room}/refresh", what, {409: str}, state.refresh, access=Access.WRITE)
    path = "/v1/artifacts/template/{id}/{pod}/{task}/{name}"
    yield _get(path, "A template of a configuration: no task has one.", state.template, str, 400, 404, ids=True)


def _debug() -> Iterator[Endpoint]:
    for version in ("v2", "v1"):
        yield _get(f"/{version}/debug/offers", "The last looks at offers, with reasons.", debug.offers, OffersBody)
    yield _get("/v1/debug/plans", "Plans, filtered.", debug.plans, dict[str, Any], query=_FILTER)
    for name in ("statuses", "taskStatuses"):
        yield _get(f"/v1/debug/{name}", "What Mesos says of each step's task.", debug.statuses, list[dict[str, Any]])
    yield _get("/v1/debug/reservations", "Agent -> ids of reservations.", debug.reservations, dict[str, list[str]])
    yield Endpoint("GET", "/v1/debug/threads", "What each thread does now.", {200: str}, act=debug.threads)


def commands(backend: Backend) -> Iterator[Endpoint]:
    """What operators want."""
    for verb, what in _VERBS.items():
        takes = dict[str, str] if verb is Verb.START else None
        query = () if verb in (Verb.START, Verb.STOP) else (_PHASE, _STEP)
        for path in (f"/v1/plans/{{plan}}/{verb.value}", *([f"/v1/plan/{verb.value}"] if verb in _OLD_VERBS else [])):
            act = on_plan(backend, verb)
            yield Endpoint("POST", path, what, CODES, act=act, query=query, takes=takes, access=Access.WRITE)
