"""Marathon's REST API (mesosphere/marathon, docs/docs/rest-api) for local apps.

The parts that are missing answer 501.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
        "taskId": failure.place.task_id,
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

    def answer(self, method: str, path: str, query: Mapping[str, str], body: bytes) -> tuple[int, Json]:
        first, _, rest = path.strip("/").partition("/")
        if first == "apps":
            return self._collection(method, body) if not rest else self._one(method, rest, query, body)
        if method == "GET" and first == "groups":
            return 200, self._group(rest)
        if method == "GET" and not rest and first in ("deployments", "queue", "tasks", "info", "plugins"):
            return 200, getattr(self, f"_{first}")()
        if (method, path.strip("/")) == ("POST", "tasks/delete"):
            return 200, self._kill(_parsed(body).get("ids") or (), is_scaled=query.get("scale") is not None)
        raise MarathonError(501, f"the local DC/OS does not have {method} /v2/{path}")

    def _collection(self, method: str, body: bytes) -> tuple[int, Json]:
        if method == "POST":
            created, deployment = self._marathon.create(_parsed(body))
            return 201, {**created.definition, "deployments": [{"id": deployment}]}
        if method == "GET":
            under_way = self._marathon.deployments()
            shown = self._marathon.snapshots().items()
            return 200, {"apps": [app(found, under_way.get(name)) for name, found in shown]}
        raise MarathonError(405, "Method Not Allowed")

    def _one(self, method: str, rest: str, query: Mapping[str, str], body: bytes) -> tuple[int, Json]:
        name, _, last = rest.partition("/tasks")
        if method == "DELETE" and rest != name:
            return 200, self._kill_tasks_of(name, last.strip("/") or None, query)
        if rest.endswith("/restart") and method == "POST":
            changed, deployment = self._marathon.restart(rest.removesuffix("/restart"))
            return 200, {"version": changed.version, "deploymentId": deployment}
        if rest.endswith("/tasks") and method == "GET":
            return 200, {"tasks": task_list(self._marathon.snapshot(rest.removesuffix("/tasks")))}
        name, separator, version = rest.partition("/versions")
        if separator and method == "GET":
            return 200, self._versions(name, version.strip("/"))
        shown = self._marathon.snapshot(rest)
        if method == "GET":
            return 200, {"app": app(shown, self._marathon.deployments().get(shown.app.id), tasks=True)}
        if method == "PUT":
            changed, deployment = self._marathon.replace(rest, {**shown.app.definition, **_parsed(body)})
            return 200, {"version": changed.version, "deploymentId": deployment}
        if method == "DELETE":
            return 200, {"version": shown.app.version, "deploymentId": self._marathon.delete(rest)}
        raise MarathonError(405, "Method Not Allowed")

    def _versions(self, name: str, version: str) -> Json:
        known = {old.version: old.definition for old in self._marathon.versions(name)}
        if not version:
            return {"versions": list(known)}
        if version not in known:
            raise MarathonError(404, f"App '/{name.strip('/')}' does not exist in version {version}")
        return known[version]

    def _group(self, path: str) -> Json:
        """The group at the path. Raise MarathonError 404 for a folder without apps."""
        name = f"/{path}".rstrip("/")
        shown = self._marathon.snapshots()
        below = [app_id.removeprefix(f"{name}/") for app_id in shown if app_id.startswith(f"{name}/")]
        if name and not below:
            raise MarathonError(404, f"Group '{name}' does not exist")
        apps = [shown[f"{name}/{rest}"] for rest in below if "/" not in rest]
        groups = dict.fromkeys(rest.partition("/")[0] for rest in below if "/" in rest)
        return {
            "id": name or "/",
            "apps": [app(found, None) for found in apps],
            "groups": [self._group(f"{path}/{group}".strip("/")) for group in groups],
            "dependencies": [],
            "pods": [],
            "version": max((found.app.version for found in shown.values()), default=_time(0)),
        }

    def _kill_tasks_of(self, name: str, task_id: str | None, query: Mapping[str, str]) -> Json:
        tasks = task_list(self._marathon.snapshot(name))
        if task_id is not None and task_id not in [task["id"] for task in tasks]:
            raise MarathonError(404, f"Task '{task_id}' does not exist")
        wanted = [task["id"] for task in tasks if query.get("host", HOST) == HOST]
        killed = self._kill(wanted, is_scaled="scale" in query)
        return {"task": killed["tasks"][0]} if task_id is not None and "tasks" in killed else killed

    def _kill(self, ids: Sequence[str], *, is_scaled: bool) -> Json:
        """The killed tasks, or the deployment that scales their apps down."""
        found = [
            shown for shown in self._marathon.snapshots().values() if shown.task and shown.task.place.task_id in ids
        ]
        killed = [task for shown in found for task in task_list(shown)]
        last: dict[str, Json] = {}
        for shown in found:
            if is_scaled:
                changed, deployment = self._marathon.replace(shown.app.id, {**shown.app.definition, "instances": 0})
                last = {"version": changed.version, "deploymentId": deployment}
            else:
                self._marathon.kill(shown.app.id)
        return last or {"tasks": killed}

    def _plugins(self) -> Json:
        return {"plugins": []}

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
