"""What is left of the agents while a gang is placed. Rooms are changed in place, inside one search only."""

from __future__ import annotations

from collections.abc import Iterable

from tf_scheduler.core.resources import PORTS as PORTS_NAME
from tf_scheduler.model.resources import Resource

from .agents import Agent
from .demand import CPUS, DISK, GPUS, MEM, PORTS, Demand

_DIMENSION = {"cpus": CPUS, "mem": MEM, "disk": DISK, "gpus": GPUS}


class Room:
    """One agent: what is free of it, and how much of the gang is there."""

    __slots__ = ("agent", "free", "groups", "index", "rank", "touched", "used", "whole")

    def __init__(self, agent: Agent, index: int) -> None:
        self.agent = agent
        #: Position among the rooms, which are in the order of host names: the last word between equals.
        self.index = index
        self.whole = amounts_in(agent.resources)
        self.free = list(self.whole)
        #: Number of its neighbourhood, the best first.
        self.rank = 0
        #: Whether a task of the service is there, by this search or before.
        self.used = False
        #: Whether this search took from it.
        self.touched = False
        #: Section -> tasks there.
        self.groups: dict[str, int] = {}

    def holds(self, wants: Iterable[tuple[int, int]]) -> int:
        """How many times `wants` fits into what is free."""
        free, most = self.free, 1 << 60
        for place, amount in wants:
            fits = free[place] // amount
            if fits < most:
                most = fits
        return most

    def take(self, demand: Demand) -> None:
        """One task of `demand` goes here."""
        for place, amount in demand.wants:
            self.free[place] -= amount
        self.used = self.touched = True
        self.count(demand.job.group)

    def count(self, group: str) -> None:
        self.groups[group] = self.groups.get(group, 0) + 1


def amounts_in(resources: Iterable[Resource]) -> tuple[int, int, int, int, int]:
    """Sums over all entries, by dimension: a name is not unique in an offer."""
    sums = [0, 0, 0, 0, 0]
    for entry in resources:
        value = entry.value
        if isinstance(value, int):
            place = _DIMENSION.get(entry.name)
            if place is not None:
                sums[place] += value
        elif entry.name == PORTS_NAME and isinstance(value, tuple):
            for begin, end in value:
                sums[PORTS] += end - begin + 1
    return (sums[CPUS], sums[MEM], sums[DISK], sums[GPUS], sums[PORTS])
