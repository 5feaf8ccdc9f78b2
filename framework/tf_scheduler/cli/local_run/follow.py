"""Launch a local run and follow it: draw, stop on signals, detect a dead cluster.

What follows a run is imported in functions, while its scheduler starts.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from secrets import token_urlsafe as new_secret
from typing import TYPE_CHECKING, Any

from dcos_command.command import print_error
from mesos_local.cluster import LocalCluster
from mesos_local.host import MesosLocalError
from mesos_local.master_api import teardown
from tf_executor.contract.states import Activity, TaskState, Verdict
from tf_executor.contract.text import list_names
from tf_scheduler.cli.common.folders import RunFolder, write_private
from tf_scheduler.cli.common.options_file import scheduler_defaults
from tf_scheduler.cli.common.output import OutputTail, last_lines, notable_lines, say
from tf_scheduler.errors import SecretError
from tf_scheduler.logging_setup import CONTINUATION, SecretRedactor, handle_signals, parse_line
from tf_scheduler.model.spec import ServiceSpec
from tf_scheduler.options.load import resolve
from tf_scheduler.service.secrets import KNOWN_SOURCES, api_token, known_secrets

from .advertisements import advertise
from .process import (
    API_TOKEN,
    SchedulerLaunch,
    SupervisedScheduler,
    get_json,
    guarded,
    secret_variables,
    with_checkpoint_volume,
    with_values,
)

if TYPE_CHECKING:
    from tf_scheduler.api.views.overview import Overview, TaskRow

INTERVAL = 0.25  # maximum seconds between two requests to the scheduler
#: Lines of the leader's output in the drawing, and lines in which they are searched.
LOG_LINES, _READ_LINES = 4, 40
#: Why a run on the cluster of `local up` failed.
CLUSTER_DOWN = "the local cluster was shut down"
#: Seconds beyond the longest kill_grace that a graceful stop may take: an agent or master may not respond.
STOP_MARGIN = 15.0

#: Shows an overview, some seconds after the start.
Draw = Callable[["Overview", float], None]

_PATH = "/v1/tf/overview"
_OWN_LOGGERS = ("tf_scheduler", "mesos_client")


class RunScheduler(SupervisedScheduler):
    """The supervised scheduler of a run. Call `refresh` often.

    Args:
        console: Print the log of the scheduler on standard error.
        publish: Called with the URL of the API.
        announce: Called with each address of the web page, which contains the token.
    """

    def __init__(
        self,
        launch: SchedulerLaunch,
        master: str,
        console: bool,
        publish: Callable[[str], None],
        *,
        announce: Callable[[str], None] = lambda _page: None,
    ) -> None:
        super().__init__(launch)
        self._master, self._console, self._publish, self._announce = master, console, publish, announce
        self._token = launch.token
        #: Address of the web page, with the token; empty before the first response.
        self.page = ""
        self._log, self._own = OutputTail(launch.log), True
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
        from dcos_command.tasks import page_address
        from tf_scheduler.api.views.overview import from_json

        response = get_json(self.address, _PATH, token=self._token) if self.process else None
        if response is not None:
            url = f"http://{self.address}"
            self._publish(url)
            page = page_address(url, self._token)
            if page != self.page:
                self._announce(page)
            self.page = page
            if response[0] == http.client.OK:
                self.overview = from_json(response[1])

    @property
    def trouble(self) -> str:
        """Error with which the scheduler exited; empty if it runs or a signal ended it."""
        code = self.last_exit
        if not code or code < 0:
            return ""
        self.read_log()
        return f"the scheduler exited with code {code}: {self._last_line}"

    def uninstall(self) -> None:
        """Restart the scheduler to stop all tasks and leave Mesos; does not wait."""
        self.restart(SDK_UNINSTALL="true")

    def stop(self) -> None:  # tasks keep running
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
        for line in self._log.lines():
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
                say(message)


_API_TLS = ("certificate_file", "key_file", "client_ca_file")  # without effect: the API listens on loopback


def prepare_launch(
    document: Mapping[str, Any],
    cluster: LocalCluster,
    folder: RunFolder,
    state: str = "",
    notify: Callable[[str], None] = print_error,
) -> SchedulerLaunch:
    """Write the options of a run's scheduler; return its command and environment.

    Args:
        state: Address of the state store; empty: in the run's folder.
        notify: Called with a notice for each option that a local run replaces.
    """
    defaults = scheduler_defaults(document, containers=cluster.has_containers)
    own = {
        "mesos.master": cluster.scheduler_master,
        "scheduler.state": state or folder.store.as_uri(),
        "scheduler.containerized": False,
        "scheduler.python": sys.executable,
        "service.service_account_secret": "",
        "mesos.secret": "",
        "tls.enabled": False,
        "secret_delivery.url": "",
        **dict.fromkeys((f"api.{name}" for name in _API_TLS), ""),
    }
    completed = with_values(document, {**defaults, "service.checkpoint_dir": str(folder.checkpoints)})
    completed = with_checkpoint_volume(with_values(completed, own, notify), cluster, folder.checkpoints)
    completed, token = _with_token(completed, notify)
    folder.scheduler.mkdir(mode=0o700)
    write_private(folder.options, json.dumps(completed, indent=2))
    if token:
        write_private(folder.token, token)
    return SchedulerLaunch(
        folder.options,
        folder.scheduler,
        folder.scheduler_log,
        folder.recording,
        {API_TOKEN: token, **secret_variables(completed)},
        # Each run has its own state, so runs of one options file may train at the same time.
        () if state else ("--force-registration",),
        token,
        str(folder.token) if token else "",
        folder.path.name,
        cluster.network_process,
    )


def _with_token(document: dict[str, Any], notify: Callable[[str], None]) -> tuple[dict[str, Any], str]:
    """Return the options and the API's token: from the options, else a new token.

    Without a token every user of this machine could run programs as this user.
    """
    api, options = document.setdefault("api", {}), resolve(document)
    token = ""
    users = {f"users.{index}.token": user["token"] for index, user in enumerate(options["api"]["users"])}
    for name, source in {**users, **{name: options["api"][name] for name in ("read_token", "write_token")}}.items():
        try:
            token = api_token(options, os.environ, source)
        except SecretError as error:  # the token of another machine
            notify(f"notice: api.{name}: {error}; this run has a token of its own")
            token = ""
            api |= {"read_token": "", "write_token": "", "users": []}
            break
    if token or api.get("authentication") == "none":
        return document, token
    api["write_token"] = f"env:{API_TOKEN}"
    return document, new_secret()


@contextmanager
def run_scheduler(
    launch: SchedulerLaunch,
    service: str,
    master: str,
    *,
    console: bool,
    announce: Callable[[str], None] = lambda _page: None,
) -> Iterator[RunScheduler]:
    """Run the scheduler inside the block, where other commands find it as `service`."""
    run = str(launch.options.parent)
    with guarded(launch.folder), advertise(service, token_file=launch.token_file, run=run) as publish:
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
    """Within the block, collect the names of signals instead of handling them."""
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

    `grace`: longest kill_grace of the tasks, in seconds. `timeout`: limit of the run, in seconds. `signals`: names of
    the signals received so far.
    """

    def __init__(self, scheduler: RunScheduler, grace: float, timeout: float | None, signals: list[str]) -> None:
        self._scheduler, self._timeout, self._signals = scheduler, timeout, signals
        self._grace, self._patience = grace, grace + STOP_MARGIN
        self._stopping_since: float | None = None
        self.stop_reason = self._announced = ""
        self.pending: Mapping[str, tuple[str, ...]] = {}

    def check(self, overview: Overview | None, seconds: float) -> str:
        """Return why the run has to be abandoned; empty: continue."""
        if overview is not None:
            self.pending = {} if not overview.unplaced else overview.pending or self.pending
        decided = overview is not None and bool(overview.verdict) and not overview.kept
        reason = self._reason(seconds)
        if reason and self._stopping_since is None and not decided:
            self._announced = self._announcement(overview, reason)
            if overview is None:
                say(f"stopping: {self._announced}")  # nothing is drawn yet
            self._scheduler.uninstall()
            self.stop_reason = reason
        if (reason or decided) and self._stopping_since is None:
            self._stopping_since = seconds
        return self._scheduler.trouble or self._too_slow(overview, seconds)

    def shown(self, overview: Overview) -> Overview:
        """Return the overview to draw: a stop is shown at once, and not as an uninstall."""
        if not self.stop_reason or overview.verdict not in ("", Verdict.STOPPED.value):
            return overview
        if overview.over:
            return replace(overview, reason=self.stop_reason)
        return replace(overview, activity=Activity.STOPPING.value, restart=None, detail="", reason=self._announced)

    def _reason(self, seconds: float) -> str:
        if self._signals:
            return f"{self._signals[0]} received"
        late = self._timeout is not None and seconds > self._timeout
        return f"the run took longer than {self._timeout:g} s" if late else ""

    def _announcement(self, overview: Overview | None, reason: str) -> str:
        """Return which tasks have time to save, and how long."""
        names = [task.name for task in overview.tasks if task.live] if overview is not None else []
        if not names:
            return reason
        text = f"{list_names(names)} {'has' if len(names) == 1 else 'have'} {self._grace:g} s to save"
        return f"{text} (Ctrl-C again: leave at once)" if reason.startswith("SIGINT") else f"{reason}; {text}"

    def _too_slow(self, overview: Overview | None, seconds: float) -> str:
        if len(self._signals) > 1:
            received = " received, then ".join(self._signals[:2])
            return f"{received}: stopped immediately; the processes of the tasks had no time to save"
        if self._stopping_since is None or seconds < self._stopping_since + self._patience:
            return ""
        live = ", ".join(task.name for task in overview.tasks if task.live) if overview else ""
        return f"{live or 'Mesos'} did not stop within {self._patience:g} s"


