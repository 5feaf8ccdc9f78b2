"""Follow a local run to its end: show it, stop it in time, notice when the cluster dies under it."""

from __future__ import annotations

import http.client
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

import click
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from mesos_local.cluster import LocalCluster
from mesos_local.host.errors import MesosLocalError
from mesos_local.host.process import ProcessId
from mesos_local.master_api import teardown
from tf_scheduler.api.views.overview import Overview, StepRow, TaskRow, from_json
from tf_scheduler.cli.common.output import OutputRedactor
from tf_scheduler.logging_setup import CONTINUATION, parse_line
from tf_scheduler.model.plan import Override, Status

from .process import SchedulerLaunch, SupervisedScheduler, advertise, ask, guarded

INTERVAL = 0.25  # seconds between two questions to the scheduler
LOG_LINES = 8
#: Seconds beyond the longest kill_grace that the graceful end may take: an agent or master may not answer any more.
STOP_MARGIN = 15.0

Draw = Callable[[Overview | None, float], None]

_PATH = "/v1/tf/overview"
_OWN_LOGGERS = ("tf_scheduler", "mesos_client")
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
#: Rows of title, heading, borders and caption.
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


class RunScheduler:
    """The supervised scheduler of a run. Call `poll` often.

    `console`: print the log of the scheduler on standard error; `publish` is called with the URL of the API.
    """

    def __init__(
        self,
        launch: SchedulerLaunch,
        master: str,
        *,
        console: bool = False,
        publish: Callable[[str], None] = lambda _url: None,
    ) -> None:
        self._supervised = SupervisedScheduler(launch)
        self._master, self._console, self._publish = master, console, publish
        self._log, self._offset, self._own = launch.log, 0, True
        self._last_line = ""
        #: The last answer; None before the first one.
        self.seen: Overview | None = None

    @property
    def process(self) -> ProcessId | None:
        """None while the scheduler waits for its restart."""
        return self._supervised.process

    @property
    def address(self) -> str:
        """HOST:PORT of the API."""
        return self._supervised.address

    def poll(self) -> Overview | None:
        """Restart the scheduler if it is due, print its log, return its newest overview."""
        self._supervised.poll()
        self.read_log()
        self._ask()
        return self.seen

    def _ask(self) -> None:
        answer = ask(self.address, _PATH) if self.process else None
        if answer is not None:
            self._publish(f"http://{self.address}")
            if answer[0] == http.client.OK:
                self.seen = from_json(answer[1])

    @property
    def last_exit(self) -> int | None:
        """Exit code of the last scheduler that exited by itself; negative: the signal that killed it."""
        return self._supervised.last_exit

    @property
    def trouble(self) -> str:
        """Why the scheduler exited with an error, which a restart would meet again; empty if it did not.

        A scheduler that was killed by a signal is restarted.
        """
        code = self.last_exit
        if not code or code < 0:
            return ""
        self.read_log()
        return f"the scheduler ended with exit code {code}: {self._last_line}"

    def uninstall(self) -> None:
        """Restart the scheduler so that it stops all tasks and leaves Mesos. Returns immediately."""
        self._supervised.restart(SDK_UNINSTALL="true")

    def stop(self) -> None:
        """Stop the scheduler only."""
        self._supervised.stop()
        self.read_log()

    def abandon(self) -> None:
        """Stop the scheduler and let Mesos kill the tasks, without waiting for them."""
        if self.seen is None:
            self._ask()
        self._supervised.stop()
        if self.seen is not None and self.seen.framework_id and not self.seen.over:
            try:
                teardown(self._master, self.seen.framework_id)
            except MesosLocalError:
                return  # without a master no agent runs tasks

    def read_log(self) -> None:
        """Read new whole lines of the scheduler's log."""
        try:
            with self._log.open("rb") as file:
                file.seek(self._offset)
                new = file.read()
        except FileNotFoundError:
            return
        new = new[: new.rfind(b"\n") + 1]
        self._offset += len(new)
        for line in new.decode(errors="replace").splitlines():
            self._print(line)

    def _print(self, line: str) -> None:
        """Print a message of the scheduler's own loggers. A line without a head continues the one before."""
        entry = parse_line(line)
        if entry is not None:
            self._own = entry[0].startswith(_OWN_LOGGERS)
        if self._own:
            message = line.removeprefix(CONTINUATION) if entry is None else entry[1]
            self._last_line = message or self._last_line
            if self._console:
                click.echo(message, err=True)


@contextmanager
def run_scheduler(launch: SchedulerLaunch, service: str, master: str, *, console: bool) -> Iterator[RunScheduler]:
    """Within, the scheduler runs and other commands find it as `service`; afterwards it does not run."""
    with guarded(launch.folder), advertise(service) as publish:
        scheduler = RunScheduler(launch, master, console=console, publish=publish)
        try:
            yield scheduler
        except BaseException:
            scheduler.abandon()
            raise
        finally:
            scheduler.stop()


