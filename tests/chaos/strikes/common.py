"""What strikes return, and the selection of their victims."""

from __future__ import annotations

import http.client
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from chaos.arena import Arena
from chaos.evidence import Launched
from chaos.people import kill, members, of_task

_TIMEOUT = 5.0  # seconds for one answer of the scheduler


def _nothing() -> None:
    """No repair is necessary."""


@dataclass(frozen=True, slots=True)
class Done:
    """`hit`: tasks to be relaunched. `mend`: repair beyond scheduler and Mesos."""

    victim: str
    hit: frozenset[str] = frozenset()
    mend: Callable[[], None] = _nothing


Kind = Callable[[Arena, int], Done]


def program_of(task: str) -> Kind:
    def do(arena: Arena, number: int) -> Done:
        victim = pick([name for name in tasks(arena) if name.startswith(task)], number)
        kill_task(arena, victim, program=True)
        return Done(victim, frozenset({victim}))

    return do


def kill_task(arena: Arena, task: str, *, program: bool) -> None:
    wanted = of_task(task, program=program)
    kill(member.process for member in members(arena.cluster.directory) if wanted(member))


def reported(arena: Arena, state: str, since: float) -> set[str]:
    """Tasks that were reported in this state since then."""
    record = arena.witness.record()
    names = {launch.id: launch.task for launch in record.launched}
    return {names[heard.id] for heard in record.heard if heard.state == state and heard.time > since}


def launched(arena: Arena, since: float) -> set[str]:
    return {launch.task for launch in arena.witness.record().launched if launch.time > since}


def newest(arena: Arena, task: str) -> Launched:
    """The task's last launch."""
    return arena.witness.record().of(task)[-1]


def health(arena: Arena) -> int:
    """HTTP status of the scheduler's health; 0: no answer."""
    connection = http.client.HTTPConnection(arena.app.address, timeout=_TIMEOUT)
    try:
        connection.request("GET", "/v1/health")
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        connection.close()


def is_healthy(arena: Arena) -> bool:
    return http.client.OK <= health(arena) < http.client.MULTIPLE_CHOICES


def tasks(arena: Arena) -> list[str]:
    return sorted(arena.witness.record().tasks)


def pick_agent(arena: Arena, number: int) -> str:
    """Select an agent with tasks."""
    return pick(sorted(set(arena.hosts()) & set(arena.wanted)), number)


def pick(found: Sequence[str], number: int) -> str:
    return found[number % len(found)]


def signal_scheduler(arena: Arena, number: int) -> None:
    """Send a signal to the scheduler and its children."""
    process = arena.app.process
    if process is not None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
