"""Faults of the scheduler's process."""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping

from chaos.arena import UNREACHABLE_TIMEOUT, Arena
from kit.freezing import frozen

from .common import Done, Kind, pick_agent, reported, signal_scheduler


def _scheduler(arena: Arena, _number: int) -> Done:
    process = arena.app.process

    def again() -> bool:
        return arena.app.process not in (None, process)

    signal_scheduler(arena, signal.SIGKILL)
    return Done("scheduler", mend=lambda: arena.until("Marathon starts the scheduler again", again))


def _scheduler_kills(arena: Arena, number: int) -> Done:
    for _ in range(5):
        _scheduler(arena, number).mend()
    return Done("scheduler")


def _scheduler_away(arena: Arena, number: int) -> Done:
    """The scheduler continues when the time of its unreachable tasks is over."""
    victim, began = pick_agent(arena, number), time.time()
    names, node = arena.hosts()[victim], arena.wanted[victim]
    with frozen(node):
        arena.until("its tasks are out of reach", lambda: names <= reported(arena, "unreachable", began))
        signal_scheduler(arena, signal.SIGSTOP)
    try:
        arena.until("its tasks would be given up", lambda: time.time() > began + 2 * UNREACHABLE_TIMEOUT, unseen=True)
    finally:
        signal_scheduler(arena, signal.SIGCONT)
    arena.until("its tasks are back", lambda: names <= reported(arena, "running", began))
    return Done(victim)


KINDS: Mapping[str, Kind] = {
    "scheduler": _scheduler,
    "scheduler-kills": _scheduler_kills,
    "scheduler-away": _scheduler_away,
}
