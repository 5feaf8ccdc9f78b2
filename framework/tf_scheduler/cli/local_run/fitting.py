"""Check whether a job fits the empty local cluster; reduce sizes until it fits."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from dcos_command.command import echo
from mesos_local.agents import AgentSpec, default_agents
from mesos_local.cluster import LocalCluster
from mesos_local.host import MesosLocalError
from tf_executor.contract.text import join_words
from tf_scheduler.cli.common.folders import checkpoints_in, short_path, state_home
from tf_scheduler.cli.common.options_file import can_check_gpus
from tf_scheduler.core.placement.agents import PlacementContext
from tf_scheduler.core.placement.matching import NoMatch, first_gangs, match_gang
from tf_scheduler.errors import JobError, OptionsError
from tf_scheduler.model.ids import AgentId, OfferId
from tf_scheduler.model.offer import Offer
from tf_scheduler.model.reasons import AgentRejected, TooSmall
from tf_scheduler.model.resources import UNIT, Needs, Resource, Value, format_thousandths, thousandths
from tf_scheduler.model.spec import JobSpec, ServiceSpec
from tf_scheduler.options.load import resolve
from tf_scheduler.options.spec import to_spec

#: Maximum number of kinds of tasks and agents, and of names, in one message.
_MAX_LINES = 3
_UNITS = {"cpus": "cpus", "mem": "MB", "disk": "MB of disk", "gpus": "GPUs"}


def check_feasible(spec: ServiceSpec, agents: Sequence[AgentSpec]) -> None:
    """Raise JobError with the reasons if the job does not fit the empty cluster."""
    match = _mismatch(spec, agents)
    if match is not None:
        raise JobError("\n".join(_mismatch_lines(spec, agents, match)))


def own_agents() -> Sequence[AgentSpec]:
    """Return the agents of the local cluster, else those that a run would start."""
    with suppress(MesosLocalError):  # a damaged cluster, reported by the run
        if running := LocalCluster.running(state_home() / "local"):
            return running.specs
    return default_agents()


def _mismatch(spec: ServiceSpec, agents: Sequence[AgentSpec]) -> NoMatch | None:
    """Return what does not fit the empty cluster; None if the job fits."""
    offers = [full_offer(agent) for agent in agents if spec.needs_gpus or not _has_gpus(agent)]
    context = PlacementContext(spec.executor.needs, spec.placement)
    matches = (match_gang(tasks, offers, context) for tasks in first_gangs(spec))
    return next((match for match in matches if isinstance(match, NoMatch)), None)


def _has_gpus(agent: AgentSpec) -> bool:
    """Return whether an agent makes offers only to frameworks with GPUs (gpu-support)."""
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
        resources = agent.resource_pairs()
        units = ((name, unit) for name, unit in _UNITS.items() if name in resources and name != "gpus")
        sizes = ", ".join(f"{resources[name]} {unit}" for name, unit in units)
        rows.setdefault((sizes, _agent_result(agent, spec, match)), []).append(agent.hostname)
    table = [(_range(names), sizes, _each(text, len(names))) for (sizes, text), names in rows.items()][:_MAX_LINES]
    for names_text, amounts, result in table:
        widths = [max(len(row[column]) for row in table) for column in (0, 1)]
        yield f"  {names_text:<{widths[0]}}   {amounts:<{widths[1]}}   {result}"
    if len(rows) > len(table):
        yield f"  ... and {len(rows) - len(table)} other kinds of agents"
    if fits := [*_what_fits(spec, agents, missing)] or [*_what_fits(spec, agents, spec.jobs)]:
        yield f"What fits: {'; or '.join(fits)}"


def _each(result: str, agents: int) -> str:
    """Return the text for several agents that have the same result."""
    taken, number, rest = result.partition("takes ")
    return result if taken or not number or agents == 1 else f"{'one' if rest[:2] in ('1', '1;') else rest} each"


def _range(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= _MAX_LINES else f"{names[0]} to {names[-1]}"


def _amount(needs: Needs, name: str) -> str:
    amount, unit = getattr(needs, name), _UNITS[name]
    return f"{format_thousandths(amount)} {unit.removesuffix('s') if amount == UNIT else unit}"


def _needs_text(needs: Needs, count: int) -> str:
    text = join_words(
        [
            *(_amount(needs, name) for name, _ in needs.scalars()),
            *([f"{needs.ports} ports" if needs.ports > 1 else "a port"] if needs.ports else []),
        ]
    )
    return f"need {text} each, including their executors" if count > 1 else f"needs {text}, including its executor"


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
    """Yield changes with which the job fits: smaller counts, half the CPUs, or --fit."""
    counts, count = _largest_counts(spec, agents, jobs)
    if count:
        reduced = [job.section for job in jobs if counts[job.section] < job.count]
        yield join_words([f"{section}.count {counts[section]}" for section in reduced])
    half = replace(jobs[0], needs=replace(jobs[0].needs, cpus=jobs[0].needs.cpus // 2))
    more = _largest_counts(spec, agents, [half])[1] if len(jobs) == 1 else 0
    if more > count:
        yield f"{more} with {half.section}.cpus {format_thousandths(half.needs.cpus)}"
    if _mismatch(_smaller(spec, agents, lambda *_: True), agents) is None:
        yield "local run --fit"


def _largest_counts(
    spec: ServiceSpec, agents: Sequence[AgentSpec], jobs: Sequence[JobSpec]
) -> tuple[Mapping[str, int], int]:
    """Return section -> count with which the spec fits, and the largest of the counts.

    `jobs` replace the jobs of their sections. The largest count is 0 if not even one task of each job fits.
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
    """Reduce the default sizes of a job that does not fit; `fit`: also explicit sizes.

    Prints a notice for each section. A job that cannot fit gets its smallest sizes, for the message.
    """
    sections = {name: section for name, section in document.items() if isinstance(section, Mapping)}
    if _mismatch(spec, agents) is None:
        return document, spec
    smaller = _smaller(spec, agents, lambda section, name: fit or name not in sections.get(section, {}))
    if _mismatch(smaller, agents):
        return document, smaller
    adapted = {name: dict(section) for name, section in sections.items()}
    for old, new in zip(spec.jobs, smaller.jobs, strict=True):
        changed = [name for name in _SIZES if getattr(old.needs, name) != getattr(new.needs, name)]
        for section, option, amount in ((*_option(new, name), getattr(new.needs, name)) for name in changed):
            adapted.setdefault(section, {})[option] = amount / UNIT if option.endswith("cpus") else amount // UNIT
        own = [name for name in changed if _option(new, name)[1] in sections.get(_option(new, name)[0], {})]
        for names, why in (([name for name in changed if name not in own], "not set"), (own, "too large")):
            if names:
                options = join_words([".".join(_option(new, name)) for name in names])
                now, before = (join_words([_amount(job.needs, name) for name in names]) for job in (new, old))
                echo(f"notice: {options}: {why}; using {now} here ({before} on a cluster)", err=True)
    return {**document, **adapted}, smaller


