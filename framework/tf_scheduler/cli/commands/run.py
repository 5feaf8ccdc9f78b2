"""`dcos-tensorflow local run`: run one job on the local cluster to its end."""

from __future__ import annotations

import json
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dcos_command.command import FloatRange, echo, examples
from dcos_command.service import EXIT_CODES, LINE_SECONDS
from mesos_local.agents import AgentSpec, load_agents
from mesos_local.cluster import LocalCluster
from mesos_local.host import MesosLocalError, PortClaims
from mesos_local.ports import claimed_agents
from tf_executor.contract.states import Verdict
from tf_executor.contract.text import list_names, pluralize
from tf_scheduler.cli.common.folders import RunFolder, UserPath, named_file_type, short_path
from tf_scheduler.cli.common.options_file import load_document, load_options, unpacked_hint
from tf_scheduler.cli.common.output import check_page, echo_json, folded, json_switch, say
from tf_scheduler.cli.local_run.fitting import adapt_sizes, check_feasible, notice_of_checkpoints, notice_of_gpus
from tf_scheduler.cli.local_run.follow import (
    ALL,
    LEADER,
    OutputFollower,
    StopMonitor,
    collect_signals,
    follow,
    line_view,
    live_view,
    output_redactor,
    prepare_launch,
    run_scheduler,
)
from tf_scheduler.errors import JobError, NotRunningError, OptionsError, SchedulerError
from tf_scheduler.model.spec import ServiceSpec

from .local import clean_up_on_signals, directory_option, fit_option, settings_option

if TYPE_CHECKING:
    from tf_scheduler.cli.local_run.report import Report

#: Executors exit soon after their agent, because the cluster lives for one run only.
_AGENT_FLAGS = {"recovery_timeout": "10secs"}


@click.command()
@examples("local run examples/digits/options.json", "local run options.json --set worker.count=4 --timeout 600")
@click.argument("options", type=named_file_type)
@click.option(
    "--agents", type=named_file_type, metavar="FILE", help="Agents: JSON list of {hostname, resources, attributes}."
)
@directory_option
@click.option("--timeout", type=FloatRange(min=0, min_open=True), metavar="SECONDS", help="Stop the job after SECONDS.")
@json_switch("Print the result as one JSON object.")
@fit_option
@click.option("--enforce-memory", is_flag=True, help="End tasks that use more memory than their mem.")
@click.option("-v", "--verbose", is_flag=True, help="Print the log of the scheduler, instead of drawing.")
@click.option("--follow", "followed", metavar="TASK", default="", help="Also print output: of TASK, `leader` or `all`.")
@click.option("--report", "page", type=UserPath(dir_okay=False), help="Write an HTML report to FILE.")
@click.option("--note", default="", metavar="TEXT", help="A note for the history, such as 'lr 0.1'.")
@click.option(
    "--every",
    type=FloatRange(min=0, min_open=True),
    default=LINE_SECONDS,
    metavar="SECONDS",
    show_default=True,
    help="In a pipe, print a line at least every SECONDS.",
)
@settings_option
def run(
    options: Path,
    settings: tuple[str, ...],
    agents: Path | None,
    directory: Path,
    timeout: float | None,
    as_json: bool,
    fit: bool,
    enforce_memory: bool,
    verbose: bool,
    followed: str,
    page: Path | None,
    note: str,
    every: float,
    about: str = "",
) -> None:
    """Run the job of OPTIONS on a Mesos on this machine.

    OPTIONS is a JSON file. If no local cluster is running, one is started for the run. Ctrl-C stops the job gracefully.
    A second Ctrl-C exits immediately.

    Exit code: 0 succeeded, 1 failed or refused, 4 stopped, also by Ctrl-C or --timeout.
    """
    settings += ("executor.enforce_memory=true",) if enforce_memory else ()
    with ExitStack() as stack:
        stack.enter_context(clean_up_on_signals(EXIT_CODES[Verdict.STOPPED.value]))
        stack.enter_context(print_errors(as_json))
        check_page(page)
        running = LocalCluster.running(directory)
        problems: list[str] = []
        with _collect(problems):
            has_containers = running is not None and running.has_containers
            spec = load_options(options, settings, containers=has_containers, about=about)
            _check_followed(followed, spec)
        with _collect(problems):
            specs, claims = _agents(agents, running, stack)
        if problems:
            raise JobError("\n".join(problems))
        notice_of_gpus(spec, specs)
        document, spec = adapt_sizes(load_document(options, settings), spec, specs, fit=fit)
        check_feasible(spec, specs)
        notice_of_checkpoints(spec.checkpoint_dir)
        unpacked = partial(unpacked_hint, options, settings)
        job = _Job(spec, document, timeout, as_json, verbose, followed, page, note, every, unpacked)
        report = _run(job, running or stack.enter_context(_own_cluster(specs, claims)), own=running is None)
    sys.exit(EXIT_CODES.get(report["state"], 1))


def _check_followed(name: str, spec: ServiceSpec) -> None:
    names = [LEADER, ALL, *(task.name for task in spec.tasks())]
    if name and name not in names:
        raise JobError(f"--follow: `{name}`: unknown task; expected one of {', '.join(names)}")


