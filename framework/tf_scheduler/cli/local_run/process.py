"""Local scheduler processes: complete their options, and supervise them."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mesos_local.cluster import LocalCluster
from mesos_local.guard import start_guard
from mesos_local.host import MARK, PortClaims, ProcessId, free_ports
from mesos_local.network import GATEWAY, beside
from mesos_local.node import node_command
from tf_executor.contract.http import HttpClient
from tf_executor.process.ports import is_free
from tf_scheduler.cli.common.folders import history_file
from tf_scheduler.options.load import resolve
from tf_scheduler.options.schema.document import is_set
from tf_scheduler.service.secrets import referenced_variables
from tf_scheduler.zipapp_builder import build_bundle

# --- process


HOST = "127.0.0.1"
#: Variable of the scheduler with the token of the API, if the options set none.
API_TOKEN = "RUN_API_TOKEN"  # noqa: S105 - a name
FIRST_DELAY, LONGEST_DELAY = 1.0, 60.0  # seconds before a restart; doubled with each exit
STABLE = 10.0  # seconds; a process that ran longer resets the back-off
GRACE = 3.0  # seconds between SIGTERM and SIGKILL
LARGEST_LOG = 50 << 20  # bytes after which the log of a scheduler begins again
_TIMEOUT = 5.0  # seconds for one answer of the API

Document = Mapping[str, Any]
Notify = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class SchedulerLaunch:
    """Command line and environment of a scheduler.

    `folder` is its working directory, and the mark by which a guard finds the process; `log` receives its output;
    `secrets` are the variables of this process that the options name as sources of secrets. `token` is the token of the
    API, also in `token_file`; empty: the API is open to all users of this machine.
    """

    options: Path
    folder: Path
    log: Path
    recording: Path
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    #: More arguments of `scheduler run`.
    arguments: tuple[str, ...] = ()
    token: str = field(default="", repr=False)
    token_file: str = ""
    #: Id of a local run; empty: a service, whose scheduler knows the id.
    run: str = ""
    #: Process in whose network the scheduler runs; 0: in that of this machine.
    network: int = 0

    @property
    def command(self) -> list[str]:
        return [
            *(beside(self.network) if self.network else ()),
            sys.executable,
            "-m",
            "tf_scheduler",
            "scheduler",
            "run",
            "--options",
            str(self.options),
            *self.arguments,
        ]

    def environment(self, port: int, variables: Mapping[str, str]) -> dict[str, str]:
        """Return the scheduler's environment, without other variables of the user."""
        passed = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
        bundle = build_bundle()
        own = {
            "HOST": GATEWAY if self.network else HOST,
            "PORT_API": str(port),
            "EXECUTOR_URI": bundle.as_uri(),
            "EXECUTOR_URI_SHA256": hashlib.sha256(bundle.read_bytes()).hexdigest(),
            "RECORDING_FILE": str(self.recording),
            "HISTORY_FILE": str(history_file()),
            "RUN_ID": self.run,
            MARK: str(self.folder),
        }
        return {**passed, **self.secrets, **own, **variables}


def limit_log(log: Path) -> None:
    """Begin a log again if it is large; keep the one before it as LOG.1."""
    with suppress(OSError):  # removed, or the disk is full
        if log.stat().st_size > LARGEST_LOG:
            shutil.copy(log, f"{log}.1")
            os.truncate(log, 0)  # its writers append


