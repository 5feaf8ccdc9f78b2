"""`dcos-tensorflow local run`: run one job on the local cluster to its end."""

from __future__ import annotations

import json
import sys
import time
import uuid
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from dcos_command.command import FloatRange
from dcos_command.service import EXIT_CODES
from mesos_local.agents import AgentSpec, default_agents, load_agents, with_ports
from mesos_local.cluster import LocalCluster
from mesos_local.host.errors import MesosLocalError
from tf_executor.contract.text import pluralize
from tf_scheduler.cli.common.folders import RunFolder, UserPath, short_path, state_home
from tf_scheduler.cli.common.groups import examples
from tf_scheduler.cli.common.options_file import can_check_gpus, load_document, load_options
from tf_scheduler.cli.common.output import echo_json, folded, json_switch, output_redactor, say
from tf_scheduler.cli.local_run.follow import (
    ALL,
    LEADER,
    OutputFollower,
    StopMonitor,
    collect_signals,
    follow,
    line_view,
    live_view,
    prepare_launch,
    run_scheduler,
)
from tf_scheduler.cli.local_run.ports import port_block
from tf_scheduler.cli.local_run.report import Report, build_report, check_page, finish_run, start_run, summary_lines
from tf_scheduler.cli.local_run.view import EVERY, names_of
from tf_scheduler.core.placement.agents import PlacementContext
from tf_scheduler.core.placement.matching import NoMatch, match_gang
from tf_scheduler.errors import JobError, NotRunningError, SchedulerError
from tf_scheduler.model.reasons import AgentRejected, TooSmall
from tf_scheduler.model.resources import UNIT, Needs, format_thousandths
from tf_scheduler.model.spec import JobSpec, ServiceSpec
from tf_scheduler.model.state import Verdict

from .local import clean_up_on_signals, directory_option, fit_option, full_offer, gangs, settings_option

#: Maximum number of kinds of tasks and agents, and of names, in one message.
_MAX_LINES = 3
_listed = partial(names_of, limit=sys.maxsize)
_UNITS = {"cpus": "cpus", "mem": "MB", "disk": "MB of disk", "gpus": "GPUs"}
#: Executors exit soon after their agent, because the cluster lives for one run only.
_AGENT_FLAGS = {"recovery_timeout": "10secs"}


# --- feasibility


def check_feasible(spec: ServiceSpec, agents: Sequence[AgentSpec]) -> None:
    """Raise JobError with the reasons if the job does not fit the empty cluster."""
    match = _mismatch(spec, agents)
    if match is not None:
        raise JobError("\n".join(_mismatch_lines(spec, agents, match)))


def own_agents() -> Sequence[AgentSpec]:
    """Return the agents of the local cluster, else those of a run of its own."""
    with suppress(MesosLocalError):  # a damaged cluster, reported by the run
        if running := LocalCluster.running(state_home() / "local"):
            return running.specs
    return default_agents()


def _mismatch(spec: ServiceSpec, agents: Sequence[AgentSpec]) -> NoMatch | None:
    """Return what does not fit the empty cluster; None if the job fits."""
    offers = [full_offer(agent) for agent in agents if spec.needs_gpus or not _has_gpus(agent)]
    context = PlacementContext(spec.executor.needs, spec.placement)
    matches = (match_gang(tasks, offers, context) for tasks in gangs(spec))
    return next((match for match in matches if isinstance(match, NoMatch)), None)


def _has_gpus(agent: AgentSpec) -> bool:
    """Return whether only frameworks that ask for GPUs get its offers (gpu-support)."""
    return "gpus" in agent.resource_pairs()


