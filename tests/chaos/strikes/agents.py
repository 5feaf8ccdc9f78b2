"""Faults of agents and their disks."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial

from chaos.arena import Arena
from chaos.disks import full, work_folder
from chaos.people import everything_on, kill, members
from kit.freezing import freeze, frozen
from mesos_local.master_api import call
from tf_scheduler.errors import JobError

from .common import Done, Kind, kill_task, launched, newest, pick, pick_agent, reported, tasks

#: Seconds after the return of an agent within which replaced programs end (docs/explanation/recovery.md).
_OLD_PROGRAM = 10.0
#: Seconds for which a disk is full.
_FULL = 10.0
#: Seconds until maintenance begins.
_WINDOW = 60.0


#: Keeps an agent from others within the block.
Silenced = Callable[[Arena, str], AbstractContextManager[None]]


def _agent(arena: Arena, number: int) -> Done:
    victim = pick_agent(arena, number)
    arena.wanted[victim].kill()
    return Done(victim, mend=arena.wanted[victim].start)


def _frozen(arena: Arena, agent: str) -> AbstractContextManager[None]:
    return frozen(arena.wanted[agent])


def until_unreachable(silenced: Silenced) -> Kind:
    """Silence an agent until its tasks count as unreachable."""

    def do(arena: Arena, number: int) -> Done:
        victim, began = pick_agent(arena, number), time.time()
        names = arena.hosts()[victim]
        with silenced(arena, victim):
            arena.until("its tasks are out of reach", lambda: names <= reported(arena, "unreachable", began))
        arena.until("its tasks are back", lambda: names <= reported(arena, "running", began))
        return Done(victim)

    return do


def _agent_gone(arena: Arena, number: int) -> Done:
    victim = pick_agent(arena, number)
    names = arena.hosts()[victim]
    node = arena.wanted.pop(victim)
    arena.gone += [agent.agent_id for agent in arena.cluster.state().agents if agent.hostname == victim]
    kill(everything_on(arena.cluster.directory, victim))
    node.kill()
    return Done(victim, frozenset(names))


def _agent_emptied(arena: Arena, number: int) -> Done:
    victim = pick_agent(arena, number)
    names, node = arena.hosts()[victim], arena.wanted[victim]
    node.kill()
    shutil.rmtree(work_folder(arena.cluster.directory, victim))
    return Done(victim, frozenset(names), mend=node.start)


def until_replaced(silenced: Silenced) -> Kind:
    """Silence an agent until its tasks are launched on other agents."""

    def do(arena: Arena, number: int) -> Done:
        victim, began = pick_agent(arena, number), time.time()
        names = arena.hosts()[victim]
        with silenced(arena, victim):
            arena.until("its tasks are launched again", lambda: names <= launched(arena, began))
        arena.until("its old programs have ended", lambda: not _doubled(arena), _OLD_PROGRAM)
        return Done(victim, frozenset(names))

    return do


def _agent_away(arena: Arena, number: int) -> Done:
    victim, began = pick_agent(arena, number), time.time()
    names, node = arena.hosts()[victim], arena.wanted.pop(victim)
    arena.away.append(node)
    freeze(node)
    arena.until("its tasks are launched again", lambda: names <= launched(arena, began))
    return Done(victim, frozenset(names))


def _doubled(arena: Arena) -> list[str]:
    """Tasks with programs of two launches."""
    launches = {(member.task, member.launch) for member in members(arena.cluster.directory) if member.program}
    tasks = [task for task, _ in launches]
    return [task for task in set(tasks) if tasks.count(task) > 1]


def _agent_disk_full(arena: Arena, number: int) -> Done:
    """Hide the agent's folder of executors under one without space; only root can."""
    began, victim = time.time(), pick([name for name in tasks(arena) if name.startswith("worker")], number)
    (agent,) = (agent for agent, names in arena.hosts().items() if victim in names)
    (executors,) = (work_folder(arena.cluster.directory, agent) / "slaves").glob("*/frameworks/*/executors")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k,nr_inodes=2", "none", executors], check=True)
    try:
        kill_task(arena, victim, program=True)
        arena.until(
            "it runs elsewhere",
            lambda: victim not in arena.hosts().get(agent, ()) and victim in reported(arena, "running", began),
        )
    finally:
        subprocess.run(["umount", executors], check=True)
    return Done(victim, frozenset({victim}))


def _agent_disk_full_running(arena: Arena, number: int) -> Done:
    """The agent itself may exit because it cannot write; the operator starts it again."""
    victim = pick([name for name in tasks(arena) if name.startswith("worker")], number)
    agent = newest(arena, victim).agent
    node = arena.wanted[agent]
    with full(work_folder(arena.cluster.directory, agent)):
        kill_task(arena, victim, program=True)
        began = time.time()
        arena.until("the disk was full for a while", lambda: time.time() > began + _FULL)
    if node.process is not None and not node.process.alive():
        node.kill()
        node.start()
    return Done(victim, frozenset({victim}))


def _maintenance_soon(arena: Arena, number: int) -> Done:
    """The window would begin after the tasks have left; it is cancelled before."""
    began, victim = time.time(), pick_agent(arena, number)
    names = frozenset(arena.hosts()[victim])
    with _maintenance(arena, victim):
        arena.until("its tasks are launched elsewhere", lambda: names <= launched(arena, began))
        arena.until("its tasks run", lambda: names <= reported(arena, "running", began))
        arena.until("nothing is launched there for a while", lambda: time.time() > began + _WINDOW)
    there = [each.id for each in arena.witness.record().launched if each.time > began and each.agent == victim]
    if there:
        raise JobError(f"launched on {victim} before its maintenance: {', '.join(there)}")
    return Done(victim, names)


@contextmanager
def _maintenance(arena: Arena, agent: str) -> Iterator[None]:
    """Schedule the maintenance of an agent, and cancel it."""
    machine = {"hostname": agent, "ip": "127.0.0.1"}
    start = {"nanoseconds": round((time.time() + _WINDOW) * 1e9)}
    window = {"machine_ids": [machine], "unavailability": {"start": start}}
    update = partial(call, arena.cluster.master.address, "UPDATE_MAINTENANCE_SCHEDULE")
    update(update_maintenance_schedule={"schedule": {"windows": [window]}})
    try:
        yield
    finally:
        update(update_maintenance_schedule={"schedule": {"windows": []}})


KINDS: Mapping[str, Kind] = {
    "agent": _agent,
    "agent-frozen": until_unreachable(_frozen),
    "agent-emptied": _agent_emptied,
    "agent-back": until_replaced(_frozen),
    "agent-disk-full": _agent_disk_full,
    "agent-disk-full-running": _agent_disk_full_running,
    "maintenance-soon": _maintenance_soon,
    "agent-gone": _agent_gone,
    "agent-away": _agent_away,
}