class SupervisedScheduler:
    """A scheduler that is restarted after each exit until `stop`.

    Call `poll` often, in one thread. `variables`: further environment variables. `jitter`: returns a number between its
    two arguments.
    """

    def __init__(
        self,
        launch: SchedulerLaunch,
        variables: Mapping[str, str] | None = None,
        jitter: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._launch, self._variables, self._jitter = launch, dict(variables or {}), jitter
        self._port, self._claims = 0, PortClaims()
        self._delay = self._due = self._started = 0.0
        #: Exit code of the last process that exited by itself; negative: the signal that killed it.
        self.last_exit: int | None = None
        self._child: subprocess.Popen[bytes] | None = None
        self._relay: subprocess.Popen[bytes] | None = None
        self._start()

    @property
    def process(self) -> ProcessId | None:
        """Process of the scheduler; None while it waits for its restart."""
        return None if self._child is None else ProcessId.of(self._child.pid)

    @property
    def address(self) -> str:
        """HOST:PORT of the API."""
        return f"{HOST}:{self._port}"

    def poll(self) -> None:
        """Restart the scheduler if it has exited and its back-off has passed."""
        limit_log(self._launch.log)
        now = time.monotonic()
        if self._child is None:
            if now >= self._due:
                self._start()
        elif (code := self._child.poll()) is not None:
            self.last_exit, self._child = code, None
            stable = now - self._started > STABLE
            self._delay = FIRST_DELAY if stable or not self._delay else min(LONGEST_DELAY, 2 * self._delay)
            self._due = now + self._jitter(self._delay / 2, self._delay)

    def restart(self, launch: SchedulerLaunch | None = None, **variables: str) -> None:
        """Restart the scheduler immediately, with another launch or more variables."""
        self.stop()
        self._launch = launch or self._launch
        self._variables |= variables
        self._delay, self.last_exit = 0.0, None
        self._start()

    def stop(self) -> None:
        """Send SIGTERM, then SIGKILL after the grace period; return after the exit."""
        self._release_port()
        if self._child is None:
            return
        self._child.terminate()
        try:
            self._child.wait(GRACE)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        self._child = None

    def _start(self) -> None:
        self._release_port()
        # Tasks and commands may use the address of the previous process.
        if not self._port or not self._claims.add(self._port, self._port) or not is_free(self._port):
            (self._port,) = free_ports(1, self._claims)
        environment = self._launch.environment(self._port, self._variables)
        self._child = self._spawn(self._launch.command, environment)
        if self._launch.network:
            self._relay = self._spawn(node_command("relay", str(self._launch.network), str(self._port)), environment)
        self._started = time.monotonic()

    def _release_port(self) -> None:
        self._claims.close()
        if self._relay is not None:
            self._relay.kill()
            self._relay.wait()
            self._relay = None

    def _spawn(self, command: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
        with self._launch.log.open("ab") as log:
            return subprocess.Popen(
                command,
                cwd=self._launch.folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )


@contextmanager
def guarded(folder: Path) -> Iterator[None]:
    """Start a guard: it kills processes marked with `folder` if this process exits."""
    (folder / "logs").mkdir(parents=True, exist_ok=True)
    guard = start_guard(folder, temporary=False)
    try:
        yield
    finally:
        guard.end(0)


def get_json(address: str, path: str, *, token: str = "", encrypted: bool = False) -> tuple[int, Any] | None:
    """GET from a local scheduler; return status and JSON, or None if no response."""
    # The certificate has another name than that of loopback.
    context = ssl._create_unverified_context() if encrypted else None  # noqa: S323
    client = HttpClient(2 * _TIMEOUT, _TIMEOUT, context)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        reply = client.fetch(f"http{'s' if encrypted else ''}://{address}{path}", headers)
        return reply.status, json.loads(reply.body or b"null")
    except (OSError, ValueError):
        return None


def with_values(document: Document, values: Mapping[str, Any], notify: Notify | None = None) -> dict[str, Any]:
    """Return the document with `values` (option path -> value).

    Without `notify`, `values` are defaults, as in `resolve`. With `notify`, they replace other values, and `notify` is
    called for each replacement.
    """
    completed: dict[str, Any] = deepcopy(dict(document))
    for path, value in values.items():
        section, name = path.split(".")
        options = completed.setdefault(section, {})
        is_own = name in options and is_set(path, options[name])
        if is_own and notify is None:
            continue
        if is_own and options[name] != value and notify is not None:
            notify(f"notice: {path} is ignored: a local run sets its own value")
        options[name] = value
    return completed


def with_checkpoint_volume(document: dict[str, Any], cluster: LocalCluster | None, folder: Path) -> dict[str, Any]:
    """Mount the checkpoint folder in containers, if the tasks use it."""
    if cluster is None or not cluster.has_containers or document["service"].get("checkpoint_dir") != str(folder):
        return document
    volume = {"host_path": str(folder), "container_path": str(folder)}
    return {**document, "volumes": [*document.get("volumes", ()), volume]}


def secret_variables(document: Document) -> dict[str, str]:
    """Return this process' variables that options use as secrets (`env:NAME`)."""
    names = referenced_variables(resolve(document))
    return {name: os.environ[name] for name in names if name in os.environ}