def _smaller(spec: ServiceSpec, agents: Sequence[AgentSpec], may_change: Callable[[str, str], bool]) -> ServiceSpec:
    """Return the spec with the largest sizes that fit, else with the smallest sizes."""

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
    """Return section and name of the option that sets a size of a job."""
    return ("data_service", f"dispatcher_{size}") if job.section == "data_dispatcher" else (job.section, size)


def notice_of_checkpoints(folder: str) -> None:
    """Print a notice if a job finds checkpoints, and how to start without them."""
    if Path(folder).is_absolute() and checkpoints_in(folder):
        new = "to start new, remove the folder, or set service.checkpoint_dir to another one"
        echo(f"notice: {short_path(folder)} has checkpoints of an earlier run, to resume from; {new}", err=True)


def notice_of_gpus(spec: ServiceSpec, agents: Sequence[AgentSpec]) -> None:
    """Print a notice if the job asks for GPUs that this machine does not have."""
    names = [agent.hostname for agent in agents if _has_gpus(agent)]
    if spec.needs_gpus and names and not can_check_gpus():
        echo(f"notice: no GPU on this machine; {_range(names)} only counts them", err=True)


def fits_machine(options: dict[str, Any]) -> bool:
    """Return whether the local cluster can run the job; True for invalid options."""
    try:
        spec = to_spec(resolve(options, {"executor": {"url": "file:///executor"}}))
    except OptionsError:
        return True  # reported later
    try:
        check_feasible(spec, own_agents())
    except JobError:
        return False
    return True


# --- the empty cluster

#: Amount of a resource that an agent's specification omits: the agent detects it itself.
_UNLIMITED = thousandths(1e12)


def full_offer(agent: AgentSpec) -> Offer:
    """Return the offer of an agent without tasks."""
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
