"""Faults of the scheduler's process."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from chaos.arena import UNREACHABLE_TIMEOUT, Arena
from chaos.master_proxy import Calls
from chaos.witness import logged
from kit.freezing import frozen
from tf_scheduler.cli.local_run.process import SupervisedScheduler
from tf_scheduler.errors import JobError

from .common import Done, Kind, kill_task, launched, pick, pick_agent, program_of, reported, signal_scheduler, tasks

_HOUR = 3600.0


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


def _away(leave: Callable[[Arena], None], come_back: Callable[[Arena], None]) -> Kind:
    """The scheduler comes back when the time of its unreachable tasks is over."""

    def do(arena: Arena, number: int) -> Done:
        victim, began = pick_agent(arena, number), time.time()
        names, node = arena.hosts()[victim], arena.wanted[victim]
        with frozen(node):
            arena.until("its tasks are out of reach", lambda: names <= reported(arena, "unreachable", began))
            leave(arena)
        try:
            late = began + 2 * UNREACHABLE_TIMEOUT
            arena.until("its tasks would be given up", lambda: time.time() > late, unseen=True)
        finally:
            come_back(arena)
        arena.until("its tasks are back", lambda: names <= reported(arena, "running", began))
        return Done(victim)

    return do


def _clock(seconds: float) -> Kind:
    """Step the clock while a back-off and the time of unreachable tasks run."""

    def do(arena: Arena, number: int) -> Done:
        worker, began = pick([name for name in tasks(arena) if name.startswith("worker")], number), time.time()
        victim = pick(sorted(agent for agent, names in arena.hosts().items() if worker not in names), number)
        names, node = arena.hosts()[victim], arena.wanted[victim]
        with frozen(node):
            arena.until("its tasks are out of reach", lambda: names <= reported(arena, "unreachable", began))
            kill_task(arena, worker, program=True)
            arena.clock.set(seconds)
            stepped = logged(arena.witness, "the clock of this machine was set", began)
            arena.until("the scheduler reports the step", stepped)
        arena.until("its tasks are back", lambda: names <= reported(arena, "running", began))
        arena.until("the worker runs again", lambda: worker in reported(arena, "running", began))
        arena.clock.set(0.0)
        if again := names & launched(arena, began):
            raise JobError(f"{', '.join(sorted(again))} launched again because the clock was set")
        return Done(victim, frozenset({worker}))

    return do


def _log_cut(arena: Arena, number: int) -> Done:
    log = arena.folder.scheduler_log
    half = log.stat().st_size // 2
    os.truncate(log, half)
    done = program_of("worker")(arena, number)
    arena.until("the log grows", lambda: log.stat().st_size > half)
    return done


def _two_schedulers(arena: Arena, number: int) -> Done:
    folder, process = arena.folder.scheduler, arena.app.process
    launch = replace(arena.launch, log=folder / "second.log", recording=folder / "second.jsonl")
    second, began = SupervisedScheduler(launch), time.time()
    try:
        arena.until("the second one waits", lambda: "standby: " in launch.log.read_text())
        done = program_of("worker")(arena, number)
        arena.until("the worker runs again", lambda: done.hit <= reported(arena, "running", began))
    finally:
        second.stop()
    if arena.app.process != process:
        raise JobError("the first scheduler has ended")
    return done


KINDS: Mapping[str, Kind] = {
    "scheduler": _scheduler,
    "scheduler-kills": _scheduler_kills,
    "scheduler-away": _away(
        lambda arena: signal_scheduler(arena, signal.SIGSTOP), lambda arena: signal_scheduler(arena, signal.SIGCONT)
    ),
    "scheduler-reconnects": _away(
        lambda arena: arena.proxy.answer(Calls.DISCONNECTED), lambda arena: arena.proxy.answer(Calls.FORWARDED)
    ),
    "clock-forward": _clock(_HOUR),
    "clock-back": _clock(-_HOUR),
    "log-cut": _log_cut,
    "two-schedulers": _two_schedulers,
}
