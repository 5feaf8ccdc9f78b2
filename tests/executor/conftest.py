from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

import task_launcher
from kit.payloads import a_payload
from kit.shared import SharedServers
from mesos_client.http import encode_data
from tf_scheduler.zipapp_builder import build_bundle

FAKE_AGENT = Path(__file__).with_name("fake_agent.py")
EXECUTOR = Path(__file__).parents[2] / "executor"
#: The agent's Python; override it to test another one, 3.8 or newer.
PYTHON = os.environ.get("TEST_EXECUTOR_PYTHON", sys.executable)
#: Variable in the environment of every process of a test's task, to find them.
MARK = "TEST_MARK"


class Executor:
    """A running executor whose agent is the test."""

    def __init__(self, sandbox: Path, stack: ExitStack, times: Sequence[str], environment: Mapping[str, str]) -> None:
        self.sandbox = sandbox
        self.mark = uuid.uuid4().hex
        #: Messages about progress, and about used resources, that `update` has read.
        self.messages: list[dict[str, Any]] = []
        self.usages: list[dict[str, Any]] = []
        events, self._events = os.pipe()
        self._updates, updates = os.pipe()
        with (sandbox / "stdout").open("wb") as out, (sandbox / "stderr").open("wb") as err:
            self.process = subprocess.Popen(
                [PYTHON, str(FAKE_AGENT), str(events), str(updates), *times],
                cwd=sandbox,
                stdout=out,
                stderr=err,
                pass_fds=[events, updates],
                env={
                    "PYTHONPATH": str(EXECUTOR),
                    "PATH": os.environ["PATH"],
                    "MESOS_EXECUTOR_SHUTDOWN_GRACE_PERIOD": "5secs",
                    **environment,
                },
            )
        os.close(events)
        os.close(updates)
        stack.callback(self._end)
        self._out = stack.enter_context(os.fdopen(self._events, "w", buffering=1))
        self._in = stack.enter_context(os.fdopen(self._updates))

    def _end(self) -> None:
        self.process.kill()
        self.process.wait()
        for pid in self.processes():
            os.kill(pid, 9)

    def say(self, kind: str, **fields: Any) -> None:
        self._out.write(json.dumps({"type": kind, kind.lower(): fields}) + "\n")

    def launch(
        self, command: str, task_id: str = "t1", info: Mapping[str, Any] = MappingProxyType({}), **fields: Any
    ) -> None:
        """`info`: further fields of TaskInfo; `fields`: of the payload or its settings."""
        environment = {MARK: self.mark, **fields.pop("environment", {})}
        self.launch_raw(a_payload(command, **fields, environment=environment).encode(), task_id, info)

    def launch_running(self, command: str, **fields: Any) -> None:
        self.launch(command, **fields)
        self.states("TASK_STARTING", "TASK_RUNNING")

    def launch_ready(self, command: str, **fields: Any) -> None:
        """Wait until the program writes to the pipe `ready`."""
        self.launch_running(command, **fields)
        self.await_file("ready")

    def launch_raw(self, data: bytes, task_id: str = "t1", info: Mapping[str, Any] = MappingProxyType({})) -> None:
        self.say("LAUNCH", task={"task_id": {"value": task_id}, "data": base64.b64encode(data).decode(), **info})

    def kill(self, grace: float | None = None, task_id: str = "t1") -> None:
        policy = {} if grace is None else {"kill_policy": {"grace_period": {"nanoseconds": int(grace * 1e9)}}}
        self.say("KILL", task_id={"value": task_id}, **policy)

    def update(self) -> dict[str, Any]:
        """Wait for the next status update."""
        while True:
            item = self._next()
            if "state" in item:
                return item

    def await_message(self) -> dict[str, Any]:
        """Wait for the next message to the scheduler; no update may come before it."""
        assert "state" not in self._next()
        return self.messages[-1]

    def _next(self) -> dict[str, Any]:
        while True:
            item: dict[str, Any] = json.loads(self._in.readline())
            message = {} if "state" in item else json.loads(item["message"])
            if message.get("kind") == "usage":
                self.usages.append(message)
                continue
            self.messages += [message] if message else []
            return item

    def await_usage(self) -> dict[str, Any]:
        """Wait for the next message about used resources; nothing else may come before it."""
        message: dict[str, Any] = json.loads(json.loads(self._in.readline())["message"])
        assert message["kind"] == "usage"
        return message

    def states(self, *expected: str) -> dict[str, Any]:
        """Wait for these updates, in this order; return the last one."""
        for state in expected:
            status = self.update()
            assert state == status["state"], status
        return status

    def end(self, *before: str) -> dict[str, Any]:
        """Wait for these updates and then for any further one."""
        self.states(*before)
        return self.update()

    def acknowledge(self, state: str) -> None:
        identity = encode_data(uuid.uuid5(uuid.NAMESPACE_OID, state).bytes)
        self.say("ACKNOWLEDGED", task_id={"value": "t1"}, uuid=identity)

    def output(self, name: str = "stdout") -> str:
        return (self.sandbox / name).read_text()

    def await_file(self, name: str) -> str:
        """Return the content of a named pipe that the program writes; blocks until then."""
        return (self.sandbox / name).read_text()

    def processes(self) -> list[int]:
        """Return the ids of the task's running processes, also detached ones."""
        return [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if self._is_ours(pid)]  # noqa: PTH208

    def _is_ours(self, pid: int) -> bool:
        try:
            return f"{MARK}={self.mark}".encode() in Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            return False


def subscribed(sandbox: Path, stack: ExitStack, *times: str, **environment: str) -> Executor:
    """Start a subscribed executor (TASK_KILLING).

    `times`: constants of the executor to change, as MODULE.NAME=SECONDS; `environment`: the agent's.
    """
    result = Executor(sandbox, stack, times, environment)
    os.mkfifo(sandbox / "ready")
    result.say("SUBSCRIBED", framework_info={"capabilities": [{"type": "TASK_KILLING_STATE"}]})
    return result


@pytest.fixture
def executor(tmp_path: Path) -> Iterator[Executor]:
    """An executor with the default agent environment."""
    with ExitStack() as stack:
        yield subscribed(tmp_path, stack)


@pytest.fixture
def start_executor(tmp_path: Path) -> Iterator[Callable[..., Executor]]:
    """Return a function that starts executors of one agent, each with its own sandbox."""
    with ExitStack() as stack:

        def start_one(name: str, *times: str, **environment: str) -> Executor:
            (tmp_path / name).mkdir()
            return subscribed(tmp_path / name, stack, *times, **environment)

        yield start_one


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_bundle(tmp_path_factory.mktemp("bundle") / "tf_executor.pyz")


@pytest.fixture
def scheduler(real_mesos: None, module_servers: SharedServers, bundle: Path) -> task_launcher.TaskLauncher:
    return task_launcher.shared(module_servers, bundle)


@pytest.fixture
def ready(tmp_path: Path) -> Path:
    os.mkfifo(tmp_path / "ready")
    return tmp_path / "ready"
