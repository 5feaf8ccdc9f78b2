"""Whether a job can ever fit a cluster that we know whole, before anything is started."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from mesos_local import AgentSpec
from tf_scheduler.core.matching import NoMatch, match_gang
from tf_scheduler.core.placement.demand import Circumstances
from tf_scheduler.errors import JobError
from tf_scheduler.model.ids import AgentId, OfferId
from tf_scheduler.model.offer import Offer
from tf_scheduler.model.resources import Resource, Value, thousandths
from tf_scheduler.model.spec import ServiceSpec, Strategy, TaskSpec

#: What an agent offers of a resource that its specification leaves out: it detects that itself, so assume enough.
_ENOUGH = thousandths(1e12)
#: Of reasons: those of the first tasks stand for the others.
_LINES = 30


def check_fit(spec: ServiceSpec, agents: Iterable[AgentSpec]) -> None:
    """Raise JobError, with the reason of every task, when the gang does not fit the empty cluster."""
    offers = [_whole(agent) for agent in agents]
    if not spec.asks_for_gpus:
        # The master offers agents with GPUs only to frameworks that ask for GPUs (Mesos documentation, gpu-support).
        offers = [offer for offer in offers if all(entry.name != "gpus" for entry in offer.resources)]
    for tasks in _together(spec):
        _check(tasks, offers, Circumstances(spec.executor.needs, spec.placement))


def _together(spec: ServiceSpec) -> Iterator[tuple[TaskSpec, ...]]:
    """Tasks that must fit at the same time: all, but those that work for themselves may do so one after the other."""
    if spec.strategy is not Strategy.INDEPENDENT:
        yield tuple(spec.tasks())
        return
    firsts = {task.job.group: task for task in reversed(list(spec.tasks()))}
    yield from ((task,) for task in firsts.values())


def _check(tasks: tuple[TaskSpec, ...], offers: Sequence[Offer], about: Circumstances) -> None:
    match = match_gang(tasks, offers, about)
    if isinstance(match, NoMatch):
        lines = [f"{task}: {reason}" for task, reasons in match.reasons.items() for reason in reasons]
        more = [f"... and {len(lines) - _LINES} lines more"] if len(lines) > _LINES else []
        told = "\n".join(f"  {line}" for line in [*lines[:_LINES], *more])
        raise JobError(f"the job can never fit these agents:\n{told}")


def _whole(agent: AgentSpec) -> Offer:
    given = {name: _value(text) for name, text in agent.resource_pairs().items()}
    values = {"cpus": _ENOUGH, "mem": _ENOUGH, "disk": _ENOUGH, **given}
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
