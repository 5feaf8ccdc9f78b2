"""Run the product's commands as processes; send HTTP to local schedulers."""

from __future__ import annotations

import getpass
import http.client
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from mesos_local.cluster import LocalCluster
from mesos_local.host import ProcessId, free_ports
from tf_scheduler.zipapp_builder import build_bundle

from .waiting import PATIENCE

#: Variables of a command of the checkout.
ENVIRONMENT = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "NO_COLOR": "1"}
#: Resources of a task that trains nothing.
SMALL = {"cpus": 0.1, "mem": 64, "disk": 0}


def command_line(*arguments: object) -> list[str]:
    """Return program and arguments of `dcos-tensorflow ARGUMENTS`."""
    return [sys.executable, "-m", "tf_scheduler", *map(str, arguments)]


def run_program(*command: object, **settings: Any) -> subprocess.CompletedProcess[str]:
    """Run a program to its end; `settings` are those of subprocess.run."""
    defaults: dict[str, Any] = {"capture_output": True, "text": True, "check": False}
    return subprocess.run([str(word) for word in command], **{**defaults, **settings})


def run_command(*arguments: object, **settings: Any) -> subprocess.CompletedProcess[str]:
    """Run `dcos-tensorflow ARGUMENTS` to its end, without standard input."""
    defaults: dict[str, Any] = {"env": ENVIRONMENT, "stdin": subprocess.DEVNULL, "timeout": PATIENCE}
    return run_program(*command_line(*arguments), **{**defaults, **settings})


@contextmanager
def processes() -> Iterator[Callable[..., Any]]:
    """Yield a function that starts programs; at the end, kill what still runs."""
    with ExitStack() as stack:

        def start(*command: object, **settings: Any) -> Any:
            defaults: dict[str, Any] = {"stdout": subprocess.PIPE, "text": True}
            process = subprocess.Popen([str(word) for word in command], **{**defaults, **settings})
            stack.enter_context(process)
            stack.callback(process.kill)
            return process

        yield start


@contextmanager
def serving_dcos(cluster: LocalCluster, *, errors: Path, **variables: str) -> Iterator[str]:
    """Serve tests/dcos for a cluster, with its errors in a file; yield its URL."""
    command = [sys.executable, "-m", "dcos.serve", "--dir", str(cluster.directory)]
    with errors.open("w") as log, processes() as start:
        process = start(*command, env=ENVIRONMENT | variables, stderr=log)
        line = process.stdout.readline()
        assert line, errors.read_text()
        try:
            yield line.rpartition(" ")[2].strip()
        finally:
            process.terminate()
            process.communicate(timeout=PATIENCE)


class Response(NamedTuple):
    """Response of a scheduler; `status` 0: it does not respond."""

    status: int
    text: str = ""
    content_type: str = ""

    @property
    def json(self) -> Any:
        return json.loads(self.text)


def request(port: int, path: str, method: str = "GET", token: str = "", body: bytes | None = None) -> Response:
    """Send a request to the scheduler at a port of this machine."""
    try:
        with closing(send(port, path, method, token, body)) as connection:
            answer = connection.getresponse()
            return Response(answer.status, answer.read().decode(), answer.headers["content-type"] or "")
    except (OSError, http.client.HTTPException):
        return Response(0)


def send(port: int, path: str, method: str, token: str, body: bytes | None = None) -> http.client.HTTPConnection:
    """Send a request and return the connection; the caller reads the response."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    connection.request(method, path, body, headers={"Authorization": f"Bearer {token}"} if token else {})
    return connection


def scheduler_environment(port: int, **variables: str) -> dict[str, str]:
    """Return only the variables that a scheduler needs, and these."""
    paths = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(sys.path)}
    return {**paths, "PORT_API": str(port), "EXECUTOR_URI": build_bundle().as_uri(), "HOST": "127.0.0.1", **variables}


def start_scheduler(options: Path, environment: Mapping[str, str], log: Path) -> subprocess.Popen[bytes]:
    """Start `scheduler run --options FILE` with its output in a file."""
    command = command_line("scheduler", "run", "--options", options)
    with log.open("ab") as stream:
        return subprocess.Popen(command, env=environment, stdout=stream, stderr=stream)


class SchedulerCommand:
    """`scheduler run --options FILE` of a service; `stop` kills what is left."""

    def __init__(self, file: Path, master: str, **sections: Any) -> None:
        """Write the options: two small workers that wait, or what `sections` change."""
        (self.port,) = free_ports(1)
        self.file, self.master = file, master
        self.processes: list[subprocess.Popen[str]] = []
        service = {"name": "unit", "user": getpass.getuser(), "strategy": "between_graph", "command": "exec sleep 1000"}
        service["python"] = sys.executable
        defaults: dict[str, Any] = {
            "parameter_server": {"count": 0},
            "worker": {"count": 2, **SMALL},
            "executor": {"python": sys.executable},
            "mesos": {"master": master},
            "scheduler": {"state": (file.parent / "state.db").as_uri()},
        }
        document = {**defaults, **sections, "service": {**service, **sections.get("service", {})}}
        file.write_text(json.dumps(document))

    @property
    def arguments(self) -> list[str]:
        return ["scheduler", "run", "--options", str(self.file)]

    def start(self, stderr: Any = subprocess.PIPE, **variables: str) -> Any:
        """Start the command with only the variables that a scheduler needs."""
        environment = scheduler_environment(self.port, **variables)
        process = subprocess.Popen(command_line(*self.arguments), env=environment, stderr=stderr, text=True)
        self.processes.append(process)
        return process

    def change(self, **sections: Any) -> None:
        """Replace sections of the options, from the next start on."""
        self.file.write_text(json.dumps({**json.loads(self.file.read_text()), **sections}))

    def request(self, path: str, method: str = "GET", token: str = "", body: bytes | None = None) -> Response:
        return request(self.port, path, method, token, body)

    def status(self, path: str) -> int:
        return self.request(path).status

    def end(self, process: subprocess.Popen[str]) -> str:
        """Stop a process with SIGTERM; return its error output."""
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, errors
        return errors or ""

    def stop(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.communicate()


def find_scheduler(folder: Path) -> ProcessId | None:
    """Return the scheduler of an installed service with this folder, or None."""
    settings = str(folder / "scheduler.json").encode()
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if settings in (entry / "cmdline").read_bytes().split(b"\0"):
                return ProcessId.of(int(entry.name))
    return None


def kill_scheduler(folder: Path) -> None:
    """Send SIGKILL to the scheduler of an installed service, which must run."""
    process = find_scheduler(folder)
    assert process is not None
    process.signal(signal.SIGKILL)
