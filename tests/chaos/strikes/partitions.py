"""Partitions of agents, which need a cluster with containers."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import partial

from chaos.arena import Arena
from kit.containers import delayed, dropped, impatient
from mesos_local.network import GATEWAY, agent_address
from tf_scheduler.api.views.base import SILENCE

from . import agents
from .agents import Silenced, until_replaced, until_unreachable
from .common import Done, Kind, launched, pick_agent

_TO, _FROM = "OUTPUT -d", "INPUT -s"
_BOTH = (_TO, _FROM)
_EVERYTHING = "0.0.0.0/0"
_SOME = "-m statistic --mode random --probability 0.2"


def _from_master(*directions: str) -> Silenced:
    """Lose the packets between an agent and the address of master and scheduler."""
    return lambda arena, agent: dropped(arena.cluster, agent, *(f"{each} {GATEWAY}" for each in directions))


def _from_peers(*directions: str) -> Silenced:
    """Lose the packets between an agent, with its tasks, and the other agents."""

    def silenced(arena: Arena, agent: str) -> AbstractContextManager[None]:
        names = list(arena.cluster.agents)
        others = [agent_address(number) for number, name in enumerate(names, 1) if name != agent]
        return dropped(arena.cluster, agent, *(f"{each} {other}" for each in directions for other in others))

    return silenced


def _lossy(arena: Arena, agent: str) -> AbstractContextManager[None]:
    return dropped(arena.cluster, agent, *(f"{each} {_EVERYTHING} {_SOME}" for each in _BOTH))


def _slow(arena: Arena, agent: str) -> AbstractContextManager[None]:
    return delayed(arena.cluster, agent, "200ms")


def _until(what: str, holds: Callable[[Arena, float], bool], silenced: Silenced) -> Kind:
    """Silence an agent until the condition, of arena and begin, holds."""

    def do(arena: Arena, number: int) -> Done:
        victim, began = pick_agent(arena, number), time.time()
        with silenced(arena, victim):
            arena.until(what, lambda: holds(arena, began))
        return Done(victim, frozenset(launched(arena, began)))

    return do


def _lasting(silenced: Silenced, seconds: float) -> Kind:
    return _until("the fault lasted for a while", lambda _, began: time.time() > began + seconds, silenced)


def _is_stalled(arena: Arena, began: float) -> bool:
    """Whether users see that the training stands still since this fault."""
    notices = arena.app.overview.notices if arena.app.overview else ()
    return time.time() > began + SILENCE and any(notice.startswith("no progress for ") for notice in notices)


def _timed_out(arena: Arena, number: int) -> Done:
    """Stands for a partition of more than 15 minutes."""
    with impatient(arena.cluster):
        return _lasting(_from_peers(*_BOTH), 60.0)(arena, number)


_short = partial(_lasting, seconds=20.0)

KINDS: Mapping[str, Kind] = {
    "agent-containers": agents.KINDS["agent"],
    "master-cut": until_unreachable(_from_master(*_BOTH)),
    "master-cut-to": until_unreachable(_from_master(_TO)),
    "master-cut-from": until_unreachable(_from_master(_FROM)),
    "master-cut-long": until_replaced(_from_master(*_BOTH)),
    "peers-cut": _short(_from_peers(*_BOTH)),
    "peers-cut-to": _short(_from_peers(_TO)),
    "peers-cut-from": _short(_from_peers(_FROM)),
    "peers-cut-long": _until("the training counts as stalled", _is_stalled, _from_peers(*_BOTH)),
    "peers-cut-timeout": _timed_out,
    "packet-loss": _lasting(_lossy, 30.0),
    "packet-delay": _lasting(_slow, 30.0),
}
