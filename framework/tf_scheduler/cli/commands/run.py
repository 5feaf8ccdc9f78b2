"""`dcos-tensorflow local run`: one job on the local cluster, followed to its end."""

from __future__ import annotations

import json
import re
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from mesos_local.agents import AgentSpec, default_agents, load_agents, with_ports
from mesos_local.cluster import LocalCluster
from mesos_local.host.errors import MesosLocalError
from tf_scheduler.cli.common.folders import RunFolder
from tf_scheduler.cli.common.options_file import load_document, load_options, scheduler_defaults
from tf_scheduler.cli.common.output import json_switch, output_redactor
from tf_scheduler.cli.local_run.follow import StopMonitor, collect_signals, follow, run_scheduler
from tf_scheduler.cli.local_run.ports import port_block
from tf_scheduler.cli.local_run.process import SchedulerLaunch, secret_variables, with_values, write_private
from tf_scheduler.cli.local_run.report import (
    Report,
    build_report,
    check_page,
    environment_of,
    exit_code,
    finish_run,
    start_run,
    summary,
)
from tf_scheduler.core.placement.agents import PlacementContext
from tf_scheduler.core.placement.matching import NoMatch, match_gang
from tf_scheduler.errors import JobError, SchedulerError
from tf_scheduler.model.ids import AgentId, OfferId
from tf_scheduler.model.offer import Offer
from tf_scheduler.model.resources import Resource, Value, thousandths
from tf_scheduler.model.spec import ServiceSpec, Strategy, TaskSpec
from tf_scheduler.options.load import resolve

from .local import clean_up_on_signals, directory_option

# --- fit
# Whether a job can ever fit a cluster that we know whole, before anything is started.


#: What an agent offers of a resource that its specification leaves out: it detects that itself, so assume enough.
_UNLIMITED = thousandths(1e12)
#: Of reasons: those of the first tasks stand for the others.
_LINES = 30


def check_feasible(spec: ServiceSpec, agents: Iterable[AgentSpec]) -> None:
    """Raise JobError, with the reason of every task, when the gang does not fit the empty cluster."""
    offers = [_full_offer(agent) for agent in agents]
    if not spec.needs_gpus:
        # The master offers agents with GPUs only to frameworks that ask for GPUs (Mesos documentation, gpu-support).
        offers = [offer for offer in offers if all(entry.name != "gpus" for entry in offer.resources)]
    for tasks in _gangs(spec):
        _check(tasks, offers, PlacementContext(spec.executor.needs, spec.placement))


def _gangs(spec: ServiceSpec) -> Iterator[tuple[TaskSpec, ...]]:
    """Tasks that must fit at the same time: all, but those that work for themselves may do so one after the other."""
    if spec.strategy is not Strategy.INDEPENDENT:
        yield tuple(spec.tasks())
        return
    firsts = {task.job.group: task for task in reversed(list(spec.tasks()))}
    yield from ((task,) for task in firsts.values())


def _check(tasks: tuple[TaskSpec, ...], offers: Sequence[Offer], about: PlacementContext) -> None:
    match = match_gang(tasks, offers, about)
    if isinstance(match, NoMatch):
        lines = [f"{task}: {reason}" for task, reasons in match.reasons.items() for reason in reasons]
        more = [f"... and {len(lines) - _LINES} lines more"] if len(lines) > _LINES else []
        told = "\n".join(f"  {line}" for line in [*lines[:_LINES], *more])
        raise JobError(f"the job can never fit these agents:\n{told}")


def _full_offer(agent: AgentSpec) -> Offer:
    given = {name: _value(text) for name, text in agent.resource_pairs().items()}
    values = {"cpus": _UNLIMITED, "mem": _UNLIMITED, "disk": _UNLIMITED, **given}
    resources = tuple(Resource(name, value) for name, value in values.items())
    attributes = dict(agent.attribute_pairs())
    name = agent.hostname
    return Offer(OfferId(name), AgentId(name), name, name, resources, attributes)


def _value(text: str) -> Value:
    if text.startswith("["):
        return tuple((int(begin), int(end)) for begin, end in re.findall(r"(\d+)\s*-\s*(\d+)", text))
    if text.startswith("{"):
        return frozenset(item.strip() for item in text.strip("{}").split(","))
    return thousandths(float(text))


# --- inputs
# Several inputs, checked all before any error is told.


First = TypeVar("First")
Second = TypeVar("Second")


def evaluate_both(first: Callable[[], First], second: Callable[[], Second]) -> tuple[First, Second]:
    """Both values, or JobError with the problems of both."""
    problems: list[str] = []
    one = _attempt(first, problems)
    other = _attempt(second, problems)
    if one is None or other is None:
        raise JobError("\n".join(problems))
    return one, other


def _attempt(read: Callable[[], First], problems: list[str]) -> First | None:
    try:
        return read()
    except (SchedulerError, MesosLocalError) as error:
        problems.append(str(error))
        return None


# --- run


#: How long executors outlive an agent that is gone, in a cluster that lives for one run only.
_RECOVERY = {"recovery_timeout": "10secs"}
#: Options of the API's access: on loopback the scheduler of a run accepts requests without a token.
_ACCESS = ("read_token", "write_token", "certificate_file", "key_file", "client_ca_file")


