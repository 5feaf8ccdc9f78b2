"""Test scheduler that launches the executor's bundle on a real Mesos, serially."""

from __future__ import annotations

import base64
import getpass
import json
import os
import queue
import shlex
import sys
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

from kit.payloads import a_payload
from kit.shared import SharedServers, repair_cluster, start_cluster
from kit.waiting import wait_until
from mesos_client.scheduler import SchedulerDriver
from mesos_local.agents import AgentSpec
from mesos_local.cluster import LocalCluster
from tf_executor.contract.payload import Payload
from tf_executor.contract.reports import Progress, decode_message
from wire.client import acknowledge

MARK = "TEST_MARK"
#: Seconds to wait for an event that must come; far more than it takes.
PATIENCE = 60.0
CPUS = 2.0


class TaskLauncher:
    """Launches one task after the other and acknowledges every update."""

    def __init__(self, cluster: LocalCluster, bundle: Path) -> None:
        self.cluster, self.bundle = cluster, bundle
        self.events: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self.offers: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        framework = {
            "user": getpass.getuser(),
            "name": "executor-test",
            "roles": ["*"],
            "checkpoint": True,
            "failover_timeout": 60.0,
            "capabilities": [{"type": "MULTI_ROLE"}, {"type": "TASK_KILLING_STATE"}],
        }
        self.driver = SchedulerDriver(
            framework, cluster.master.address, on_event=self._sort, on_state=lambda state: None
        )
        self.seen: set[str] = set()
        #: Messages of executors in the events read so far.
        self.messages: list[dict[str, Any]] = []
        self.driver.start()
        self.id = self.await_event("SUBSCRIBED")["framework_id"]

    def _sort(self, event: dict[str, Any]) -> None:
        """Queue offers apart from other events, so that no skipped offer is held forever."""
        for offer in event.get("offers", {}).get("offers", ()):
            self.offers.put(offer)
        self.events.put(event)

    def await_event(self, kind: str) -> dict[str, Any]:
        while True:
            event = self.events.get(timeout=PATIENCE)
            if event["type"] == "MESSAGE":
                self.messages.append(event["message"])
            if event["type"] == kind:
                body: dict[str, Any] = event[kind.lower()]
                return body

    def call(self, kind: str, **body: Any) -> None:
        result = self.driver.send({"type": kind, "framework_id": self.id, **({kind.lower(): body} if body else {})})
        assert result.ok, str(result)

    def say(self, name: str, message: bytes) -> None:
        """Send a message to the executor of a task."""
        data = base64.b64encode(message).decode()
        self.call("MESSAGE", agent_id={"value": self.agent_id}, executor_id={"value": name}, data=data)

    def launch(self, name: str, command: str, info: Mapping[str, Any] = MappingProxyType({}), **fields: Any) -> None:
        """Launch one task; `info` extends its TaskInfo, `fields` its payload or settings."""
        self.uris = [{"value": uri, "extract": False} for uri in fields.pop("uris", ())]
        self.executor_python = fields.pop("executor_python", sys.executable)
        self.executor_user = fields.pop("executor_user", "")
        environment = {MARK: name, **fields.pop("environment", {})}
        payload = a_payload(command, **fields, environment=environment)
        self.call("REVIVE")
        offer = self._whole_agent()
        self.agent_id = offer["agent_id"]["value"]
        task = {**self._task(name, offer["agent_id"], payload), **info}
        launch = {"type": "LAUNCH", "launch": {"task_infos": [task]}}
        self.call("ACCEPT", offer_ids=[offer["id"]], operations=[launch], filters={"refuse_seconds": 0.1})

    def _whole_agent(self) -> dict[str, Any]:
        """Decline partial offers until the whole agent is offered again, and return it."""
        while True:
            offer = self.offers.get(timeout=PATIENCE)
            if scalars(offer).get("cpus") == CPUS:
                return offer
            self.call("DECLINE", offer_ids=[offer["id"]], filters={"refuse_seconds": 0.1})

    def _task(self, name: str, agent_id: Any, payload: Payload) -> dict[str, Any]:
        command = {
            **({"user": self.executor_user} if self.executor_user else {}),
            "value": f"exec {shlex.quote(self.executor_python)} {self.bundle.name}",
            "uris": [{"value": self.bundle.as_uri(), "extract": False}, *self.uris],
        }
        executor = {
            "type": "CUSTOM",
            "executor_id": {"value": name},
            "framework_id": self.id,
            "command": command,
            "resources": resources(0.1, 32),
            "shutdown_grace_period": {"nanoseconds": int(5e9)},
        }
        return {
            "name": "worker-0",
            "task_id": {"value": name},
            "agent_id": agent_id,
            "executor": executor,
            "resources": resources(0.5, 64),
            "data": base64.b64encode(payload.encode()).decode(),
        }

    def statuses(self, *expected: str) -> dict[str, Any]:
        """Wait for these updates in this order; return the last."""
        for state in expected:
            status = self._new_status()
            assert state == status["state"], status
        return status

    def _new_status(self) -> dict[str, Any]:
        """Return the next new status; acknowledge repeats too, since an ack may be lost."""
        while True:
            status: dict[str, Any] = self.await_event("UPDATE")["status"]
            self.driver.send(acknowledge(status))
            if status["uuid"] not in self.seen:
                self.seen.add(status["uuid"])
                return status

    def executor_exit(self) -> int:
        """Wait until the agent reports the executor's exit; return its wait status."""
        while True:
            failure = self.await_event("FAILURE")
            if "executor_id" in failure:
                return int(failure.get("status", -1))

    def await_progress(self) -> Progress:
        """Wait for the next message of an executor."""
        while True:
            self.await_event("MESSAGE")
            message = decode_message(base64.b64decode(self.messages[-1]["data"]))
            if message is not None and isinstance(message.report, Progress):  # others are about used resources
                return message.report

    def await_in_log(self, name: str, text: str, times: int = 1) -> None:
        """Wait until the executor's log contains `text` `times` times."""
        log = self.sandbox(name) / "executor.log"
        wait_until(lambda: log.read_text().count(text) >= times, f"{text!r} is not {times} times in {log}")

    def files(self, name: str) -> dict[str, int]:
        """Return the sizes of the sandbox's files by name, from the agent's API."""
        address = self.cluster.agents["agent-1"].address
        path = urllib.parse.quote(str(self.sandbox(name).resolve()))
        with urllib.request.urlopen(f"http://{address}/files/browse?path={path}", timeout=PATIENCE) as answer:
            return {Path(item["path"]).name: item["size"] for item in json.load(answer)}

    def open_folders(self) -> None:
        """Make the folders above sandboxes accessible to other users, like an agent's."""
        for folder in (self.cluster.directory, self.bundle.parent, *self.bundle.parent.parents):
            if folder.owner() == "root" and folder.is_relative_to("/tmp") and folder != Path("/tmp"):
                folder.chmod(folder.stat().st_mode | 0o011)

    def executor_pid(self, name: str) -> int:
        """Return the executor's pid; only root can read the environment of that process."""
        above = {pid for started in processes(name) for pid in ancestors(started)}
        (found,) = [pid for pid in above if arguments(pid)[1:] == [self.bundle.name]]
        return found

    def executor_environment(self, name: str) -> str:
        return "\n".join(environment(self.executor_pid(name)))

    def sandbox(self, name: str) -> Path:
        return self.cluster.sandbox(self.agent_id, self.id["value"], name)


