"""Marathon's REST API (mesosphere/marathon, docs/docs/rest-api) for local apps."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

from tf_scheduler.api.http.endpoint import parse_body

from .errors import MarathonError
from .marathon import Marathon
from .supervisor import Failure, Snapshot
from .task import HOST, Task

Json = Any
#: Id of the agent that Marathon's tasks are shown on: they run on this machine, not on an agent of Mesos.
AGENT = "marathon-agent"


def app(shown: Snapshot, deployment: str | None, *, tasks: bool = False) -> dict[str, Json]:
    """One app, optionally with its task."""
    running = int(shown.task is not None and shown.task.process is not None)
    found = {
        **shown.app.definition,
        "tasksStaged": int(shown.task is not None) - running,
        "tasksRunning": running,
        "tasksHealthy": running if shown.healthy is True and shown.health else 0,
        "tasksUnhealthy": running if shown.healthy is False else 0,
        "deployments": [] if deployment is None else [{"id": deployment}],
        "versionInfo": {"lastConfigChangeAt": shown.app.version, "lastScalingAt": shown.app.version},
    }
    if shown.last_failure is not None:
        found["lastTaskFailure"] = _failure(shown, shown.last_failure)
    return {**found, "tasks": task_list(shown)} if tasks else found


def _failure(shown: Snapshot, failure: Failure) -> dict[str, Json]:
    return {
        "appId": shown.app.id,
        "host": HOST,
        "message": failure.message,
        "state": "TASK_FAILED",
        "taskId": failure.task_id,
        "timestamp": _time(failure.at),
        "version": failure.version,
        "slaveId": AGENT,
    }


def task_list(shown: Snapshot) -> list[dict[str, Json]]:
    """The present task of an app, if any."""
    return [] if shown.task is None else [_task(shown, shown.task)]


def _task(shown: Snapshot, task: Task) -> dict[str, Json]:
    return {
        "id": task.place.task_id,
        "appId": shown.app.id,
        "host": HOST,
        "ports": list(task.place.ports),
        "slaveId": AGENT,
        "state": state_of(task),
        "stagedAt": _time(task.started_at),
        "startedAt": _time(task.started_at),
        "version": shown.app.version,
        "healthCheckResults": [
            {"alive": check.alive, "consecutiveFailures": check.failures, "taskId": task.place.task_id}
            for check in shown.health
            if check.alive is not None
        ],
    }


def state_of(task: Task) -> str:
    """The Mesos state of a task."""
    return "TASK_STAGING" if task.process is None else "TASK_RUNNING"


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class MarathonApi:
    """Method, path below /v2 and body -> status and document. Raise MarathonError."""

    def __init__(self, marathon: Marathon) -> None:
        self._marathon = marathon

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, Json]:
        first, _, rest = path.strip("/").partition("/")
        if first == "apps":
            return self._collection(method, body) if not rest else self._one(method, rest, body)
        if method == "GET" and not rest and first in ("deployments", "queue", "tasks", "info"):
            return 200, getattr(self, f"_{first}")()
        raise MarathonError(404, "Not Found")

    def _collection(self, method: str, body: bytes) -> tuple[int, Json]:
        if method == "POST":
            created, deployment = self._marathon.create(_parsed(body))
            return 201, {**created.definition, "deployments": [{"id": deployment}]}
        if method == "GET":
            under_way = self._marathon.deployments()
            shown = self._marathon.snapshots().items()
            return 200, {"apps": [app(found, under_way.get(name)) for name, found in shown]}
        raise MarathonError(405, "Method Not Allowed")

    def _one(self, method: str, rest: str, body: bytes) -> tuple[int, Json]:
        if rest.endswith("/restart") and method == "POST":
            changed, deployment = self._marathon.restart(rest.removesuffix("/restart"))
            return 200, {"version": changed.version, "deploymentId": deployment}
        if rest.endswith("/tasks") and method == "GET":
            return 200, {"tasks": task_list(self._marathon.snapshot(rest.removesuffix("/tasks")))}
        shown = self._marathon.snapshot(rest)
        if method == "GET":
            return 200, {"app": app(shown, self._marathon.deployments().get(shown.app.id), tasks=True)}
        if method == "PUT":
            changed, deployment = self._marathon.replace(rest, {**shown.app.definition, **_parsed(body)})
            return 200, {"version": changed.version, "deploymentId": deployment}
        if method == "DELETE":
            return 200, {"version": shown.app.version, "deploymentId": self._marathon.delete(rest)}
        raise MarathonError(405, "Method Not Allowed")

    def _deployments(self) -> Json:
        shown = self._marathon.snapshots()
        return [
            {
                "id": deployment,
                "version": shown[name].app.version,
                "affectedApps": [name],
                "currentActions": [{"action": "StartApplication", "app": name}],
                "currentStep": 1,
                "totalSteps": 1,
                "steps": [],
            }
            for name, deployment in self._marathon.deployments().items()
        ]

    def _queue(self) -> Json:
        waiting = {name: shown for name, shown in self._marathon.snapshots().items() if shown.task is None}
        return {
            "queue": [
                {
                    "app": shown.app.definition,
                    "count": shown.app.definition["instances"],
                    "delay": {"overdue": shown.starts_at is None, "timeLeftSeconds": 0},
                    "since": shown.app.version,
                }
                for shown in waiting.values()
            ]
        }

    def _tasks(self) -> Json:
        return {"tasks": [task for shown in self._marathon.snapshots().values() for task in task_list(shown)]}

    def _info(self) -> Json:
        return {"name": "marathon", "version": "dcos-tensorflow local", "frameworkId": "marathon", "leader": HOST}


def _parsed(body: bytes) -> Mapping[str, Json]:
    try:
        found = parse_body(body)
    except ValueError as error:
        raise MarathonError(400, f"Invalid JSON: {error}") from error
    if not isinstance(found, dict):
        raise MarathonError(400, "Invalid JSON: an app is an object")
    return found