class Interrupts:
    """Signals received so far. The first asks for a graceful end, the second to leave immediately."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def __bool__(self) -> bool:
        return bool(self.names)

    @property
    def reason(self) -> str:
        return f"{self.names[0]} received" if self.names else ""

    @property
    def insisted(self) -> bool:
        """Whether a second signal asks not to wait for the graceful end."""
        return len(self.names) > 1


@contextmanager
def collect_signals() -> Iterator[Interrupts]:
    """Collect signals for the time of the block."""
    found = Interrupts()

    def note(number: int, _frame: FrameType | None) -> None:
        found.names.append(signal.Signals(number).name)

    before = {number: signal.signal(number, note) for number in _SIGNALS}
    try:
        yield found
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@dataclass(frozen=True, slots=True)
class FollowResult:
    """How a service went. `seen`: None when its scheduler never answered."""

    seen: Overview | None
    #: What ended it, if it did not end by itself.
    trouble: str = ""
    #: Why it was asked to end, if it was.
    asked: str = ""
    #: The last reasons of tasks that were never placed.
    pending: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


class StopMonitor:
    """Decides when a running service has to stop.

    `grace`: the longest time that its tasks may take to end; `timeout`: the longest that it may run. Seconds.
    """

    def __init__(self, scheduler: RunScheduler, grace: float, timeout: float | None, signals: Interrupts) -> None:
        self._scheduler, self._timeout, self._signals = scheduler, timeout, signals
        self._patience = grace + STOP_MARGIN
        self._stopping_since: float | None = None
        self.asked = ""
        self.pending: Mapping[str, tuple[str, ...]] = {}

    def look(self, seen: Overview | None, seconds: float) -> str:
        """Return why the run has to be abandoned; empty: continue."""
        if seen is not None:
            self.pending = {} if not seen.unplaced else seen.pending or self.pending
        decided = seen is not None and bool(seen.verdict) and not seen.kept
        reason = self._signals.reason or self._overdue(seconds)
        if reason and self._stopping_since is None and not decided:
            click.echo(f"stopping: {reason}", err=True)
            self._scheduler.uninstall()
            self.asked = reason
        if (reason or decided) and self._stopping_since is None:
            self._stopping_since = seconds
        return self._scheduler.trouble or self._too_slow(seen, seconds)

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


def follow(
    scheduler: RunScheduler, watch: StopMonitor, cluster: LocalCluster, *, own: bool, drawn: OutputRedactor | None
) -> FollowResult:
    """Follow the service to its end.

    `drawn`: on a terminal, with these words of its tasks. `own`: the cluster is there for this run only, so the death
    of any node ends it.
    """
    waiting = threading.Event()  # never set: signals are only noted
    started = time.monotonic()
    with _live_view(cluster, drawn) as draw:
        while True:
            seconds = time.monotonic() - started
            seen = scheduler.poll()
            if seen is not None and seen.over:
                trouble = ""
                break
            draw(seen, seconds)
            if trouble := watch.look(seen, seconds) or (_dead_node(cluster) if own else ""):
                scheduler.abandon()
                seen = scheduler.seen
                break
            waiting.wait(INTERVAL)
    return FollowResult(seen, trouble, watch.asked, watch.pending)


def _dead_node(cluster: LocalCluster) -> str:
    try:
        for node in cluster.nodes:
            node.check_alive()
    except MesosLocalError as error:
        return error.sentence
    return ""


def sandbox_of(cluster: LocalCluster, seen: Overview, task: TaskRow) -> Path | None:
    """The working directory of a task; None when the agent has not made it."""
    try:
        return cluster.sandbox(task.agent_id, seen.framework_id or "", task.executor_id)
    except MesosLocalError:
        return None


@contextmanager
def _live_view(cluster: LocalCluster, drawn: OutputRedactor | None) -> Iterator[Draw]:
    """Draw on a terminal; elsewhere the log is printed."""
    if drawn is None:
        yield lambda _seen, _seconds: None
        return
    console = Console(stderr=True)
    with Live(console=console, auto_refresh=False, transient=True) as live:

        def draw(seen: Overview | None, seconds: float) -> None:
            if seen is not None:
                live.update(run_view(seen, _leader_log(cluster, seen, drawn), seconds, console.height), refresh=True)

        yield draw


def _leader_log(cluster: LocalCluster, seen: Overview, words: OutputRedactor) -> list[str]:
    task = seen.task(seen.leader)
    sandbox = None if task is None else sandbox_of(cluster, seen, task)
    if task is None or sandbox is None:
        return []
    outputs = (words.last(task.name, sandbox / name, LOG_LINES) for name in ("stdout", "stderr"))
    return next(filter(None, outputs), [])


def run_view(shown: Overview, log_lines: Sequence[str], seconds: float, height: int) -> RenderableType:
    """The whole view, in `height` rows: where tasks are many, those that run well are left out."""
    lines = log_lines[-max(1, min(len(log_lines), height // 3)) :]
    room = height - _FRAME - (len(lines) + 2 if lines else 0)
    parts: list[RenderableType] = [_table(shown, seconds, max(1, room))]
    if shown.leader is not None and lines:
        text = Text("\n".join(lines), no_wrap=True, overflow="ellipsis")
        parts.append(Panel(text, title=f"{shown.leader} log", title_align="left"))
    return Group(*parts)


def _title(shown: Overview, seconds: float) -> str:
    if shown.verdict:
        return f"{shown.service}: {shown.verdict}, ending: {shown.reason}, {seconds:.0f} s"
    return f"{shown.service}: {shown.plan} {shown.status}, {seconds:.0f} s"


def _table(shown: Overview, seconds: float, rows: int) -> Table:
    table = Table("phase", "task", "step", "where", "what", title=_title(shown, seconds), title_justify="left")
    some = shown.steps
    if len(some) > rows:
        some = tuple(sorted(some, key=lambda step: step.status == Status.COMPLETE.value)[:rows])
        table.caption = f"and {len(shown.steps) - len(some)} more"
    for step in some:
        table.add_row(step.phase, step.name, _coloured(step), _location(shown, step), Text(_step_details(shown, step)))
    return table


def _step_details(shown: Overview, step: StepRow) -> str:
    task = shown.task(step.task)
    return "; ".join(part for part in (step.message, task.progress if task else "") if part)


def _coloured(step: StepRow) -> Text:
    return Text(step.status, style=_COLOURS.get(step.status, ""))


def _location(shown: Overview, step: StepRow) -> str:
    task = shown.task(step.task)
    return f"{task.hostname} {task.address}" if task else ""
