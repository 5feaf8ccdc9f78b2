"""Faults of programs and executors."""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping
from functools import partial

from chaos.arena import Arena
from chaos.people import members, of_task

from .common import Done, Kind, kill_task, launched, pick, program_of, reported, tasks


def _worker_kills(arena: Arena, number: int) -> Done:
    victim = pick([name for name in tasks(arena) if name.startswith("worker")], number)
    for _ in range(2):
        kill_task(arena, victim, program=True)
        arena.until("it runs again", partial(_runs_since, arena, victim, time.time()))
    kill_task(arena, victim, program=True)
    return Done(victim, frozenset({victim}))


def _runs_since(arena: Arena, task: str, since: float) -> bool:
    return task in reported(arena, "running", since)


def _executor(arena: Arena, number: int) -> Done:
    victim = pick(tasks(arena), number)
    kill_task(arena, victim, program=False)
    return Done(f"executor of {victim}", frozenset({victim}))


def _program_frozen(arena: Arena, number: int) -> Done:
    victim, began = pick(tasks(arena), number), time.time()
    wanted = of_task(victim, program=True)
    for member in filter(wanted, members(arena.cluster.directory)):
        member.process.signal(signal.SIGSTOP)
    arena.until("it is launched again", lambda: victim in launched(arena, began))
    return Done(victim, frozenset({victim}))


KINDS: Mapping[str, Kind] = {
    "worker": program_of("worker"),
    "worker-kills": _worker_kills,
    "ps": program_of("ps"),
    "chief": program_of("chief"),
    "executor": _executor,
    "program-frozen": _program_frozen,
}
