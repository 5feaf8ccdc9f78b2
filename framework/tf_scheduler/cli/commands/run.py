"""`dcos-tensorflow local run`: run one job on the local cluster to its end."""

from __future__ import annotations

import json
import os
import re
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from secrets import token_urlsafe as new_secret
from typing import Any

import click

from dcos_command.main import FloatRange, IntRange
from mesos_local.agents import AgentSpec, default_agents, load_agents, with_ports
from mesos_local.cluster import LocalCluster
from mesos_local.host.errors import MesosLocalError
from tf_scheduler.cli.common.folders import RunFolder, write_private
from tf_scheduler.cli.common.groups import examples
from tf_scheduler.cli.common.options_file import load_document, load_options, scheduler_defaults
from tf_scheduler.cli.common.output import echo_json, json_switch, output_redactor
from tf_scheduler.cli.local_run.follow import (
    ALL,
    LEADER,
    OutputFollower,
    StopMonitor,
    collect_signals,
    follow,
    line_view,
    live_view,
    run_scheduler,
)
from tf_scheduler.cli.local_run.ports import port_block
from tf_scheduler.cli.local_run.process import HOST, SchedulerLaunch, secret_variables, with_values
from tf_scheduler.cli.local_run.report import Report, build_report, check_page, finish_run, start_run, summary_lines
from tf_scheduler.convert.program import strategy_named
from tf_scheduler.core.placement.agents import PlacementContext
from tf_scheduler.core.placement.matching import NoMatch, match_gang
from tf_scheduler.errors import JobError, NotRunningError, OptionsError, SchedulerError
from tf_scheduler.model.ids import AgentId, OfferId
from tf_scheduler.model.offer import Offer
from tf_scheduler.model.resources import Resource, Value, thousandths
from tf_scheduler.model.spec import ServiceSpec, Strategy, TaskSpec
from tf_scheduler.model.state import Verdict
from tf_scheduler.options.load import resolve
from tf_scheduler.service.api import api_settings

from .local import clean_up_on_signals, directory_option, prepare
from .options import new_options

#: Amount of a resource that an agent's specification omits: the agent detects it itself.
_UNLIMITED = thousandths(1e12)
#: Maximum number of reasons in one message.
_MAX_REASONS = 30
#: Executors exit soon after their agent, because the cluster lives for one run only.
_AGENT_FLAGS = {"recovery_timeout": "10secs"}
#: Options without effect in a run, whose API listens on loopback only.
_API_TLS = ("certificate_file", "key_file", "client_ca_file")
#: Variable of the scheduler with the token of a run whose options set none.
_TOKEN = "RUN_API_TOKEN"  # noqa: S105 - a name


# --- feasibility


def check_feasible(spec: ServiceSpec, agents: Iterable[AgentSpec]) -> None:
    """Raise JobError with all reasons if the gang does not fit the empty cluster."""
    offers = [_full_offer(agent) for agent in agents]
    if not spec.needs_gpus:
        # The master offers agents with GPUs only to frameworks that ask for GPUs (Mesos documentation, gpu-support).
        offers = [offer for offer in offers if all(entry.name != "gpus" for entry in offer.resources)]
    for tasks in _gangs(spec):
        match = match_gang(tasks, offers, PlacementContext(spec.executor.needs, spec.placement))
        if isinstance(match, NoMatch):
            lines = [f"  {task}: {reason}" for task, reasons in match.reasons.items() for reason in reasons]
            more = [f"  ... and {len(lines) - _MAX_REASONS} lines more"] if len(lines) > _MAX_REASONS else []
            raise JobError("\n".join(["the job can never fit these agents:", *lines[:_MAX_REASONS], *more]))


def _gangs(spec: ServiceSpec) -> Iterator[tuple[TaskSpec, ...]]:
    """Yield tasks that must fit at the same time: all, or each independent task alone."""
    if spec.strategy is not Strategy.INDEPENDENT:
        yield tuple(spec.tasks())
        return
    firsts = {task.job.group: task for task in reversed(list(spec.tasks()))}
    yield from ((task,) for task in firsts.values())


def _full_offer(agent: AgentSpec) -> Offer:
    amounts = {name: _value(text) for name, text in agent.resource_pairs().items()}
    values = {"cpus": _UNLIMITED, "mem": _UNLIMITED, "disk": _UNLIMITED, **amounts}
    resources = tuple(Resource(name, value) for name, value in values.items())
    name = agent.hostname
    return Offer(OfferId(name), AgentId(name), name, name, resources, dict(agent.attribute_pairs()))


def _value(text: str) -> Value:
    if text.startswith("["):
        return tuple((int(begin), int(end)) for begin, end in re.findall(r"(\d+)\s*-\s*(\d+)", text))
    if text.startswith("{"):
        return frozenset(item.strip() for item in text.strip("{}").split(","))
    return thousandths(float(text))


# --- command


