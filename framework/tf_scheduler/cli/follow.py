"""Watch one service to its end: draw it, stop it in time, notice when the cluster dies under it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mesos_local import LocalCluster, MesosLocalError
from tf_scheduler.api.glance import Overview, TaskRow

from .interrupts import Interrupts
from .run_app import RunApp

if TYPE_CHECKING:
    from .words import Words

#: Seconds between two looks where somebody sees them, and where nobody does: then most of them only read what is new.
REDRAW, LOOK = 0.25, 0.1
#: Where nobody sees it, the scheduler is not asked so soon, nor more often: training starts meanwhile. Seconds.
CALM, ASK = 5.0, 1.0
LOG_LINES = 8
#: Seconds beyond the longest kill_grace that the graceful end may take: an agent or master may not answer any more.
PATIENCE = 15.0

Draw = Callable[[Overview | None, float], None]


@dataclass(frozen=True, slots=True)
class Watched:
    """How a service went. `seen`: None when its scheduler never answered."""

    seen: Overview | None
    #: What ended it, if it did not end by itself.
    trouble: str = ""
    #: Why it was asked to end, if it was.
    asked: str = ""
    #: The last reasons of tasks that were never placed.
    pending: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


class Watch:
    """Looks at a running service again and again, and decides when it has to stop.

    `grace`: the longest time that its tasks may take to end; `timeout`: the longest that it may run. Seconds.
    """

    def __init__(self, app: RunApp, grace: float, timeout: float | None, signals: Interrupts) -> None:
        self._app, self._timeout, self._signals = app, timeout, signals
        self._patience = grace + PATIENCE
        self._stopping_since: float | None = None
        self.asked = ""
        self.pending: Mapping[str, tuple[str, ...]] = {}

    def look(self, seen: Overview | None, seconds: float) -> str:
        """What is wrong, so that nothing is left but to leave; empty: go on."""
        if seen is not None:
            self.pending = {} if not seen.unplaced else seen.pending or self.pending
        decided = seen is not None and bool(seen.verdict) and not seen.kept
        reason = self._signals.reason or self._overdue(seconds)
        if reason and self._stopping_since is None and not decided:
            click.echo(f"stopping: {reason}", err=True)
            self._app.stop()
            self.asked = reason
        if (reason or decided) and self._stopping_since is None:
            self._stopping_since = seconds
        return self._app.trouble or self._too_slow(seen, seconds)

    def _overdue(self, seconds: float) -> str:
        late = self._timeout is not None and seconds > self._timeout
        return f"it took longer than {self._timeout:g} s" if late else ""

    def _too_slow(self, seen: Overview | None, seconds: float) -> str:
        if self._signals.insisted:
            return f"{self._signals.reason}, and then {self._signals.names[1]}: left without waiting for the tasks"
        if self._stopping_since is None or seconds < self._stopping_since + self._patience:
            return ""
        live = ", ".join(task.name for task in seen.tasks if task.live) if seen else ""
        return f"{live or 'Mesos'} did not answer {self._patience:g} s after the end was asked for"


def follow(app: RunApp, watch: Watch, cluster: LocalCluster, *, own: bool, drawn: Words | None) -> Watched:
    """Watch the service to its end.

    `drawn`: on a terminal, with these words of its tasks. `own`: the cluster is there for this run only, so the death
    of any node ends it.
    """
    waiting = threading.Event()  # nobody sets it: signals are only noted
    started = time.monotonic()
    due = CALM if drawn is None else 0.0
    with _screen(cluster, drawn) as draw:
        while True:
            seconds = time.monotonic() - started
            seen = app.look(ask=seconds >= due)
            if seconds >= due and drawn is None:
                due = seconds + ASK
            if seen is not None and seen.over:
                trouble = ""
                break
            draw(seen, seconds)
            if trouble := watch.look(seen, seconds) or (_dead_node(cluster) if own else ""):
                app.leave()
                seen = app.seen
                break
            waiting.wait(LOOK if drawn is None else REDRAW)
    return Watched(seen, trouble, watch.asked, watch.pending)


def _dead_node(cluster: LocalCluster) -> str:
    try:
        for node in cluster.nodes:
            node.check_alive()
    except MesosLocalError as error:
        return str(error).splitlines()[0].partition(". The end of")[0]
    return ""


def sandbox_of(cluster: LocalCluster, seen: Overview, task: TaskRow) -> Path | None:
    """The working directory of a task; None when the agent has not made it."""
    try:
        return cluster.sandbox(task.agent_id, seen.framework_id or "", task.executor_id)
    except MesosLocalError:
        return None


@contextmanager
def _screen(cluster: LocalCluster, drawn: Words | None) -> Iterator[Draw]:
    """Draws on a terminal; elsewhere the log tells what happens."""
    if drawn is None:
        yield lambda _seen, _seconds: None
        return
    # The scheduler starts meanwhile.
    from rich.console import Console
    from rich.live import Live

    from .view import screen

    console = Console(stderr=True)
    with Live(console=console, auto_refresh=False, transient=True) as live:

        def draw(seen: Overview | None, seconds: float) -> None:
            if seen is not None:
                live.update(screen(seen, _leader_log(cluster, seen, drawn), seconds, console.height), refresh=True)

        yield draw


def _leader_log(cluster: LocalCluster, seen: Overview, words: Words) -> list[str]:
    task = seen.task(seen.leader)
    sandbox = None if task is None else sandbox_of(cluster, seen, task)
    if task is None or sandbox is None:
        return []
    outputs = (words.last(task.name, sandbox / name, LOG_LINES) for name in ("stdout", "stderr"))
    return next(filter(None, outputs), [])
