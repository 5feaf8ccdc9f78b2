"""Follow a local run to its end: draw, stop on signals, detect a dead cluster."""

from __future__ import annotations

import http.client
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

import click
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from mesos_local.cluster import LocalCluster
from mesos_local.host.errors import MesosLocalError
from mesos_local.master_api import teardown
from tf_scheduler.api.views.overview import Overview, TaskRow, from_json
from tf_scheduler.cli.common.output import OutputRedactor
from tf_scheduler.cli.common.signals import handle_signals
from tf_scheduler.logging_setup import CONTINUATION, parse_line
from tf_scheduler.model.plan import Override, Status

from .process import SchedulerLaunch, SupervisedScheduler, advertise, get_json, guarded

INTERVAL = 0.25  # seconds between two requests to the scheduler
LOG_LINES = 8
#: Seconds beyond the longest kill_grace that a graceful stop may take: an agent or master may not respond.
STOP_MARGIN = 15.0

Draw = Callable[[Overview | None, float], None]

_PATH = "/v1/tf/overview"
_OWN_LOGGERS = ("tf_scheduler", "mesos_client")
#: Lines of title, heading, borders and caption.
_FRAME = 6
_COLOURS: Mapping[str, str] = {
    Override.PAUSING: "yellow",
    Override.PAUSED: "yellow",
    Status.PENDING: "yellow",
    Status.WAITING: "yellow",
    Status.DELAYED: "yellow",
    Status.PREPARED: "cyan",
    Status.STARTING: "cyan",
    Status.STARTED: "cyan",
    Status.IN_PROGRESS: "cyan",
    Status.COMPLETE: "green",
    Status.ERROR: "red",
}


class RunScheduler(SupervisedScheduler):
    """The supervised scheduler of a run. Call `refresh` often.

    `console`: print the log of the scheduler on standard error; `publish` is called with the URL of the API.
    `announce`: print the address of the web page on standard error, with the token.
    """

    def __init__(
        self,
        launch: SchedulerLaunch,
        master: str,
        console: bool,
        publish: Callable[[str], None],
        *,
        announce: bool = False,
    ) -> None:
        super().__init__(launch)
        self._master, self._console, self._publish, self._announce = master, console, publish, announce
        self._token, self._page = launch.token, ""
        self._log, self._offset, self._own = launch.log, 0, True
        self._last_line = ""
        #: Last response; None before the first one.
        self.overview: Overview | None = None

    def refresh(self) -> Overview | None:
        """Restart the scheduler if it is due, print its log, return its newest overview."""
        self.poll()
        self.read_log()
        self._request_overview()
        return self.overview

    def _request_overview(self) -> None:
        response = get_json(self.address, _PATH, token=self._token) if self.process else None
        if response is not None:
            url = f"http://{self.address}"
            self._publish(url)
            # Browsers do not send the fragment, so the token gets into no log of a server.
            page = f"{url}/#token={quote(self._token)}" if self._token else f"{url}/"
            if self._announce and page != self._page:
                self._page = page
                click.echo(f"web page: {page}", err=True)
            if response[0] == http.client.OK:
                self.overview = from_json(response[1])

    @property
    def trouble(self) -> str:
        """Repeatable error on which the scheduler exited; empty if none or on a signal."""
        code = self.last_exit
        if not code or code < 0:
            return ""
        self.read_log()
        return f"the scheduler exited with code {code}: {self._last_line}"

    def uninstall(self) -> None:
        """Restart the scheduler to stop all tasks and leave Mesos; does not wait."""
        self.restart(SDK_UNINSTALL="true")

    def stop(self) -> None:
        """Stop the scheduler; tasks keep running."""
        super().stop()
        self.read_log()

    def abandon(self) -> None:
        """Stop the scheduler and let Mesos kill the tasks, without waiting for them."""
        if self.overview is None:
            self._request_overview()
        self.stop()
        if self.overview is not None and self.overview.framework_id and not self.overview.over:
            with suppress(MesosLocalError):  # without a master no agent runs tasks
                teardown(self._master, self.overview.framework_id)

    def read_log(self) -> None:
        """Read new whole lines of the scheduler's log."""
        try:
            with self._log.open("rb") as file:
                if file.seek(0, os.SEEK_END) < self._offset:
                    self._offset = 0  # truncated, as by logrotate
                file.seek(self._offset)
                new = file.read()
        except FileNotFoundError:
            return
        new = new[: new.rfind(b"\n") + 1]
        self._offset += len(new)
        for line in new.decode(errors="replace").splitlines():
            self._print(line)

    def _print(self, line: str) -> None:
        """Print the scheduler's own log messages and their continuation lines."""
        entry = parse_line(line)
        if entry is not None:
            self._own = entry[0].startswith(_OWN_LOGGERS)
        elif not line.startswith(CONTINUATION):
            self._own = True  # printed on exit, after the lines of any logger
        if self._own:
            message = line.removeprefix(CONTINUATION) if entry is None else entry[1]
            self._last_line = message or self._last_line
            if self._console:
                click.echo(message, err=True)