def follow(
    scheduler: RunScheduler, monitor: StopMonitor, cluster: LocalCluster, *, own: bool, draw: Draw
) -> FollowResult:
    """Follow the run to its end.

    Args:
        own: The cluster was started for this run, so the exit of any node ends the run.
        draw: Shows the run after each request.
    """
    never = threading.Event()  # interruptible by signals, unlike time.sleep
    started = time.monotonic()
    while True:
        seconds = time.monotonic() - started
        overview = scheduler.refresh()
        if overview is not None:
            draw(monitor.shown(overview), seconds)
            if overview.over:
                trouble = ""
                break
        if trouble := monitor.check(overview, seconds) or (_dead_node(cluster) if own else _down(cluster)):
            scheduler.abandon()
            overview = scheduler.overview
            if overview is not None:
                state = (TaskState.LOST if trouble == CLUSTER_DOWN else TaskState.KILLED).label
                tasks = tuple(replace(each, state=state, live=False) if each.live else each for each in overview.tasks)
                overview = replace(overview, tasks=tasks)
            break
        # A short run is followed closely, a long one at little cost.
        never.wait(min(INTERVAL, 0.05 + seconds / 20))
    return FollowResult(overview, trouble, monitor.stop_reason, monitor.pending)


def _dead_node(cluster: LocalCluster) -> str:
    try:
        for node in cluster.nodes:
            node.check_alive()
    except MesosLocalError as error:
        return error.sentence
    return ""