@click.command()
@examples("local run examples/digits/options.json", "local run options.json --timeout 600 --report run.html")
@click.argument("options", type=click.Path(path_type=Path, readable=False))
@click.option(
    "--agents",
    type=click.Path(path_type=Path, readable=False),
    metavar="FILE",
    help="Agents: JSON list of {hostname, resources, attributes}.",
)
@directory_option
@click.option("--timeout", type=FloatRange(min=0, min_open=True), metavar="SECONDS", help="Stop the job after SECONDS.")
@json_switch("Print the result as one JSON object.")
@click.option("-v", "--verbose", is_flag=True, help="Print the log of the scheduler, instead of drawing.")
@click.option("--follow", "followed", metavar="TASK", default="", help="Also print output: of TASK, `leader` or `all`.")
@click.option("--report", "page", type=click.Path(dir_okay=False, path_type=Path), help="Write an HTML report to FILE.")
@click.option("--note", default="", metavar="TEXT", help="A note for the history, such as 'lr 0.1'.")
def run(
    options: Path,
    agents: Path | None,
    directory: Path,
    timeout: float | None,
    as_json: bool,
    verbose: bool,
    followed: str,
    page: Path | None,
    note: str,
) -> None:
    """Run the job of OPTIONS on a Mesos on this machine.

    OPTIONS is a JSON file. If no local cluster is running, one is started for the run. Ctrl-C stops the job gracefully.
    A second Ctrl-C exits immediately.
    """
    with ExitStack() as stack:
        stack.enter_context(_print_errors(as_json))
        check_page(page)
        running = LocalCluster.running(directory)
        first_port = 0 if running else stack.enter_context(port_block())
        stack.enter_context(clean_up_on_signals())
        problems: list[str] = []
        with _collect(problems):
            spec = load_options(options)
            _check_followed(followed, spec)
        with _collect(problems):
            specs = _agents(agents, running, first_port)
        if problems:
            raise JobError("\n".join(problems))
        check_feasible(spec, specs)
        job = _Job(spec, load_document(options), timeout, as_json, verbose, followed, page, note)
        report = _run(job, running or stack.enter_context(_own_cluster(specs)), own=running is None)
    sys.exit(0 if report["state"] == Verdict.SUCCEEDED.value else 1)


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
def _print_errors(as_json: bool) -> Iterator[None]:
    """With --json, print errors to standard output too, in the form of the API."""
    try:
        yield
    except (SchedulerError, MesosLocalError) as error:
        if as_json:
            code = "unreachable" if isinstance(error, NotRunningError) else "failed"
            echo_json({"error": {"code": code, "message": str(error)}})
        raise


def _agents(path: Path | None, running: LocalCluster | None, first_port: int) -> Sequence[AgentSpec]:
    if running is None:
        return default_agents(first_port) if path is None else with_ports(load_agents(path), first_port)
    if path is not None:
        raise JobError(f"--agents {path}: invalid while a cluster runs in {running.directory}; run `local down` first")
    return running.specs


@dataclass(frozen=True, slots=True)
class _Job:
    """Inputs of a run: absolute paths in `document`, `timeout` in s, HTML file `page`."""

    spec: ServiceSpec
    document: Mapping[str, Any]
    timeout: float | None
    quiet: bool
    verbose: bool
    #: Task whose output is printed, LEADER, ALL or empty.
    followed: str
    page: Path | None
    note: str


def _run(job: _Job, cluster: LocalCluster, *, own: bool) -> Report:
    """Run the job and store its report. `own`: the cluster was started for this run."""
    folder = RunFolder.create(job.spec.name, uuid.uuid4().hex)
    launch, draws = prepare_launch(job.document, cluster, folder), sys.stderr.isatty() and not job.verbose
    # From here on a signal asks for the end: the result is always reported, and all processes are stopped.
    with collect_signals() as signals:
        submitted, began, announce = time.time(), time.monotonic(), not (job.quiet or draws)
        master, service = cluster.master.address, job.spec.name
        with run_scheduler(launch, service, master, console=job.verbose, announce=announce) as scheduler:
            run = start_run(job.document, folder, cluster.specs, submitted, job.note)
            grace = max((each.kill_grace for each in job.spec.jobs), default=0.0)
            watch = StopMonitor(scheduler, grace, job.timeout, signals)
            redactor = output_redactor(job.spec, job.document)
            follower = OutputFollower(job.followed, cluster, redactor)
            is_live = draws and not job.quiet
            live = live_view(cluster, redactor, scheduler, follower)
            with live if is_live else line_view(follower, quiet=job.quiet) as draw:
                result = follow(scheduler, watch, cluster, own=own, draw=draw)
        report = build_report(result, job.spec, cluster, folder, time.monotonic() - began, redactor)
        finish_run(run, report, job.page)
        _print_result(report, folder, job.quiet)
        return report


