"""A node of the cluster: one process that can be started, ended, frozen and started again on its work dir."""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from .errors import MesosLocalError, NodeDiedError
from .process import ProcessId, spawn

_LOG_LINES = 15
_GRACE = 5.0  # seconds
_AGAIN = 0.02  # seconds between two attempts to connect: a port that opens announces itself to nobody
_START_TIMEOUT = 30.0  # seconds


class Node:
    """A master, an agent or a ZooKeeper. `address` is "IP:PORT"; a restart keeps it."""

    def __init__(
        self,
        name: str,
        address: str,
        log_path: Path,
        command: Callable[[], Sequence[str]],
        environment: Mapping[str, str],
        changed: Callable[[], None],
    ) -> None:
        """`command` is asked for at each start; `changed` is called whenever the process is another, or none."""
        self.name = name
        self.address = address
        self.log_path = log_path
        self.started_at = 0.0
        self.process: ProcessId | None = None
        self.frozen = False
        self._command = command
        self._environment = environment
        self._changed = changed

    @property
    def pid(self) -> int:
        """Raises MesosLocalError if it does not run."""
        return self._running().pid

    def start(self) -> None:
        """Start it and wait until it is ready; for an agent see also LocalCluster.wait_registered()."""
        self.launch()
        self.wait_ready()

    def launch(self) -> None:
        """Start it without waiting. Raises MesosLocalError if it runs already."""
        if self.process is not None and self.process.alive():
            raise MesosLocalError(f"{self.name} runs already (process {self.process.pid}).")
        self.started_at, self.frozen = time.time(), False
        self.process = spawn(self._command(), self._environment, self.log_path)
        self._changed()

    def ready(self) -> bool:
        """Whether it accepts connections."""
        return listens(self.address)

    def wait_ready(self) -> None:
        """Raises MesosLocalError, with the end of its log, if it ends or is not ready in time."""
        deadline = time.monotonic() + _START_TIMEOUT
        while not self.ready():
            if self._running().wait(_AGAIN):
                raise self.failed("did not start")
            if time.monotonic() > deadline:
                raise self.failed(f"does not answer at {self.address} after {_START_TIMEOUT:.0f} s")

    def stop(self) -> None:
        """SIGTERM, which ends Mesos at once: executors of an agent live on, as on any Mesos."""
        self._end(lambda process: process.end(_GRACE))

    def kill(self) -> None:
        """SIGKILL."""
        self._end(_kill)

    def restart(self) -> None:
        """Stop it and start it on its work dir, at its address."""
        self.stop()
        self.start()

    def freeze(self) -> None:
        """SIGSTOP: to the others this looks as if the network were cut."""
        self._running().signal(signal.SIGSTOP)
        self.frozen = True

    def thaw(self) -> None:
        """SIGCONT."""
        self._running().signal(signal.SIGCONT)
        self.frozen = False

    def check_alive(self) -> None:
        """Raises NodeDiedError if it ended though nobody asked for that; the error's first line says just that."""
        if self.process is not None and not self.process.alive():
            cause = self.process.how_it_ended() or "its log may say why"
            raise NodeDiedError(f"{self.name} has ended: {cause}.{self._end_of_log()}")

    def failed(self, what: str) -> MesosLocalError:
        """An error whose `details` are the end of the log."""
        return MesosLocalError(f"{self.name} {what}.{self._end_of_log()}")

    def _end_of_log(self) -> str:
        """Lines of their own, or nothing."""
        with suppress(OSError):
            lines = self.log_path.read_text(errors="replace").splitlines()[-_LOG_LINES:]
            return "\n  ".join([f"\nThe end of {self.log_path}:", *lines])
        return ""

    def _running(self) -> ProcessId:
        if self.process is None:
            raise MesosLocalError(f"{self.name} does not run.")
        return self.process

    def _end(self, how: Callable[[ProcessId], None]) -> None:
        if self.process is not None:
            how(self.process)
            self.process, self.frozen = None, False
            self._changed()


class AgentNode(Node):
    """An agent; `agent_id` is what the master called it."""

    registered_id: str | None = None

    @property
    def agent_id(self) -> str:
        """Raises MesosLocalError before it has registered."""
        if self.registered_id is None:
            raise MesosLocalError(f"{self.name} has not registered yet.")
        return self.registered_id


def _kill(process: ProcessId) -> None:
    process.signal(signal.SIGKILL)
    process.wait()


def listens(address: str) -> bool:
    """Whether something accepts connections at "IP:PORT"."""
    host, _, port = address.rpartition(":")
    with socket.socket() as connection:
        return connection.connect_ex((host, int(port))) == 0