def _down(cluster: LocalCluster) -> str:
    """Return CLUSTER_DOWN if all nodes have exited; a dead master alone may restart."""
    try:
        return "" if LocalCluster.running(cluster.directory) else CLUSTER_DOWN
    except MesosLocalError:
        return ""


def sandbox_of(cluster: LocalCluster, overview: Overview, task: TaskRow) -> Path | None:
    """Return the sandbox of a task; None if the agent has not created it."""
    try:
        return cluster.sandbox(task.agent_id, overview.framework_id or "", task.executor_id)
    except MesosLocalError:
        return None


class OutputRedactor:
    """Quotes task output with secrets masked; omits tasks with unknown secrets."""

    def __init__(self, spec: ServiceSpec, redactor: SecretRedactor) -> None:
        self._redactor = redactor
        unknown = [item for item in spec.secrets if not item.source.startswith(KNOWN_SOURCES)]
        self._all = not unknown
        self._open = {task.name for task in spec.tasks() if not any(item.is_for(task.job.group) for item in unknown)}

    def knows(self, task: str) -> bool:
        """Whether all secrets of the task are known."""
        return self._all or task in self._open

    def quote(self, task: str, line: str) -> str | None:
        """Return a line of a task's output; None if the task has unknown secrets."""
        return self._redactor.redact(line) if self.knows(task) else None

    def last(self, task: str, file: Path, count: int) -> list[str]:
        """Return the last lines of a task's output; empty if it has unknown secrets."""
        return [self._redactor.redact(line) for line in last_lines(file, count)] if self.knows(task) else []


