"""`dcos-tensorflow local run`: one job on the local cluster, followed to its end."""

from __future__ import annotations

import json
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mesos_local import AgentSpec, LocalCluster, MesosLocalError, default_agents, load_agents, with_ports
from tf_scheduler.errors import JobError, SchedulerError

from .as_json import json_switch
from .document import load_document
from .early import Started, start_early, started
from .folders import RunFolder
from .inputs import all_problems
from .interrupts import Interrupts, interrupts
from .local import directory_option, terminated_like_interrupted
from .meanwhile import Meanwhile
from .ports import port_block

# What is wanted only when the scheduler starts already, or at the end, is loaded then.
if TYPE_CHECKING:
    from tf_scheduler.model.spec import ServiceSpec

    from .follow import Watched
    from .report import Report
    from .words import Words

#: How long executors outlive an agent that is gone, in a cluster that lives for one run only.
_RECOVERY = {"recovery_timeout": "10secs"}


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

    Uses the local cluster that is up, or starts one for the time of the run. The package's Marathon app is rendered and
    started as `local install` does it. Ctrl-C stops the job gracefully; a second one leaves without waiting for it.
    """
    with ExitStack() as stack:
        stack.enter_context(_errors_told(as_json))
        if page is not None:
            from .report import check_page

            check_page(page)
        running = LocalCluster.running(directory)
        first_port = 0 if running else stack.enter_context(port_block())
        stack.enter_context(terminated_like_interrupted())
        app = stack.enter_context(ExitStack())
        early = start_early(options, running, app, console=_console(as_json)) if running else None
        spec, specs = _checked(options, lambda: _agents(agents, running, first_port))
        found = _run(_Job(spec, load_document(options), timeout, as_json, page), running, specs, app, early)
    from .report import exit_code

    sys.exit(exit_code(found))


@contextmanager
def _errors_told(as_json: bool) -> Iterator[None]:
    """What keeps the job from being run is JSON, too, for whoever reads standard output; in the API's shape."""
    try:
        yield
    except (SchedulerError, MesosLocalError) as error:
        if as_json:
            click.echo(json.dumps({"error": {"message": str(error)}}, indent=2))
        raise


def _checked(options: Path, agents: Callable[[], Sequence[AgentSpec]]) -> tuple[ServiceSpec, Sequence[AgentSpec]]:
    """All that can be wrong before anything runs."""
    from .files import load_options
    from .fit import check_fit

    spec, specs = all_problems(lambda: load_options(options), agents)
    check_fit(spec, specs)
    return spec, specs


def _agents(path: Path | None, running: LocalCluster | None, first_port: int) -> Sequence[AgentSpec]:
    if running is None:
        return default_agents(first_port) if path is None else with_ports(load_agents(path), first_port)
    if path is not None:
        raise JobError(f"--agents {path}: a local cluster is up in {running.directory}; end it first: local down")
    return running.specs


@dataclass(frozen=True, slots=True)
class _Job:
    """What is run, and how. `document`: its options as DC/OS gets them; `timeout`: seconds; `page`: the picture."""

    spec: ServiceSpec
    document: Mapping[str, Any]
    timeout: float | None
    quiet: bool
    page: Path | None


def _run(
    job: _Job, running: LocalCluster | None, specs: Sequence[AgentSpec], app: ExitStack, early: Started | None
) -> Report:
    """The report, printed and kept. A cluster of our own lives as long as this call; one that was up stays up.

    `app` holds the scheduler: `early`, or the one that is started now.
    """
    with ExitStack() as stack:
        cluster = running or stack.enter_context(_own_cluster(specs))
        found = early or app.enter_context(_started(job, cluster))
        # From here on signals only ask: what was achieved is told, and what was started is ended, in any case.
        signals = stack.enter_context(interrupts())
        submitted, began = time.time(), time.monotonic()
        with app:
            watched = _followed(job, found, cluster, running is None, signals, submitted)
            surroundings = Meanwhile(lambda: _surroundings(job.document))  # while the scheduler ends
        seconds = time.monotonic() - began
        return _reported(job, watched, found.folder, cluster, submitted, seconds, surroundings.value())


def _started(job: _Job, cluster: LocalCluster) -> AbstractContextManager[Started]:
    folder = RunFolder.create(job.spec.name, uuid.uuid4().hex)
    return started(job.document, cluster, folder, console=_console(job.quiet))


def _console(quiet: bool) -> bool:
    """Whether the scheduler's log is told: nobody draws."""
    return not quiet and not sys.stderr.isatty()


def _followed(
    job: _Job, found: Started, cluster: LocalCluster, own: bool, signals: Interrupts, submitted: float
) -> Watched:
    for notice in found.notices:
        click.echo(notice, err=True)
    found.let()
    from .follow import Watch, follow
    from .remember import begin

    begin(job.document, found.folder, cluster.specs, submitted)
    grace = max((each.kill_grace for each in job.spec.jobs), default=0.0)
    return follow(found.app, Watch(found.app, grace, job.timeout, signals), cluster, own=own, drawn=_drawn(job))


def _drawn(job: _Job) -> Words | None:
    """What of its output a terminal shows; None: nobody draws."""
    if job.quiet or not sys.stderr.isatty():
        return None
    from .words import words_of

    return words_of(job.spec, job.document)


def _surroundings(document: Mapping[str, Any]) -> Mapping[str, str]:
    from tf_scheduler.options.loader import resolve

    from .remember import environment_of

    return environment_of(resolve(document))


def _reported(
    job: _Job,
    watched: Watched,
    folder: RunFolder,
    cluster: LocalCluster,
    submitted: float,
    seconds: float,
    surroundings: Mapping[str, str],
) -> Report:
    from .remember import remember
    from .report import report
    from .words import words_of

    found = report(watched, job.spec, cluster, folder, seconds, words_of(job.spec, job.document))
    remember(job.document, found, folder, cluster.specs, submitted, surroundings, job.page)
    _tell(found, folder, job.quiet)
    return found


def _tell(found: Report, folder: RunFolder, as_json: bool) -> None:
    from .report import summary

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
