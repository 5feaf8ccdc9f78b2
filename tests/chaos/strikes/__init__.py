"""Inject faults into real processes; return victim and tasks that they ended."""

from __future__ import annotations

from collections.abc import Mapping

from chaos.arena import Arena
from chaos.faults import TWO, Strike

from . import agents, master, programs, scheduler, state
from .common import Done, Kind

KINDS: Mapping[str, Kind] = {
    **programs.KINDS,
    **agents.KINDS,
    **master.KINDS,
    **scheduler.KINDS,
    **state.KINDS,
}


def strike(arena: Arena, what: Strike) -> Done:
    """Inject the fault; return when the rest is up to the scheduler and Mesos."""
    kinds = [part.name for part in what.parts] if what.fault.name == TWO else [what.fault.name]
    done = [KINDS[kind](arena, what.number) for kind in kinds]
    for each in done:
        each.mend()
    return Done(" and ".join(each.victim for each in done), frozenset().union(*(each.hit for each in done)))