@contextmanager
def _collect(problems: list[str]) -> Iterator[None]:
    """Append an error to `problems`, to report the errors of all inputs together."""
    try:
        yield
    except (SchedulerError, MesosLocalError) as error:
        problems.append(str(error))


@contextmanager
def print_errors(as_json: bool) -> Iterator[None]:
    """With --json, print errors to standard output too, in the form of the API."""
    try:
        yield
    except (SchedulerError, MesosLocalError) as error:
        if as_json:
            code = "unreachable" if isinstance(error, NotRunningError) else "failed"
            echo_json({"error": {"code": code, "message": str(error)}})
        raise


def _agents(
    path: Path | None, running: LocalCluster | None, stack: ExitStack
) -> tuple[Sequence[AgentSpec], PortClaims | None]:
    if running is None:
        return stack.enter_context(claimed_agents(None if path is None else load_agents(path)))
    if path is not None:
        raise JobError(f"--agents {path}: invalid while a cluster runs in {running.directory}; run `local down` first")
    return running.specs, None


@dataclass(frozen=True, slots=True)
class _Job:
    """Inputs of a run. `document`: with absolute paths; `timeout`: in s; `page`: HTML."""

    spec: ServiceSpec
    document: Mapping[str, Any]
    timeout: float | None
    quiet: bool
    verbose: bool
    #: Task whose output is printed, LEADER, ALL or empty.
    followed: str
    page: Path | None
    note: str
    #: Maximum seconds between two lines about the progress.
    every: float
    #: Returns why a file that an error names was not packed.
    unpacked: Callable[[str], str]


def _run(job: _Job, cluster: LocalCluster, *, own: bool) -> Report:
    """Run the job and store its report. `own`: the cluster was started for this run."""
    folder = RunFolder.create(job.spec.name, uuid.uuid4().hex)
    launch, draws = prepare_launch(job.document, cluster, folder), sys.stderr.isatty() and not job.verbose
    # From here on a signal asks for the end: the result is always reported, and all processes are stopped.
    with collect_signals() as signals, _without_scheduler_files(folder):
        submitted, began, master = time.time(), time.monotonic(), cluster.master.address
        announce = partial(_announce, job.spec, folder) if not job.quiet else lambda _page: None
        with run_scheduler(launch, job.spec.name, master, console=job.verbose, announce=announce) as scheduler:
            from tf_scheduler.cli.local_run.report import build_report, finish_run, start_run  # while it starts

            run = start_run(job.document, folder, cluster.specs, submitted, job.note)
            grace = max((each.settings.kill_grace for each in job.spec.jobs), default=0.0)
            watch = StopMonitor(scheduler, grace, job.timeout, signals)
            redactor = output_redactor(job.spec, job.document)
            follower = OutputFollower(job.followed, cluster, redactor)
            is_live = draws and not job.quiet
            live = live_view(cluster, redactor, scheduler, follower)
            with live if is_live else line_view(follower, job.every, quiet=job.quiet) as draw:
                result = follow(scheduler, watch, cluster, own=own, draw=draw)
            scheduler.stop()
            report = build_report(result, job.spec, cluster, folder, time.monotonic() - began, redactor)
            with suppress(OSError, OptionsError):  # the options file may have changed
                if (failure := report["failure"]) and (hint := job.unpacked(failure["cause"])):
                    failure["hint"] = hint
            finish_run(run, report, job.page)
            # Commands find the run until its result is stored.
            with _print_os_errors():
                folder.result.write_text(json.dumps(report, indent=2) + "\n")
        _print_result(report, job.quiet)
        return report


def _announce(spec: ServiceSpec, folder: RunFolder, page: str) -> None:
    """Print the tasks of a run, the folder of its logs, and the address of its page."""
    tasks = list_names([pluralize(job.count, job.kind.value) for job in spec.jobs if job.count])
    say(f"{spec.name}: {tasks}, {spec.strategy.value}; logs: {short_path(str(folder.logs))}")
    say(f"page: {page}")


@contextmanager
def _without_scheduler_files(folder: RunFolder) -> Iterator[None]:
    """Remove token, options and state of the scheduler at the end, however it ends."""
    try:
        yield
    finally:
        with _print_os_errors():
            folder.forget_scheduler()


@contextmanager
def _print_os_errors() -> Iterator[None]:
    """Print disk errors instead of raising them: they must not hide the result."""
    try:
        yield
    except OSError as error:
        echo(f"{error.filename}: the result cannot be written: {error.strerror}", err=True)


def _print_result(report: Report, as_json: bool) -> None:
    """Print the report. Raises OSError if it cannot be written."""
    from tf_scheduler.cli.local_run.report import summary_lines

    is_terminal = sys.stdout is not None and sys.stdout.isatty()
    lines = map(folded, summary_lines(report)) if is_terminal else summary_lines(report)
    echo(json.dumps(report, indent=2) if as_json else "\n".join(lines))


def _own_cluster(specs: Sequence[AgentSpec], claims: PortClaims | None) -> LocalCluster:
    say(f"starting a local Mesos with {len(specs)} agents")
    return LocalCluster(specs, agent_flags=_AGENT_FLAGS, die_with_parent=True, claims=claims)