@contextmanager
def run_scheduler(
    launch: SchedulerLaunch, service: str, master: str, *, console: bool, announce: bool = False
) -> Iterator[RunScheduler]:
    """Run the scheduler inside the block, where other commands find it as `service`."""
    with guarded(launch.folder), advertise(service, token_file=launch.token_file) as publish:
        scheduler = RunScheduler(launch, master, console, publish, announce=announce)
        try:
            yield scheduler
        except BaseException:
            scheduler.abandon()
            raise
        finally:
            scheduler.stop()


@contextmanager
def collect_signals() -> Iterator[list[str]]:
    """Within, collect the names of signals instead of handling them."""
    received: list[str] = []
    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    with handle_signals(lambda number: received.append(number.name), *signals):
        yield received


@dataclass(frozen=True, slots=True)
class FollowResult:
    """Outcome of a run. `overview`: None if its scheduler never responded."""

    overview: Overview | None
    #: Why the run was abandoned, if it was.
    trouble: str = ""
    #: Why the run was stopped, if it was.
    stop_reason: str = ""
    #: Last reasons of tasks that were never placed.
    pending: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


class StopMonitor:
    """Decides when to stop a run. A first signal stops gracefully, a second exits.

    `grace`: longest kill_grace of its tasks; `timeout`: of the run; in seconds. `signals`: received so far.
    """

    def __init__(self, scheduler: RunScheduler, grace: float, timeout: float | None, signals: list[str]) -> None:
        self._scheduler, self._timeout, self._signals = scheduler, timeout, signals
        self._patience = grace + STOP_MARGIN
        self._stopping_since: float | None = None
        self.stop_reason = ""
        self.pending: Mapping[str, tuple[str, ...]] = {}

    def check(self, overview: Overview | None, seconds: float) -> str:
        """Return why the run has to be abandoned; empty: continue."""
        if overview is not None:
            self.pending = {} if not overview.unplaced else overview.pending or self.pending
        decided = overview is not None and bool(overview.verdict) and not overview.kept
        reason = self._reason(seconds)
        if reason and self._stopping_since is None and not decided:
            click.echo(f"stopping: {reason}", err=True)
            self._scheduler.uninstall()
            self.stop_reason = reason
        if (reason or decided) and self._stopping_since is None:
            self._stopping_since = seconds
        return self._scheduler.trouble or self._too_slow(overview, seconds)

    def _reason(self, seconds: float) -> str:
        if self._signals:
            return f"{self._signals[0]} received"
        late = self._timeout is not None and seconds > self._timeout
        return f"the run took longer than {self._timeout:g} s" if late else ""

    def _too_slow(self, overview: Overview | None, seconds: float) -> str:
        if len(self._signals) > 1:
            return f"{self._signals[0]} received, then {self._signals[1]}: exited without waiting for the tasks"
        if self._stopping_since is None or seconds < self._stopping_since + self._patience:
            return ""
        live = ", ".join(task.name for task in overview.tasks if task.live) if overview else ""
        return f"{live or 'Mesos'} did not stop within {self._patience:g} s"