def _mismatch_lines(spec: ServiceSpec, agents: Sequence[AgentSpec], match: NoMatch) -> Iterator[str]:
    """Yield at most ten lines: needs of the tasks, amounts of the agents, what fits."""
    total, kinds = len(match.partial) + len(match.reasons), {job.kind for job in spec.jobs}
    what = f"{next(iter(kinds)).value}s" if len(kinds) == 1 else "tasks"
    taken = f": they take {len(match.partial)} of {total} {what}" if total > 1 else ""
    yield f"the job can never fit these agents{taken}"
    missing = [job for job in spec.jobs if any(task.job is job and task.name in match.reasons for task in spec.tasks())]
    for job in missing[:_MAX_LINES]:
        names = [task.name for task in spec.tasks() if task.job is job]
        yield f"  {_range(names)} {_needs_text(job.needs + spec.executor.needs, len(names))}"
    rows: dict[tuple[str, str], list[str]] = {}
    for agent in agents:
        rows.setdefault((_amounts(agent), _agent_result(agent, spec, match)), []).append(agent.hostname)
    shown = [(_range(names), sizes, _each(text, len(names))) for (sizes, text), names in rows.items()][:_MAX_LINES]
    for names_text, amounts, result in shown:
        widths = [max(len(row[column]) for row in shown) for column in (0, 1)]
        yield f"  {names_text:<{widths[0]}}   {amounts:<{widths[1]}}   {result}"
    if len(rows) > len(shown):
        yield f"  ... and {len(rows) - len(shown)} other kinds of agents"
    if fits := [*_what_fits(spec, agents, missing)] or [*_what_fits(spec, agents, spec.jobs)]:
        yield f"What fits: {'; or '.join(fits)}"


def _each(result: str, agents: int) -> str:
    """Return the result of several equal agents."""
    taken, number, rest = result.partition("takes ")
    return result if taken or not number or agents == 1 else f"{'one' if rest[:2] in ('1', '1;') else rest} each"