def output_redactor(spec: ServiceSpec, document: Mapping[str, Any]) -> OutputRedactor:
    """Return a redactor for secrets in `document` and in this process' environment."""
    return OutputRedactor(spec, SecretRedactor(known_secrets(resolve(document), os.environ)))


#: Prints a line of a task's output.
Echo = Callable[[str], None]
#: Values of `--follow` besides a task, and output files that it reads.
LEADER, ALL = "leader", "all"
_OUTPUTS = ("stdout", "stderr")


class OutputFollower:
    """Prints new output of `selected`: a task, LEADER, ALL, or empty for none."""

    def __init__(self, selected: str, cluster: LocalCluster, redactor: OutputRedactor) -> None:
        self._selected, self._cluster, self._redactor = selected, cluster, redactor
        #: Id of a launch -> task and its files.
        self._launches: dict[str, tuple[str, list[OutputTail]]] = {}

    def read(self, overview: Overview, echo: Echo) -> None:
        """Print new output, and the remaining output of launches that were replaced."""
        selected = overview.leader if self._selected == LEADER else self._selected
        current = {task.id: task for task in overview.tasks if task.id and selected in (task.name, ALL)}
        self._print([id_ for id_ in self._launches if id_ not in current], echo)
        for id_, task in current.items():
            sandbox = None if id_ in self._launches else sandbox_of(self._cluster, overview, task)
            if sandbox is not None:
                self._launches[id_] = task.name, [OutputTail(sandbox / name) for name in _OUTPUTS]
        for task_name, tails in self._launches.values():
            for line in (line for tail in tails for line in tail.lines()):
                self._echo(task_name, line, echo)

    def finish(self, echo: Echo) -> None:
        """Print the rest of all output."""
        self._print(list(self._launches), echo)

    def _print(self, launches: Iterable[str], echo: Echo) -> None:
        for id_ in launches:
            task_name, tails = self._launches.pop(id_)
            for line in (line for tail in tails for line in tail.lines(last=True)):
                self._echo(task_name, line, echo)

    def _echo(self, task_name: str, line: str, echo: Echo) -> None:
        from dcos_command.logs import prefixed

        if (quoted := self._redactor.quote(task_name, line)) is not None:
            echo(prefixed(task_name, quoted))


# --- views


@contextmanager
def live_view(
    cluster: LocalCluster, redactor: OutputRedactor, scheduler: RunScheduler, follower: OutputFollower
) -> Iterator[Draw]:
    """Draw the run on the terminal, with output of the leader or of the stalled tasks."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    from .view import RunHistory, run_view

    console, history = Console(stderr=True), RunHistory()

    def echo(line: str) -> None:
        console.print(Text(line), soft_wrap=True)

    with Live(console=console, auto_refresh=False, transient=True) as live:

        def draw(overview: Overview, seconds: float) -> None:
            history.add(overview, seconds)
            follower.read(overview, echo)
            log_lines = _output_lines(cluster, overview, redactor)
            size, times = (console.width, console.height), (seconds, time.time())
            live.update(run_view(overview, log_lines, times, size, scheduler.page, history), refresh=True)

        yield draw
        follower.finish(echo)


@contextmanager
def line_view(follower: OutputFollower, every: float, *, quiet: bool) -> Iterator[Draw]:
    """Print a line at each change, for a pipe. `quiet`: print only followed output.

    `every`: maximum seconds between two lines.
    """
    from dcos_command.tasks import ProgressLines

    lines = ProgressLines(say, every)

    def draw(overview: Overview, seconds: float) -> None:
        follower.read(overview, print_error)
        if not quiet:
            lines.show(asdict(overview), seconds)

    yield draw
    follower.finish(print_error)


def _output_lines(cluster: LocalCluster, overview: Overview, redactor: OutputRedactor) -> list[str]:
    """Return the last lines of the leader, or the last line of each stalled task."""
    from dcos_command.logs import prefixed

    stalled = [task for task in overview.tasks if task.activity == Activity.STALLED]
    leader = overview.task(overview.leader)
    lines: list[str] = []
    for task in stalled or ([] if leader is None else [leader]):
        sandbox = sandbox_of(cluster, overview, task)
        outputs = (redactor.last(task.name, sandbox / name, _READ_LINES) for name in _OUTPUTS) if sandbox else ()
        last = next(filter(None, map(notable_lines, outputs)), [])[-1 if stalled else -LOG_LINES :]
        lines += [prefixed(task.name, line) for line in last]
    return lines
