"""Watch one service to its end: draw it, stop it in time, notice when the cluster dies under it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.live import Live

from mesos_local import LocalCluster, MesosLocalError
from tf_scheduler.model.ids import TaskName, executor_of
from tf_scheduler.model.spec import ServiceSpec
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.model.task import TaskRecord

from .folders import RunFolder
from .interrupts import Interrupts
from .service import Service
from .tail import last_lines
from .view import leader, screen

#: Seconds between two drawings of the screen.
REDRAW = 0.25
LOG_LINES = 8
#: Seconds beyond the longest kill_grace that the graceful end may take: an agent or master may not answer any more.
PATIENCE = 15.0

Draw = Callable[[SchedulerState, float], None]


@dataclass(frozen=True, slots=True)
class Watched:
    """How a service went."""

    state: SchedulerState
    #: What ended it, if it did not end by itself.
    trouble: str = ""
    #: The last reasons of tasks that were never placed.
    pending: Mapping[TaskName, tuple[str, ...]] = field(default_factory=dict)


class Watch:
    """Looks at a running service again and again, and decides when it has to stop."""

    def __init__(self, service: Service, spec: ServiceSpec, timeout: float | None, signals: Interrupts) -> None:
        self._service, self._timeout, self._signals = service, timeout, signals
        self._patience = max((job.kill_grace for job in spec.jobs), default=0.0) + PATIENCE
        self._stopping_since: float | None = None
        self.pending: Mapping[TaskName, tuple[str, ...]] = {}

    def look(self, seconds: float) -> str:
        """What is wrong, so that nothing is left but to leave; empty: go on."""
        state = self._service.state
        reasons = {name: tuple(map(str, why)) for name, why in state.pending.items() if name not in state.tasks}
        self.pending = {} if not state.unplaced() else reasons or self.pending
        reason = self._signals.reason or self._overdue(seconds)
        if reason and self._stopping_since is None and state.result is None:
            self._service.runner.request_stop(reason)
        if (reason or state.result is not None) and self._stopping_since is None:
            self._stopping_since = seconds
        return self._too_slow(seconds)

    def _overdue(self, seconds: float) -> str:
        late = self._timeout is not None and seconds > self._timeout
        return f"it took longer than {self._timeout:g} s" if late else ""

    def _too_slow(self, seconds: float) -> str:
        if self._signals.insisted:
            return f"{self._signals.reason}, and then {self._signals.names[1]}: left without waiting for the tasks"
        if self._stopping_since is None or seconds < self._stopping_since + self._patience:
            return ""
        live = ", ".join(record.name for record in self._service.state.live())
        return f"{live or 'Mesos'} did not answer {self._patience:g} s after the end was asked for"


def follow(
    spec: ServiceSpec,
    cluster: LocalCluster,
    folder: RunFolder,
    *,
    own: bool,
    timeout: float | None,
    signals: Interrupts,
    quiet: bool,
) -> Watched:
    """Run the service on the cluster to its end. Raise what ended the scheduler, if that was not the job.

    `own`: the cluster is there for this run only, so the death of any node ends it.
    """
    ended = threading.Event()
    started, trouble = time.monotonic(), ""
    with (
        Service(spec, cluster.master.address, folder.store, on_end=ended.set) as service,
        _screen(cluster, quiet) as draw,
    ):
        watch = Watch(service, spec, timeout, signals)
        while not ended.wait(REDRAW) and not trouble:
            seconds = time.monotonic() - started
            draw(service.state, seconds)
            trouble = watch.look(seconds) or (_dead_node(cluster) if own else "")
        if trouble:
            service.leave()
    if service.error is not None:
        raise service.error
    return Watched(service.state, trouble, watch.pending)


def _dead_node(cluster: LocalCluster) -> str:
    try:
        for node in cluster.nodes:
            node.check_alive()
    except MesosLocalError as error:
        return str(error).splitlines()[0].partition(". The end of")[0]
    return ""


def sandbox_of(cluster: LocalCluster, state: SchedulerState, record: TaskRecord) -> Path | None:
    """The working directory of a task; None when the agent has not made it."""
    try:
        return cluster.sandbox(record.agent_id, state.framework_id or "", executor_of(record.id))
    except MesosLocalError:
        return None


@contextmanager
def _screen(cluster: LocalCluster, quiet: bool) -> Iterator[Draw]:
    """Draws on a terminal; elsewhere the log tells what happens."""
    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield lambda _state, _seconds: None
        return
    with Live(console=console, auto_refresh=False, transient=True) as live:
        yield lambda state, seconds: live.update(
            screen(state, _leader_log(cluster, state), seconds, console.height), refresh=True
        )


def _leader_log(cluster: LocalCluster, state: SchedulerState) -> list[str]:
    record = leader(state)
    sandbox = None if record is None else sandbox_of(cluster, state, record)
    if sandbox is None:
        return []
    return last_lines(sandbox / "stdout", LOG_LINES) or last_lines(sandbox / "stderr", LOG_LINES)