def _range(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= _MAX_LINES else f"{names[0]} to {names[-1]}"


def _amount(needs: Needs, name: str) -> str:
    amount, unit = getattr(needs, name), _UNITS[name]
    return f"{format_thousandths(amount)} {unit.removesuffix('s') if amount == UNIT else unit}"


def _needs_text(needs: Needs, count: int) -> str:
    text = _listed(
        [
            *(_amount(needs, name) for name, _ in needs.scalars()),
            *([f"{needs.ports} ports" if needs.ports > 1 else "a port"] if needs.ports else []),
        ]
    )
    return f"need {text} each, including their executors" if count > 1 else f"needs {text}, including its executor"


def _amounts(agent: AgentSpec) -> str:
    amounts = agent.resource_pairs()
    return ", ".join(f"{amounts[name]} {unit}" for name, unit in _UNITS.items() if name in amounts and name != "gpus")


def _agent_result(agent: AgentSpec, spec: ServiceSpec, match: NoMatch) -> str:
    """Return how many tasks the agent takes, or why it takes none."""
    rejected = (reason for each in match.reasons.values() for reason in each if isinstance(reason, AgentRejected))
    why = next((reason.reasons for reason in rejected if reason.hostname == agent.hostname), ())
    if count := sum(item.agent.hostname == agent.hostname for item in match.partial):
        limits = [str(reason) for reason in why if not isinstance(reason, TooSmall)]
        return "; ".join([f"takes {count}", *limits])
    if _has_gpus(agent) and not spec.needs_gpus:
        return f"none: its {agent.resource_pairs()['gpus']} GPUs are for jobs that ask for GPUs"
    return f"none: {'; '.join(map(str, why))}" if why else "none"


def _what_fits(spec: ServiceSpec, agents: Sequence[AgentSpec], jobs: Sequence[JobSpec]) -> Iterator[str]:
    """Yield smaller counts of these jobs, in proportion, and a smaller size of one."""
    counts, count = _largest_counts(spec, agents, jobs)
    if count:
        yield _listed([f"{job.section}.count {counts[job.section]}" for job in jobs if counts[job.section] < job.count])
    half = replace(jobs[0], needs=replace(jobs[0].needs, cpus=jobs[0].needs.cpus // 2))
    more = _largest_counts(spec, agents, [half])[1] if len(jobs) == 1 else 0
    if more > count:
        yield f"{more} with {half.section}.cpus {format_thousandths(half.needs.cpus)}"
    if _mismatch(_smaller(spec, agents, lambda *_: True), agents) is None:
        yield "local run --fit"


def _largest_counts(
    spec: ServiceSpec, agents: Sequence[AgentSpec], jobs: Sequence[JobSpec]
) -> tuple[Mapping[str, int], int]:
    """Return section -> count with which the spec fits, and the largest count.

    These jobs replace those of their sections. The largest count is 0 if the spec does not fit even with one task each.
    """
    own, largest = {job.section: job for job in jobs}, max(job.count for job in jobs)

    def counts(number: int) -> dict[str, int]:
        return {section: min(job.count, max(1, job.count * number // largest)) for section, job in own.items()}

    def is_too_large(number: int) -> bool:
        changed = counts(number)
        new = (
            replace(own[job.section], count=changed[job.section]) if job.section in changed else job
            for job in spec.jobs
        )
        return _mismatch(replace(spec, jobs=tuple(new)), agents) is not None

    fitting = bisect_left(range(1, largest + 1), x=True, key=is_too_large)
    return counts(fitting), fitting


# --- sizes of tasks

#: Shares of a size that are tried, the largest first; 0: the minimum.
_SHARES = (0.8, 0.6, 0.5, 0.4, 0.3, 0.25, 0.2, 0.15, 0.1, 0.05, 0.0)
#: Size -> its smallest amount, and the step between amounts.
_SIZES = {"cpus": (UNIT // 10, UNIT // 10), "mem": (1024 * UNIT, 256 * UNIT), "disk": (0, 256 * UNIT)}


def adapt_sizes(
    document: Mapping[str, Any], spec: ServiceSpec, agents: Sequence[AgentSpec], *, fit: bool = False
) -> tuple[Mapping[str, Any], ServiceSpec]:
    """Reduce omitted sizes of a job that does not fit, `fit`: also explicit ones.

    Prints a notice for each section. A job that cannot fit gets its smallest sizes, for the message.
    """
    given = {name: section for name, section in document.items() if isinstance(section, Mapping)}
    if _mismatch(spec, agents) is None:
        return document, spec
    smaller = _smaller(spec, agents, lambda section, name: fit or name not in given.get(section, {}))
    if _mismatch(smaller, agents):
        return document, smaller
    adapted = {name: dict(section) for name, section in given.items()}
    for old, new in zip(spec.jobs, smaller.jobs, strict=True):
        changed = [name for name in _SIZES if getattr(old.needs, name) != getattr(new.needs, name)]
        for section, option, amount in ((*_option(new, name), getattr(new.needs, name)) for name in changed):
            adapted.setdefault(section, {})[option] = amount / UNIT if option.endswith("cpus") else amount // UNIT
        own = [name for name in changed if _option(new, name)[1] in given.get(_option(new, name)[0], {})]
        for names, why in (([name for name in changed if name not in own], "not set"), (own, "too large")):
            if names:
                options = _listed([".".join(_option(new, name)) for name in names])
                now, before = (_listed([_amount(job.needs, name) for name in names]) for job in (new, old))
                click.echo(f"notice: {options}: {why}; using {now} here ({before} on a cluster)", err=True)
    return {**document, **adapted}, smaller


def _smaller(spec: ServiceSpec, agents: Sequence[AgentSpec], may_change: Callable[[str, str], bool]) -> ServiceSpec:
    """Return the spec with the largest sizes that fit, or with the smallest."""

    def reduced(job: JobSpec, share: float) -> JobSpec:
        amounts = {name: getattr(job.needs, name) for name in _SIZES if may_change(*_option(job, name))}
        smaller = {
            name: min(amount, max(_SIZES[name][0], int(amount * share) // _SIZES[name][1] * _SIZES[name][1]))
            for name, amount in amounts.items()
        }
        return replace(job, needs=replace(job.needs, **smaller))

    choices = [replace(spec, jobs=tuple(reduced(job, share) for job in spec.jobs)) for share in _SHARES]
    if _mismatch(choices[-1], agents):  # as a rule, if anything is too small
        return choices[-1]
    return next(choice for choice in choices if _mismatch(choice, agents) is None)


def _option(job: JobSpec, size: str) -> tuple[str, str]:
    """Return section and name of the option with a size of a job."""
    return ("data_service", f"dispatcher_{size}") if job.section == "data_dispatcher" else (job.section, size)


def notice_of_gpus(spec: ServiceSpec, agents: Sequence[AgentSpec]) -> None:
    """Print a notice if the job asks for GPUs that this machine does not have."""
    names = [agent.hostname for agent in agents if _has_gpus(agent)]
    if spec.needs_gpus and names and not can_check_gpus():
        click.echo(f"notice: no GPU on this machine; {_range(names)} only counts them", err=True)


# --- command


@click.command()
@examples("local run examples/digits/options.json", "local run options.json --set worker.count=4 --timeout 600")
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
@fit_option
@click.option("--enforce-memory", is_flag=True, help="End tasks that use more memory than their mem.")
@click.option("-v", "--verbose", is_flag=True, help="Print the log of the scheduler, instead of drawing.")
@click.option("--follow", "followed", metavar="TASK", default="", help="Also print output: of TASK, `leader` or `all`.")
@click.option("--report", "page", type=UserPath(dir_okay=False), help="Write an HTML report to FILE.")
@click.option("--note", default="", metavar="TEXT", help="A note for the history, such as 'lr 0.1'.")
@click.option(
    "--every",
    type=FloatRange(min=0, min_open=True),
    default=EVERY,
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
        first_port = 0 if running else stack.enter_context(port_block())
        problems: list[str] = []
        with _collect(problems):
            spec = load_options(options, settings, containers=running is not None and running.has_containers)
            _check_followed(followed, spec)
        with _collect(problems):
            specs = _agents(agents, running, first_port)
        if problems:
            raise JobError("\n".join(problems))
        notice_of_gpus(spec, specs)
        document, spec = adapt_sizes(load_document(options, settings), spec, specs, fit=fit)
        check_feasible(spec, specs)
        job = _Job(spec, document, timeout, as_json, verbose, followed, page, note, every)
        report = _run(job, running or stack.enter_context(_own_cluster(specs)), own=running is None)
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
    #: Maximum seconds between two lines about the progress.
    every: float


def _run(job: _Job, cluster: LocalCluster, *, own: bool) -> Report:
    """Run the job and store its report. `own`: the cluster was started for this run."""
    folder = RunFolder.create(job.spec.name, uuid.uuid4().hex)
    launch, draws = prepare_launch(job.document, cluster, folder), sys.stderr.isatty() and not job.verbose
    # From here on a signal asks for the end: the result is always reported, and all processes are stopped.
    with collect_signals() as signals:
        submitted, began, master = time.time(), time.monotonic(), cluster.master.address
        announce = partial(_announce, job.spec, folder) if not job.quiet else lambda _page: None
        with run_scheduler(launch, job.spec.name, master, console=job.verbose, announce=announce) as scheduler:
            run = start_run(job.document, folder, cluster.specs, submitted, job.note)
            grace = max((each.settings.kill_grace for each in job.spec.jobs), default=0.0)
            watch = StopMonitor(scheduler, grace, job.timeout, signals)
            redactor = output_redactor(job.spec, job.document)
            follower = OutputFollower(job.followed, cluster, redactor)
            is_live = draws and not job.quiet
            live = live_view(cluster, redactor, scheduler, follower)
            with live if is_live else line_view(follower, folder.recording, job.every, quiet=job.quiet) as draw:
                result = follow(scheduler, watch, cluster, own=own, draw=draw)
            scheduler.stop()
            report = build_report(result, job.spec, cluster, folder, time.monotonic() - began, redactor)
            finish_run(run, report, job.page)
            # Commands find the run until its result is stored.
            with _print_os_errors():
                folder.result.write_text(json.dumps(report, indent=2) + "\n")
        with _print_os_errors():
            folder.forget_scheduler()
        _print_result(report, job.quiet)
        return report


def _announce(spec: ServiceSpec, folder: RunFolder, page: str) -> None:
    """Print what runs, and where it can be seen."""
    tasks = names_of([pluralize(job.count, job.kind.value) for job in spec.jobs if job.count])
    say(f"{spec.name}: {tasks}, {spec.strategy.value}; logs: {short_path(str(folder.logs))}")
    say(f"page: {page}")


@contextmanager
def _print_os_errors() -> Iterator[None]:
    """Print errors of the disk, which must not hide the result."""
    try:
        yield
    except OSError as error:
        click.echo(f"{error.filename}: the result cannot be written: {error.strerror}", err=True)


def _print_result(report: Report, as_json: bool) -> None:
    """Print the report. Raises OSError if it cannot be written."""
    is_terminal = sys.stdout is not None and sys.stdout.isatty()
    lines = map(folded, summary_lines(report)) if is_terminal else summary_lines(report)
    click.echo(json.dumps(report, indent=2) if as_json else "\n".join(lines))


def _own_cluster(specs: Sequence[AgentSpec]) -> LocalCluster:
    say(f"starting a local Mesos with {len(specs)} agents")
    return LocalCluster(specs, agent_flags=_AGENT_FLAGS, die_with_parent=True)
