"""Minimal scheduler and executor over plain HTTP, to test the local Mesos cluster."""

from __future__ import annotations

import http.client
import json
from contextlib import closing
from typing import Any

Json = dict[str, Any]
_TIMEOUT = 60.0  # seconds without an event until the test fails


class HttpScheduler:
    """Scheduler that subscribes on construction; `close` tears its framework down."""

    def __init__(self, master: str, checkpoint: bool = True) -> None:
        self._master = master
        info = {"user": "root", "name": "test", "checkpoint": checkpoint, "failover_timeout": 60.0, "roles": ["*"]}
        info["capabilities"] = [{"type": "MULTI_ROLE"}, {"type": "PARTITION_AWARE"}]
        self._connection = http.client.HTTPConnection(master, timeout=_TIMEOUT)
        subscribe = {"type": "SUBSCRIBE", "subscribe": {"framework_info": info}}
        self._connection.request("POST", "/api/v1/scheduler", json.dumps(subscribe), _headers())
        self._stream = self._connection.getresponse()
        assert self._stream.status == 200, self._stream.read()
        self._stream_id = self._stream.headers["Mesos-Stream-Id"]
        self.framework_id = ""
        self.framework_id = self.next("SUBSCRIBED")["framework_id"]["value"]

    def next(self, kind: str) -> Json:
        """Return the next event of this kind; drop other events before it."""
        while True:
            event = json.loads(self._stream.read(int(self._stream.readline())))
            if event["type"] == kind:
                content: Json = event.get(kind.lower(), {})
                return content

    def next_state(self) -> str:
        """Return the state of the next status update, and acknowledge it."""
        status = self.next("UPDATE")["status"]
        if "uuid" in status:
            content = {"agent_id": status["agent_id"], "task_id": status["task_id"], "uuid": status["uuid"]}
            self.call("ACKNOWLEDGE", acknowledge=content)
        return str(status["state"])

    def await_state(self, wanted: str) -> None:
        """Wait for a state; fail the test if the task ends in another one."""
        while (state := self.next_state()) != wanted:
            assert state in ("TASK_STARTING", "TASK_RUNNING", "TASK_UNREACHABLE"), state

    def call(self, kind: str, **content: Any) -> None:
        body = {"type": kind, "framework_id": {"value": self.framework_id}, **content}
        with closing(http.client.HTTPConnection(self._master, timeout=_TIMEOUT)) as connection:
            headers = _headers() | {"Mesos-Stream-Id": self._stream_id}
            connection.request("POST", "/api/v1/scheduler", json.dumps(body), headers)
            response = connection.getresponse()
            assert response.status == 202, response.read()

    def launch(self, hostname: str, command: Json, task_id: str = "t1") -> str:
        """Launch on the agent with this hostname; return its agent id."""
        while True:
            for offer in self.next("OFFERS")["offers"]:
                if offer["hostname"] == hostname:
                    self._accept(offer, command, task_id)
                    return str(offer["agent_id"]["value"])

    def _accept(self, offer: Json, command: Json, task_id: str) -> None:
        resources = [
            {"name": name, "type": "SCALAR", "scalar": {"value": value}, "allocation_info": {"role": "*"}}
            for name, value in (("cpus", 0.1), ("mem", 32))
        ]
        executor = {"type": "CUSTOM", "executor_id": {"value": task_id}, "command": command, "resources": resources}
        task = {"name": task_id, "task_id": {"value": task_id}, "agent_id": offer["agent_id"], "resources": resources}
        launch = {"type": "LAUNCH", "launch": {"task_infos": [task | {"executor": executor}]}}
        self.call("ACCEPT", accept={"offer_ids": [offer["id"]], "operations": [launch], "filters": {}})

    def close(self) -> None:
        """Tear the framework down."""
        try:
            self.call("TEARDOWN")
        finally:
            self.drop()

    def drop(self) -> None:
        """Close the connection without a teardown."""
        self._stream.close()
        self._connection.close()


def _headers() -> dict[str, str]:
    return {"Content-Type": "application/json", "Accept": "application/json"}


# Minimal executor that needs Python only: subscribes at its agent, reports RUNNING, exits on SHUTDOWN.
EXECUTOR = r"""
import base64, http.client, json, os, sys, time, uuid
agent = os.environ["MESOS_AGENT_ENDPOINT"]
ids = {"framework_id": {"value": os.environ["MESOS_FRAMEWORK_ID"]},
       "executor_id": {"value": os.environ["MESOS_EXECUTOR_ID"]}}
token = os.environ.get("MESOS_EXECUTOR_AUTHENTICATION_TOKEN")
head = {"Content-Type": "application/json", "Accept": "application/json",
        **({"Authorization": f"Bearer {token}"} if token else {})}
def post(body):
    connection = http.client.HTTPConnection(agent)
    connection.request("POST", "/api/v1/executor", json.dumps({**ids, **body}), head)
    return connection.getresponse()
def update(task, state):
    status = {"task_id": task, "state": state, "source": "SOURCE_EXECUTOR", "timestamp": time.time(),
              "uuid": base64.b64encode(uuid.uuid4().bytes).decode()}
    post({"type": "UPDATE", "update": {"status": status}})
print("executor started", time.time(), flush=True)
while True:
    try:
        events = post({"type": "SUBSCRIBE", "subscribe": {"unacknowledged_tasks": [], "unacknowledged_updates": []}})
        while events.status == 200 and (size := events.readline()):
            event = json.loads(events.read(int(size)))
            if event["type"] == "LAUNCH":
                update(event["launch"]["task"]["task_id"], "TASK_RUNNING")
            elif event["type"] == "SHUTDOWN":
                sys.exit(0)
    except (OSError, http.client.HTTPException, ValueError):
        pass
    time.sleep(0.1)  # the agent is away: it may come back
"""