@click.command()
@click.argument("options", type=click.Path(path_type=Path, readable=False))
@click.option(
    "--agents",
    type=click.Path(path_type=Path, readable=False),
    help="JSON list of {hostname, resources, attributes}.",
)
@directory_option
@click.option("--timeout", type=click.FloatRange(min=0, min_open=True), help="Stop the job after so many seconds.")
@json_switch("Print the result as one JSON object.")
@click.option("--report", "page", type=click.Path(dir_okay=False, path_type=Path), help="Draw the run as an HTML page.")
def run(
    options: Path, agents: Path | None, directory: Path, timeout: float | None, as_json: bool, page: Path | None
) -> None:
    """Run the job of OPTIONS (a JSON file) on a real Mesos on this machine, and follow it to its end.

    Uses the local cluster that is up, or starts one for the time of the run. Ctrl-C stops the job gracefully; a second
    one leaves without waiting for it.
    """
    with ExitStack() as stack:
        stack.enter_context(_print_errors(as_json))
        check_page(page)
        running = LocalCluster.running(directory)
        first_port = 0 if running else stack.enter_context(port_block())
        stack.enter_context(clean_up_on_signals())
        spec, specs = evaluate_both(lambda: load_options(options), lambda: _agents(agents, running, first_port))
        check_feasible(spec, specs)
        job = _Job(spec, load_document(options), timeout, as_json, page)
        found = _run(job, running or stack.enter_context(_own_cluster(specs)), own=running is None)
    sys.exit(exit_code(found))


@contextmanager
def _print_errors(as_json: bool) -> Iterator[None]:
    """With --json, print errors to standard output, too, in the form of the API."""
    try:
        yield
    except (SchedulerError, MesosLocalError) as error:
        if as_json:
            click.echo(json.dumps({"error": {"message": str(error)}}, indent=2))
        raise


def _agents(path: Path | None, running: LocalCluster | None, first_port: int) -> Sequence[AgentSpec]:
    if running is None:
        return default_agents(first_port) if path is None else with_ports(load_agents(path), first_port)
    if path is not None:
        raise JobError(f"--agents {path}: a local cluster is up in {running.directory}; end it first: local down")
    return running.specs


@dataclass(frozen=True, slots=True)
class _Job:
    """`document`: the options with absolute paths; `timeout`: seconds; `page`: where the run is drawn."""

    spec: ServiceSpec
    document: Mapping[str, Any]
    timeout: float | None
    quiet: bool
    page: Path | None

    @property
    def console(self) -> bool:
        """Print the scheduler's log, because no screen is drawn."""
        return not self.quiet and not sys.stderr.isatty()


def _run(job: _Job, cluster: LocalCluster, *, own: bool) -> Report:
    """Run the job and keep its report. `own`: the cluster was started for this run."""
    folder = RunFolder.create(job.spec.name, uuid.uuid4().hex)
    launch = prepare_launch(job.document, cluster, folder)
    # From here on signals only ask: the result is reported, and what was started is ended, in any case.
    with collect_signals() as signals:
        submitted, began = time.time(), time.monotonic()
        with run_scheduler(launch, job.spec.name, cluster.master.address, console=job.console) as scheduler:
            start_run(job.document, folder, cluster.specs, submitted)
            grace = max((each.kill_grace for each in job.spec.jobs), default=0.0)
            watch = StopMonitor(scheduler, grace, job.timeout, signals)
            drawn = None if job.quiet or not sys.stderr.isatty() else output_redactor(job.spec, job.document)
            watched = follow(scheduler, watch, cluster, own=own, drawn=drawn)
        seconds = time.monotonic() - began
        found = build_report(watched, job.spec, cluster, folder, seconds, output_redactor(job.spec, job.document))
        surroundings = environment_of(resolve(job.document))
        finish_run(job.document, found, folder, cluster.specs, submitted, surroundings, job.page)
        _print_result(found, folder, job.quiet)
        return found


def prepare_launch(
    document: Mapping[str, Any],
    cluster: LocalCluster,
    folder: RunFolder,
    state: str = "",
    notify: Callable[[str], None] = lambda notice: click.echo(notice, err=True),
) -> SchedulerLaunch:
    """Write the options of one run's scheduler; return how it is started.

    `state`: where the scheduler keeps its state; empty: in the run's folder. `notify` gets a notice for each option
    that a local run does not use: master, state, logins and interpreter of the scheduler are its own.
    """
    defaults = scheduler_defaults()
    own = {
        "mesos.master": cluster.master.address,
        "scheduler.state": state or folder.store.as_uri(),
        "scheduler.containerized": False,
        "scheduler.python": sys.executable,
        "service.service_account_secret": "",
        "mesos.secret": "",
        "tls.enabled": False,
        "secret_delivery.url": "",
        **dict.fromkeys((f"api.{name}" for name in _ACCESS), ""),
    }
    completed = with_values(document, {**defaults, "service.checkpoint_dir": str(folder.checkpoints)})
    completed = with_values(completed, own, notify)
    folder.scheduler.mkdir(mode=0o700)
    write_private(folder.options, completed)
    secrets = secret_variables(completed)
    return SchedulerLaunch(folder.options, folder.scheduler, folder.scheduler_log, folder.recording, secrets)


def _print_result(found: Report, folder: RunFolder, as_json: bool) -> None:
    text = json.dumps(found, indent=2)
    try:
        folder.forget_scheduler()
        folder.result.write_text(text + "\n")
    except OSError as error:
        click.echo(f"the result could not be kept in {folder.path}: {error.strerror}", err=True)
    click.echo(text if as_json else summary(found))  # last: where it cannot be written, that is an error


def _own_cluster(specs: Sequence[AgentSpec]) -> LocalCluster:
    click.echo(f"starting a local Mesos with {len(specs)} agents", err=True)
    return LocalCluster(specs, agent_flags=_RECOVERY, die_with_parent=True)
