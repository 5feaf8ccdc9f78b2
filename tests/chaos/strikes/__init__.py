"""Inject faults into real processes; return victim and tasks that they ended."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from chaos.arena import Arena
from chaos.faults import Fault, Strike

from . import agents, master, partitions, programs, scheduler, state
from .common import Done, Kind

KINDS: Mapping[str, Kind] = {
    **programs.KINDS,
    **agents.KINDS,
    **master.KINDS,
    **partitions.KINDS,
    **scheduler.KINDS,
    **state.KINDS,
}


def strike(arena: Arena, what: Strike) -> Done:
    """Inject the fault; return when the rest is up to the scheduler and Mesos."""

    def inject(fault: Fault) -> Done:
        done = KINDS[fault.name](arena, what.number)
        done.mend()
        return done

    if not what.parts:
        return inject(what.fault)
    with ThreadPoolExecutor(len(what.parts)) as together:
        done = list(together.map(inject, what.parts))
    victims = (f"{fault.name} ({each.victim})" for fault, each in zip(what.parts, done, strict=True))
    return Done(" and ".join(victims), frozenset().union(*(each.hit for each in done)))