def prepare_launch(
    document: Mapping[str, Any],
    cluster: LocalCluster,
    folder: RunFolder,
    state: str = "",
    notify: Callable[[str], None] = lambda notice: click.echo(notice, err=True),
) -> SchedulerLaunch:
    """Write the options of a run's scheduler; return how it is started.

    Args:
        state: Address of the state store; empty: in the run's folder.
        notify: Called with a notice for each option that a local run replaces.
    """
    defaults = scheduler_defaults(document)
    own = {
        "mesos.master": cluster.master.address,
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
    completed = with_values(completed, own, notify)
    completed, token = _with_token(completed, notify)
    folder.scheduler.mkdir(mode=0o700)
    write_private(folder.options, json.dumps(completed, indent=2))
    if token:
        write_private(folder.token, token)
    # Each run has its own state, so runs of one options file may train at the same time.
    arguments = () if state else ("--force-registration",)
    return SchedulerLaunch(
        folder.options,
        folder.scheduler,
        folder.scheduler_log,
        folder.recording,
        {_TOKEN: token, **secret_variables(completed)},
        arguments,
        token,
        str(folder.token) if token else "",
    )


def _with_token(document: dict[str, Any], notify: Callable[[str], None]) -> tuple[dict[str, Any], str]:
    """Return the options and the API's token: that of the options, else of this run.

    Without a token every user of this machine could run programs as this user.
    """
    api, variables = document.setdefault("api", {}), {**os.environ, "HOST": HOST}
    try:
        token = api_settings(resolve(document), variables).policy.write_token
    except OptionsError as error:  # the token of another machine
        notify(f"notice: {error}; this run has a token of its own")
        api["read_token"] = api["write_token"] = token = ""
    if token or api.get("authentication") == "none":
        return document, token
    api["write_token"] = f"env:{_TOKEN}"
    return document, new_secret()


def _print_result(report: Report, folder: RunFolder, as_json: bool) -> None:
    text = json.dumps(report, indent=2)
    try:
        folder.forget_scheduler()
        folder.result.write_text(text + "\n")
    except OSError as error:
        click.echo(f"{folder.result}: the result cannot be written: {error.strerror}", err=True)
    # Last, because it raises OSError if it cannot be written.
    click.echo(text if as_json else "\n".join(summary_lines(report)))


def _own_cluster(specs: Sequence[AgentSpec]) -> LocalCluster:
    click.echo(f"starting a local Mesos with {len(specs)} agents", err=True)
    return LocalCluster(specs, agent_flags=_AGENT_FLAGS, die_with_parent=True)


# --- try


@click.command("try")
@examples("try train.py --workers 2", "try train.py --workers 2 --ps 1 -- --epochs 3 --dir '$CHECKPOINT_DIR'")
@click.argument("program", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--workers", type=IntRange(min=1, max=100_000), help="Number of workers. Default: 2; independent: 1.")
@click.option("--ps", type=IntRange(min=0, max=100_000), help="Number of parameter servers. Default: by strategy.")
@click.option("--strategy", default="", help="Value of service.strategy, or a class name. Default: from the source.")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@json_switch("Print the result as one JSON object.")
@click.pass_context
def try_(
    context: click.Context,
    program: Path,
    workers: int | None,
    ps: int | None,
    strategy: str,
    arguments: tuple[str, ...],
    as_json: bool,
) -> None:
    """Run PROGRAM on this machine, without options.

    The tasks get the folder of PROGRAM, and ARGUMENTS after `--`. The strategy is guessed from the source. The options
    are stored in NAME-try.json, to run the job again or to change it.
    """
    prepare(context)
    chosen = strategy_named(strategy) if strategy else None
    made = new_options(program, Path(), chosen, (workers, ps), arguments, pack=True)
    service = made.document["service"]
    reason = "as requested"
    if chosen is None:
        reason = f"because {program.name} uses {made.evidence or 'no distribution strategy'}"
    click.echo(f"{service['name']}: {service['strategy']}, {reason}: {made.summary}", err=True)
    for notice in made.notices:
        click.echo(f"notice: {notice}", err=True)
    if service["strategy"] == Strategy.INDEPENDENT.value and made.document["worker"]["count"] > 1:
        click.echo("notice: each worker trains a model of its own; choose another strategy with --strategy", err=True)
    path = _save_attempt(made.document)
    click.echo(f"to repeat: dcos-tensorflow local run {path}", err=True)
    context.invoke(run, options=path, as_json=as_json)


def _save_attempt(document: Mapping[str, Any]) -> Path:
    """Write the options to the first free file, or return a file that has them."""
    name, text = document["service"]["name"], json.dumps(document, indent=2) + "\n"
    for number in count(1):
        path = Path(f"{name}-try{'' if number == 1 else f'-{number}'}.json")
        try:
            with path.open("x") as file:
                file.write(text)
            break
        except FileExistsError:
            if path.read_text(errors="replace") == text:
                break
    return path
