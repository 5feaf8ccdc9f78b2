"""Answers of Mesos, extended by Marathon as a framework with its tasks."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mesos_local.cluster import LocalCluster
from mesos_local.host import MesosLocalError

from .marathon import Marathon
from .marathon_api import AGENT, state_of
from .supervisor import Snapshot
from .task import HOST

Json = Any
TIMEOUT = 30.0  # seconds
MARATHON = "marathon"
_FAILED = "TASK_FAILED"
_RESOURCES = ("cpus", "mem", "disk", "gpus")
#: Headers that belong to one connection, or that the server writes itself.
_HOP = ("connection", "keep-alive", "transfer-encoding", "content-length", "host", "date", "server", "accept-encoding")


NO_HEADERS: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class Answer:
    """One HTTP answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def forward(address: str, method: str, path: str, headers: Mapping[str, str] = NO_HEADERS, body: bytes = b"") -> Answer:
    """Forward the request to "IP:PORT"; 502 if it does not answer."""
    connection = http.client.HTTPConnection(address, timeout=TIMEOUT)
    try:
        connection.request(method, path, body or None, end_to_end(headers))
        answer = connection.getresponse()
        return Answer(answer.status, end_to_end(dict(answer.getheaders())), answer.read())
    except (OSError, http.client.HTTPException) as error:
        return Answer(502, {"content-type": "text/plain"}, f"{address} does not answer: {error}".encode())
    finally:
        connection.close()


def end_to_end(headers: Mapping[str, str]) -> dict[str, str]:
    """End-to-end headers, with names in lower case."""
    return {name.lower(): text for name, text in headers.items() if name.lower() not in _HOP}


@dataclass(frozen=True, slots=True)
class Mesos:
    cluster: LocalCluster
    marathon: Marathon

    def answer(self, method: str, path: str, query: str, headers: Mapping[str, str], body: bytes) -> Answer:
        """`path` below /mesos; also old names ending in `.json`, which Mesos dropped."""
        name = path.removesuffix(".json")
        asked = f"{name}?{query}" if query else name
        answer = forward(self.cluster.master.address, method, asked, headers, body)
        if answer.status != http.client.OK or name.rpartition("/")[2] not in ("state", "state-summary"):
            return answer
        state = self.with_marathon(json.loads(answer.body))
        return Answer(200, {"content-type": "application/json"}, json.dumps(state).encode())

    def with_marathon(self, state: Json) -> Json:
        """The master's state, with a framework and an agent for what Marathon runs."""
        marathon = _framework(list(self.marathon.snapshots().values()), [task for task, _ in self.marathon_tasks()])
        return {
            **state,
            # `dcos node` finds the leading master by its address.
            "hostname": HOST,
            "frameworks": [*state.get("frameworks", ()), marathon],
            "slaves": [*state.get("slaves", ()), _agent()],
        }

    def sandbox(self, task_id: str) -> Path | None:
        """Sandbox of a task of Marathon or of the cluster, or None."""
        for task, sandbox in self.marathon_tasks():
            if task["id"] == task_id:
                return sandbox
        tasks = _tasks(self._state())
        return next((path for task in tasks if task["id"] == task_id and (path := self._sandbox(task))), None)

    def marathon_tasks(self) -> Iterator[tuple[dict[str, Json], Path]]:
        """Marathon's tasks and the last failed one of each app, with their sandboxes."""
        for shown in self.marathon.snapshots().values():
            if shown.task is not None:
                yield _task(shown, shown.task.place.task_id, state_of(shown.task)), shown.task.place.sandbox
            if shown.last_failure is not None:
                place = shown.last_failure.place
                yield _task(shown, place.task_id, _FAILED), place.sandbox

    def agents(self) -> dict[str, str]:
        """Agent id -> "IP:PORT"."""
        return {agent["id"]: agent["pid"].partition("@")[2] for agent in self._state().get("slaves", ())}

    def _state(self) -> Json:
        answer = forward(self.cluster.master.address, "GET", "/master/state")
        return json.loads(answer.body) if answer.status == http.client.OK else {}

    def _sandbox(self, task: Mapping[str, Json]) -> Path | None:
        executor = task.get("executor_id") or task["id"]
        try:
            return self.cluster.sandbox(task["slave_id"], task["framework_id"], executor)
        except MesosLocalError:
            return None


def _tasks(state: Mapping[str, Json]) -> Iterator[Mapping[str, Json]]:
    kinds = ("tasks", "completed_tasks", "unreachable_tasks")
    for framework in (*state.get("frameworks", ()), *state.get("completed_frameworks", ())):
        for kind in kinds:
            yield from framework.get(kind, ())


def _framework(shown: list[Snapshot], tasks: list[dict[str, Json]]) -> dict[str, Json]:
    used = {name: sum(found.app.definition[name] for found in shown if found.task) for name in _RESOURCES}
    return {
        "id": MARATHON,
        "name": MARATHON,
        "hostname": HOST,
        "webui_url": "",
        "user": "root",
        "active": True,
        "connected": True,
        "checkpoint": True,
        "role": "*",
        "resources": used,
        "used_resources": used,
        "tasks": [task for task in tasks if task["state"] != _FAILED],
        "completed_tasks": [task for task in tasks if task["state"] == _FAILED],
        "unreachable_tasks": [],
        "executors": [],
        "completed_executors": [],
    }


def _task(shown: Snapshot, task_id: str, state: str) -> dict[str, Json]:
    return {
        "id": task_id,
        "name": shown.app.id.strip("/").replace("/", "."),
        "framework_id": MARATHON,
        "executor_id": "",
        "slave_id": AGENT,
        "state": state,
        "resources": {name: shown.app.definition[name] for name in _RESOURCES},
        "statuses": [],
        "labels": [],
    }


def _agent() -> dict[str, Json]:
    return {
        "id": AGENT,
        "hostname": HOST,
        "pid": f"slave(1)@{HOST}:0",
        "active": True,
        "resources": {},
        "attributes": {},
    }