def resources(cpus: float, mem: float) -> list[dict[str, Any]]:
    return [{"name": n, "type": "SCALAR", "scalar": {"value": v}} for n, v in (("cpus", cpus), ("mem", mem))]


def scalars(offer: dict[str, Any]) -> dict[str, float]:
    return {item["name"]: item["scalar"]["value"] for item in offer["resources"] if item["type"] == "SCALAR"}


def processes(name: str) -> list[int]:
    """Return live processes with the task's mark in their environment."""
    return [pid for pid in all_processes() if f"{MARK}={name}" in environment(pid)]


def all_processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208


def ancestors(pid: int) -> Iterator[int]:
    """Yield the process and its ancestors."""
    while pid:
        yield pid
        try:
            # The name, in brackets, may hold anything; state and parent follow it (proc(5)).
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            return


def environment(pid: int) -> list[str]:
    """Return `NAME=value` of each initial variable of a process; [] if it has exited."""
    return _strings(f"/proc/{pid}/environ")


def arguments(pid: int) -> list[str]:
    """Return the command line; empty if it has exited."""
    return _strings(f"/proc/{pid}/cmdline")


def _strings(path: str) -> list[str]:
    try:
        return Path(path).read_bytes().decode(errors="replace").rstrip("\0").split("\0")
    except OSError:
        return []


@contextmanager
def subscribed(bundle: Path, agent_flags: Mapping[str, object] = MappingProxyType({})) -> Iterator[TaskLauncher]:
    """Yield a scheduler on a cluster with one agent."""
    agent, quick = AgentSpec("agent-1", f"cpus:{CPUS};mem:1024", ""), {"allocation_interval": "100ms"}
    with start_cluster([agent], master_flags=quick, agent_flags=agent_flags) as cluster:
        scheduler = TaskLauncher(cluster, bundle)
        try:
            yield scheduler
        finally:
            scheduler.driver.teardown()
            scheduler.driver.stop()


def shared(servers: SharedServers, bundle: Path) -> TaskLauncher:
    """Return a scheduler as of `subscribed` that the tests of a file share."""
    return servers.take("launcher", lambda: subscribed(bundle), lambda launcher: repair_cluster(launcher.cluster))