def follow(
    scheduler: RunScheduler, monitor: StopMonitor, cluster: LocalCluster, *, own: bool, view: OutputRedactor | None
) -> FollowResult:
    """Follow the run to its end.

    Args:
        own: The cluster was started for this run, so the exit of any node ends the run.
        view: Draw the run on the terminal, with task output by this redactor.
    """
    never = threading.Event()  # interruptible by signals, unlike time.sleep
    started = time.monotonic()
    with _live_view(cluster, view) as draw:
        while True:
            seconds = time.monotonic() - started
            overview = scheduler.refresh()
            if overview is not None and overview.over:
                trouble = ""
                break
            draw(overview, seconds)
            if trouble := monitor.check(overview, seconds) or (_dead_node(cluster) if own else ""):
                scheduler.abandon()
                overview = scheduler.overview
                break
            never.wait(INTERVAL)
    return FollowResult(overview, trouble, monitor.stop_reason, monitor.pending)


def _dead_node(cluster: LocalCluster) -> str:
    try:
        for node in cluster.nodes:
            node.check_alive()
    except MesosLocalError as error:
        return error.sentence
    return ""


def sandbox_of(cluster: LocalCluster, overview: Overview, task: TaskRow) -> Path | None:
    """Return the sandbox of a task; None if the agent has not created it."""
    try:
        return cluster.sandbox(task.agent_id, overview.framework_id or "", task.executor_id)
    except MesosLocalError:
        return None


@contextmanager
def _live_view(cluster: LocalCluster, redactor: OutputRedactor | None) -> Iterator[Draw]:
    if redactor is None:
        yield lambda _overview, _seconds: None
        return
    console = Console(stderr=True)
    with Live(console=console, auto_refresh=False, transient=True) as live:

        def draw(overview: Overview | None, seconds: float) -> None:
            if overview is not None:
                log_lines = _leader_log(cluster, overview, redactor)
                live.update(run_view(overview, log_lines, seconds, console.height), refresh=True)

        yield draw


def _leader_log(cluster: LocalCluster, overview: Overview, redactor: OutputRedactor) -> list[str]:
    task = overview.task(overview.leader)
    sandbox = None if task is None else sandbox_of(cluster, overview, task)
    if task is None or sandbox is None:
        return []
    outputs = (redactor.last(task.name, sandbox / name, LOG_LINES) for name in ("stdout", "stderr"))
    return next(filter(None, outputs), [])


def run_view(overview: Overview, log_lines: Sequence[str], seconds: float, height: int) -> RenderableType:
    """Return the view in `height` lines; of many tasks, completed ones are omitted."""
    lines = log_lines[-max(1, min(len(log_lines), height // 3)) :]
    rows = height - _FRAME - len(overview.notices) - (len(lines) + 2 if lines else 0)
    notices = [Text(notice, style="yellow", no_wrap=True, overflow="ellipsis") for notice in overview.notices]
    parts: list[RenderableType] = [_table(overview, seconds, max(1, rows)), *notices]
    if overview.leader is not None and lines:
        text = Text("\n".join(lines), no_wrap=True, overflow="ellipsis")
        parts.append(Panel(text, title=f"{overview.leader} log", title_align="left"))
    return Group(*parts)


def _table(overview: Overview, seconds: float, rows: int) -> Table:
    state = f"{overview.plan} {overview.status}"
    if overview.verdict:
        state = f"{overview.verdict}, stopping: {overview.reason}"
    title = f"{overview.service}: {state}, {seconds:.0f} s"
    table = Table("phase", "task", "step", "where", "what", title=title, title_justify="left")
    steps = overview.steps
    if len(steps) > rows:
        steps = tuple(sorted(steps, key=lambda step: step.status == Status.COMPLETE.value)[:rows])
        table.caption = f"and {len(overview.steps) - len(steps)} more"
    for step in steps:
        status, task = Text(step.status, style=_COLOURS.get(step.status, "")), overview.task(step.task)
        details = "; ".join(part for part in (step.message, task.progress if task else "") if part)
        location = f"{task.hostname} {task.address}" if task else ""
        table.add_row(step.phase, step.name, status, location, Text(details))
    return table
