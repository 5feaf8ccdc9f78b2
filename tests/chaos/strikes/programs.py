"""Faults of programs and executors."""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Mapping
from functools import partial

from chaos.arena import Arena
from chaos.people import detached, members, of_task
from chaos.witness import CHIEF
from tf_executor.process.ports import is_free
from tf_scheduler.errors import JobError

from .common import Done, Kind, kill_task, launched, newest, pick, program_of, reported, tasks

#: Seconds within which a process ends whose executor was killed: the default of `kill_grace`, and some.
_DETACHED = 15.0


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


def _executor_killed(arena: Arena, number: int) -> Done:
    """Kill the executor of a task with a detached process, which has to end with it."""
    victim = pick(tasks(arena), number)
    checkpoints = arena.folder.checkpoints
    left = detached(checkpoints, victim)
    if not left:
        raise JobError(f"{victim} has no detached process")
    kill_task(arena, victim, program=False)
    arena.until("its detached process has ended", lambda: not any(each.alive() for each in left), _DETACHED)
    return Done(f"executor of {victim}", frozenset({victim}))


def _program_frozen(arena: Arena, number: int) -> Done:
    victim, began = pick(tasks(arena), number), time.time()
    wanted = of_task(victim, program=True)
    for member in filter(wanted, members(arena.cluster.directory)):
        member.process.signal(signal.SIGSTOP)
    arena.until("it is launched again", lambda: victim in launched(arena, began))
    return Done(victim, frozenset({victim}))


def _port_taken(arena: Arena, number: int) -> Done:
    """The executor waits while another process, this one, takes the port."""
    began, victim = time.time(), pick([name for name in tasks(arena) if name.startswith("worker")], number)
    address = newest(arena, victim).address
    port = int(address.rpartition(":")[2])
    of_executor = of_task(victim, program=False)
    executor = [member.process for member in members(arena.cluster.directory) if of_executor(member)]
    for process in executor:
        process.signal(signal.SIGSTOP)
    try:
        kill_task(arena, victim, program=True)
        arena.until("its port is closed", lambda: is_free(port))
        listener = socket.create_server(("127.0.0.1", port))
    finally:
        for process in executor:
            process.signal(signal.SIGCONT)
    with listener:
        arena.until(
            "it runs at another port",
            lambda: newest(arena, victim).address != address and victim in reported(arena, "running", began),
        )
    return Done(victim, frozenset({victim}))


def _output_removed(arena: Arena, _number: int) -> Done:
    """The witness reads the output; without it, training would not seem to continue."""
    files = [file for name in ("stdout", "stderr") for file in arena.cluster.directory.glob(f"{CHIEF}/{name}")]
    for file in files:
        file.unlink(missing_ok=True)
    return Done("chief-0")


KINDS: Mapping[str, Kind] = {
    "worker": program_of("worker"),
    "worker-kills": _worker_kills,
    "ps": program_of("ps"),
    "chief": program_of("chief"),
    "executor": _executor,
    "executor-killed": _executor_killed,
    "program-frozen": _program_frozen,
    "port-taken": _port_taken,
    "output-removed": _output_removed,
}
