"""Simple, slow placement check that shares no code with the scheduler's placement."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from simulation.pool import Pool
from tf_scheduler.core.placement.agents import PlacementContext
from tf_scheduler.core.placement.matching import Placement
from tf_scheduler.model.offer import Offer
from tf_scheduler.model.placement import Constraint, GpuScheduling
from tf_scheduler.model.resources import Needs, Resource
from tf_scheduler.model.spec import TaskSpec


def value_of(offer: Offer, name: str) -> str | None:
    if name == "hostname":
        return offer.hostname
    if name == "@region":
        return offer.region or None
    return offer.zone or None if name == "@zone" else offer.attributes.get(name)


def broken_by(rule: Constraint, offer: Offer, before: Sequence[Offer]) -> bool:
    """Return whether a task on `offer` breaks the rule, with its peers on `before`."""
    value, word, kind = value_of(offer, rule.field), rule.parameter, rule.operator.value
    if value is None:
        return kind not in ("IS_NOT", "UNLIKE")
    seen = [value_of(other, rule.field) for other in before]
    counts = {found: seen.count(found) for found in seen if found is not None}
    mine = counts.get(value, 0)
    if kind == "GROUP_BY":
        levels = counts.values()
        uneven = bool(counts) and mine > min(levels) and min(levels) < max(levels)
        return uneven or (bool(word) and len(counts) < int(word) and mine > 0)
    return not {
        "UNIQUE": mine < 1,
        "MAX_PER": mine < int(word) if kind == "MAX_PER" else True,
        "CLUSTER": value == word,
        "IS": value == word,
        "IS_NOT": value != word,
        "LIKE": bool(re.fullmatch(word, value)) if kind == "LIKE" else True,
        "UNLIKE": not re.fullmatch(word, value) if kind == "UNLIKE" else True,
    }[kind]


def violations(
    placements: Iterable[Placement], offers: Sequence[Offer], circumstances: PlacementContext
) -> Iterator[str]:
    """Return all violations by the placements, for the best order of launches.

    GROUP_BY depends on the order in which tasks come; that of the section's tasks by index is the product's.
    """
    at = {offer.agent_id: offer for offer in offers}
    left = {agent: sum((Pool.of(o.resources) for o in offers if o.agent_id == agent), Pool()) for agent in at}
    there: dict[str, list[Offer]] = {}
    for item in placements:
        job, offer = item.task.job, at[item.agent.id]
        taken = Pool.of((*item.task_resources, *item.executor_resources))
        if not left[item.agent.id].holds(taken):
            yield f"{item.task.name} takes {taken} of {left[item.agent.id]}"
        left[item.agent.id] -= taken
        if amounts(item.task_resources) != job.needs or amounts(item.executor_resources) != circumstances.executor:
            yield f"{item.task.name} does not get what it needs"
        others = there.setdefault(job.group, [])
        yield from (f"{item.task.name} breaks {rule}" for rule in job.constraints if broken_by(rule, offer, others))
        others.append(offer)
        yield from _etiquette(item.task, offer, circumstances)


def _etiquette(task: TaskSpec, offer: Offer, circumstances: PlacementContext) -> Iterator[str]:
    restricted = circumstances.placement.gpu_scheduling_behavior is GpuScheduling.RESTRICTED
    if restricted and not task.job.needs.gpus and amounts(offer.resources).gpus:
        yield f"{task.name} sits on GPUs"
    home = circumstances.placement.region or circumstances.region
    if offer.region != home and not any(rule.field == "@region" for rule in task.job.constraints):
        yield f"{task.name} is in region {offer.region}"


def amounts(resources: Iterable[Resource]) -> Needs:
    sums = {"cpus": 0, "mem": 0, "disk": 0, "gpus": 0, "ports": 0}
    for entry in resources:
        value: Any = entry.value
        many = value if isinstance(value, int) else sum(end - begin + 1 for begin, end in value)
        sums[entry.name] += many
    return Needs(**sums)


def exists(
    tasks: Sequence[TaskSpec],
    offers: Sequence[Offer],
    circumstances: PlacementContext,
    taken: Mapping[str, tuple[Needs, ...]] | None = None,
    there: Mapping[str, tuple[Offer, ...]] | None = None,
) -> bool:
    """Return whether any placement of all tasks exists, with one offer per agent."""
    taken, there = taken or {}, there or {}
    if not tasks:
        return True
    task, rest = tasks[0], tasks[1:]
    needs, group = task.job.needs + circumstances.executor, task.job.group
    for offer in offers:
        used = (*taken.get(offer.id, ()), needs)
        if not _holds(amounts(offer.resources), used) or any(True for _ in _etiquette(task, offer, circumstances)):
            continue
        others = there.get(group, ())
        if any(broken_by(rule, offer, others) for rule in task.job.constraints):
            continue
        after = ({**taken, offer.id: used}, {**there, group: (*others, offer)})
        if exists(rest, offers, circumstances, *after):
            return True
    return False


def _holds(whole: Needs, parts: Sequence[Needs]) -> bool:
    together = sum(parts, Needs())
    return all(getattr(together, name) <= getattr(whole, name) for name in ("cpus", "mem", "disk", "gpus", "ports"))


def first_fit(tasks: Sequence[TaskSpec], offers: Sequence[Offer], executor: Needs) -> dict[str, str] | None:
    """Place each task on the first offer that has enough resources and breaks no rule.

    Tasks are counted by value as they are placed. Task name -> offer id; None when a task finds no place.
    """
    left = {offer.id: list(_row(amounts(offer.resources))) for offer in offers}
    counts: dict[tuple[str, Constraint], dict[str, int]] = {}
    found: dict[str, str] = {}
    for task in tasks:
        wants, group = _row(task.job.needs + executor), task.job.group
        tallies = {rule: counts.setdefault((group, rule), {}) for rule in task.job.constraints}
        fitting = (offer for offer in offers if _fits(offer, left[offer.id], wants, tallies))
        if (offer := next(fitting, None)) is None:
            return None
        left[offer.id] = [have - want for have, want in zip(left[offer.id], wants, strict=True)]
        for rule, tally in tallies.items():
            value = value_of(offer, rule.field) or ""
            tally[value] = tally.get(value, 0) + 1
        found[task.name] = offer.id
    return found


def _fits(
    offer: Offer, free: Sequence[int], wants: Sequence[int], tallies: Mapping[Constraint, Mapping[str, int]]
) -> bool:
    if any(have < want for have, want in zip(free, wants, strict=True)):
        return False
    return not any(_full(rule, offer, tally) for rule, tally in tallies.items())


def _full(rule: Constraint, offer: Offer, tally: Mapping[str, int]) -> bool:
    """Like `broken_by`, with cached counts."""
    value, kind = value_of(offer, rule.field), rule.operator.value
    if value is None:
        return kind not in ("IS_NOT", "UNLIKE")
    mine = tally.get(value, 0)
    if kind in ("UNIQUE", "MAX_PER"):
        return mine >= (1 if kind == "UNIQUE" else int(rule.parameter))
    if kind == "GROUP_BY":
        least, most = min(tally.values(), default=0), max(tally.values(), default=0)
        return (mine > least and least != most) or (len(tally) < int(rule.parameter or 0) and mine > 0)
    return broken_by(rule, offer, ())


def _row(needs: Needs) -> tuple[int, ...]:
    return (needs.cpus, needs.mem, needs.disk, needs.gpus, needs.ports)
