"""Inject faults into real processes; return victim and tasks that they ended."""

from __future__ import annotations

import http.client
import json
import os
import resource
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from chaos.faults import TWO, Store, Strike
from kit.freezing import freeze, thaw
from mesos_local.host.process import PROC, read_stat
from mesos_local.master_api import teardown
from mesos_local.node import agent_directory

from .arena import UNREACHABLE_TIMEOUT, Arena
from .master_proxy import Calls
from .people import everything_on, kill, members, of_task
from .witness import logged

_TIMEOUT = 5.0  # seconds for one answer of the scheduler
_CANNOT_STORE, _REFUSED = 319, 317  # docs/api.md, /v1/health
#: Seconds for which calls fail.
_FAILING = 20.0
#: Five heartbeats of 15 s, and some.
_HEARTBEATS = 120.0
#: Seconds that offers are held, and after which a session of ZooKeeper has expired.
_HOARDED, _SESSION = 30.0, 25.0
#: Seconds after the return of an agent within which replaced programs end (docs/recovery.md).
OLD_PROGRAM = 10.0


def _nothing() -> None:
    """No repair is necessary."""


@dataclass(frozen=True, slots=True)
class Done:
    """`hit`: tasks to be relaunched. `mend`: repair beyond scheduler and Mesos."""

    victim: str
    hit: frozenset[str] = frozenset()
    mend: Callable[[], None] = _nothing


Kind = Callable[[Arena, int], Done]


def strike(arena: Arena, what: Strike) -> Done:
    """Inject the fault; return when the rest is up to the scheduler and Mesos."""
    kinds = [part.name for part in what.parts] if what.fault.name == TWO else [what.fault.name]
    done = [_KINDS[kind](arena, what.number) for kind in kinds]
    for each in done:
        each.mend()
    return Done(" and ".join(each.victim for each in done), frozenset().union(*(each.hit for each in done)))


def _program(task: str) -> Kind:
    def do(arena: Arena, number: int) -> Done:
        victim = _pick([name for name in _tasks(arena) if name.startswith(task)], number)
        _kill(arena, victim, program=True)
        return Done(victim, frozenset({victim}))

    return do


def _worker_kills(arena: Arena, number: int) -> Done:
    victim = _pick([name for name in _tasks(arena) if name.startswith("worker")], number)
    for _ in range(2):
        _kill(arena, victim, program=True)
        arena.until("it runs again", partial(_runs_since, arena, victim, time.time()))
    _kill(arena, victim, program=True)
    return Done(victim, frozenset({victim}))


def _runs_since(arena: Arena, task: str, since: float) -> bool:
    return task in _reported(arena, "running", since)


def _executor(arena: Arena, number: int) -> Done:
    victim = _pick(_tasks(arena), number)
    _kill(arena, victim, program=False)
    return Done(f"executor of {victim}", frozenset({victim}))


def _kill(arena: Arena, task: str, *, program: bool) -> None:
    wanted = of_task(task, program=program)
    kill(member.process for member in members(arena.cluster.directory) if wanted(member))


def _scheduler(arena: Arena, _number: int) -> Done:
    process = arena.app.process

    def again() -> bool:
        return arena.app.process not in (None, process)

    _signal_scheduler(arena, signal.SIGKILL)
    return Done("scheduler", mend=lambda: arena.until("Marathon starts the scheduler again", again))


def _signal_scheduler(arena: Arena, number: int) -> None:
    """Send a signal to the scheduler and its children."""
    process = arena.app.process
    if process is not None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)


def _master(arena: Arena, _number: int) -> Done:
    arena.cluster.master.kill()
    return Done("master", mend=arena.cluster.master.start)


def _zookeeper(arena: Arena, _number: int) -> Done:
    arena.cluster.zookeeper.kill()
    return Done("zookeeper", mend=arena.cluster.zookeeper.start)


def _agent(arena: Arena, number: int) -> Done:
    victim = _host(arena, number)
    arena.wanted[victim].kill()
    return Done(victim, mend=arena.wanted[victim].start)


def _agent_frozen(arena: Arena, number: int) -> Done:
    victim, began = _host(arena, number), time.time()
    names = arena.hosts()[victim]
    node = arena.wanted[victim]
    freeze(node)
    try:
        arena.until("its tasks are out of reach", lambda: names <= _reported(arena, "unreachable", began))
    finally:
        thaw(node)
    arena.until("its tasks are back", lambda: names <= _reported(arena, "running", began))
    return Done(victim)


def _reported(arena: Arena, state: str, since: float) -> set[str]:
    """Tasks that were reported in this state since then."""
    record = arena.witness.record()
    names = {launch.id: launch.task for launch in record.launched}
    return {names[heard.id] for heard in record.heard if heard.state == state and heard.time > since}


def _master_frozen(arena: Arena, _number: int) -> Done:
    began = time.time()
    freeze(arena.cluster.master)
    try:
        lost = logged(arena.witness, "the connection to Mesos is lost", began)
        arena.until("the scheduler misses the master's heartbeats", lost, _HEARTBEATS)
    finally:
        thaw(arena.cluster.master)
    return Done("master")


def _agent_gone(arena: Arena, number: int) -> Done:
    victim = _host(arena, number)
    names = arena.hosts()[victim]
    node = arena.wanted.pop(victim)
    arena.gone += [agent.agent_id for agent in arena.cluster.state().agents if agent.hostname == victim]
    kill(everything_on(arena.cluster.directory, victim))
    node.kill()
    return Done(victim, frozenset(names))


def _disk_full(arena: Arena, number: int) -> Done:
    with _no_room(arena):
        done = _program("worker")(arena, number)
        arena.until("the scheduler says that it cannot store", lambda: _health(arena) == _CANNOT_STORE)
    return done


@contextmanager
def _no_room(arena: Arena) -> Iterator[None]:
    """Make all writes of the scheduler fail (setrlimit(2), RLIMIT_FSIZE)."""
    head = arena.app.process
    found = [] if head is None else [int(entry.name) for entry in PROC.iterdir() if entry.name.isdecimal()]
    session = [pid for pid in found if head and (stat := read_stat(pid)) and stat.session == head.pid]
    before = {pid: resource.prlimit(pid, resource.RLIMIT_FSIZE) for pid in session}
    for pid, (_, hard) in before.items():
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (1, hard))
    try:
        yield
    finally:
        for pid, limits in before.items():
            with suppress(ProcessLookupError):
                resource.prlimit(pid, resource.RLIMIT_FSIZE, limits)


def _program_frozen(arena: Arena, number: int) -> Done:
    victim, began = _pick(_tasks(arena), number), time.time()
    wanted = of_task(victim, program=True)
    for member in filter(wanted, members(arena.cluster.directory)):
        member.process.signal(signal.SIGSTOP)
    arena.until("it is launched again", lambda: victim in _launched(arena, began))
    return Done(victim, frozenset({victim}))


def _state_lost(arena: Arena, _number: int) -> Done:
    """Kill the scheduler, remove its state, and adopt the framework after the refusal."""
    (framework,) = arena.cluster.state().frameworks
    app, process = arena.app, arena.app.process
    _signal_scheduler(arena, signal.SIGKILL)
    arena.until("it has ended", lambda: process is None or not process.alive(), unseen=True)
    for file in arena.folder.path.glob(f"{arena.folder.store.name}*"):
        file.unlink()
    if arena.store is Store.ZOOKEEPER:
        arena.cluster.zookeeper.kill()
        shutil.rmtree(arena.cluster.directory / "zookeeper" / "data" / "version-2")
        arena.cluster.zookeeper.start()
    refused = f"framework {framework.framework_id} of"

    def is_refused() -> bool:
        app.poll()
        app.read_log()
        return refused in app.trouble

    arena.until("the next one refuses to start", is_refused, unseen=True)
    app.restart(ADOPT_FRAMEWORK=framework.framework_id)
    return Done("scheduler")


def _scheduler_kills(arena: Arena, number: int) -> Done:
    for _ in range(5):
        _scheduler(arena, number).mend()
    return Done("scheduler")


def _scheduler_away(arena: Arena, number: int) -> Done:
    """The scheduler continues when the time of its unreachable tasks is over."""
    victim, began = _host(arena, number), time.time()
    names, node = arena.hosts()[victim], arena.wanted[victim]
    freeze(node)
    try:
        arena.until("its tasks are out of reach", lambda: names <= _reported(arena, "unreachable", began))
        _signal_scheduler(arena, signal.SIGSTOP)
    finally:
        thaw(node)
    try:
        arena.until("its tasks would be given up", lambda: time.time() > began + 2 * UNREACHABLE_TIMEOUT, unseen=True)
    finally:
        _signal_scheduler(arena, signal.SIGCONT)
    arena.until("its tasks are back", lambda: names <= _reported(arena, "running", began))
    return Done(victim)


def _registry_lost(arena: Arena, _number: int) -> Done:
    arena.cluster.master.kill()
    shutil.rmtree(arena.cluster.directory / "master")
    return Done("master", mend=arena.cluster.master.start)


def _agent_emptied(arena: Arena, number: int) -> Done:
    victim = _host(arena, number)
    names, node = arena.hosts()[victim], arena.wanted[victim]
    node.kill()
    shutil.rmtree(_work(arena, victim))
    return Done(victim, frozenset(names), mend=node.start)


def _agent_back(arena: Arena, number: int) -> Done:
    victim, began = _host(arena, number), time.time()
    names, node = arena.hosts()[victim], arena.wanted[victim]
    freeze(node)
    try:
        arena.until("its tasks are launched again", lambda: names <= _launched(arena, began))
    finally:
        thaw(node)
    arena.until("its old programs have ended", lambda: not _doubled(arena), OLD_PROGRAM)
    return Done(victim, frozenset(names))


def _agent_away(arena: Arena, number: int) -> Done:
    victim, began = _host(arena, number), time.time()
    names, node = arena.hosts()[victim], arena.wanted.pop(victim)
    arena.away.append(node)
    freeze(node)
    arena.until("its tasks are launched again", lambda: names <= _launched(arena, began))
    return Done(victim, frozenset(names))


def _launched(arena: Arena, since: float) -> set[str]:
    return {launch.task for launch in arena.witness.record().launched if launch.time > since}


def _doubled(arena: Arena) -> list[str]:
    """Tasks with programs of two launches."""
    launches = {(member.task, member.launch) for member in members(arena.cluster.directory) if member.program}
    tasks = [task for task, _ in launches]
    return [task for task in set(tasks) if tasks.count(task) > 1]


def _agent_disk_full(arena: Arena, number: int) -> Done:
    """Hide the agent's folder of executors under one without space; only root can."""
    began, victim = time.time(), _pick([name for name in _tasks(arena) if name.startswith("worker")], number)
    (agent,) = (agent for agent, names in arena.hosts().items() if victim in names)
    (executors,) = (_work(arena, agent) / "slaves").glob("*/frameworks/*/executors")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k,nr_inodes=2", "none", executors], check=True)
    try:
        _kill(arena, victim, program=True)
        arena.until(
            "it runs elsewhere",
            lambda: victim not in arena.hosts().get(agent, ()) and victim in _reported(arena, "running", began),
        )
    finally:
        subprocess.run(["umount", executors], check=True)
    return Done(victim, frozenset({victim}))


def _zookeeper_frozen(arena: Arena, _number: int) -> Done:
    began = time.time()
    freeze(arena.cluster.zookeeper)
    try:
        arena.until("its sessions have expired", lambda: time.time() > began + _SESSION, unseen=True)
    finally:
        thaw(arena.cluster.zookeeper)
    return Done("zookeeper")


def _calls(kind: Calls) -> Kind:
    def do(arena: Arena, number: int) -> Done:
        began = time.time()
        arena.proxy.answer(kind)
        try:
            done = _program("worker")(arena, number)
            arena.until("a call has failed", lambda: arena.proxy.lost > 0)
            if kind is Calls.REFUSED:
                arena.until("the scheduler's health says so", lambda: _health(arena) == _REFUSED)
            arena.until("the calls failed for a while", lambda: time.time() > began + _FAILING)
        finally:
            arena.proxy.answer(Calls.FORWARDED)
        arena.until("the scheduler is healthy again", lambda: _is_healthy(arena))
        return done

    return do


def _event_unknown(arena: Arena, _number: int) -> Done:
    agent, number = {"value": "a"}, {"value": "0"}
    status = {"task_id": {"value": "worker-0__chaos"}, "state": "TASK_PAUSED", "agent_id": agent, "uuid": "AAAA"}
    offer = {"id": {"value": "chaos"}, "framework_id": number, "agent_id": agent, "hostname": "a"}
    resources = [{"name": "cpus", "type": "TEXT", "text": {"value": "many"}}]
    arena.proxy.tell({"type": "UPDATE", "update": {"status": status}})
    arena.proxy.tell({"type": "OFFERS", "offers": {"offers": [{**offer, "resources": resources}]}})
    arena.proxy.tell({"type": "NEWS_OF_A_LATER_MESOS", "news": {}})
    return Done("master's events")


def _hoarder(arena: Arena, number: int) -> Done:
    began, master = time.time(), arena.cluster.master.address
    with _holding_offers(master):
        done = _program("worker")(arena, number)
        arena.until("the offers were held", lambda: time.time() > began + _HOARDED)
    return done


@contextmanager
def _holding_offers(master: str) -> Iterator[None]:
    """Subscribe a framework that neither accepts nor declines."""
    info = {"user": "nobody", "name": "hoarder", "roles": ["*"], "capabilities": [{"type": "MULTI_ROLE"}]}
    connection = http.client.HTTPConnection(master)
    try:
        body = json.dumps({"type": "SUBSCRIBE", "subscribe": {"framework_info": info}})
        connection.request("POST", "/api/v1/scheduler", body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        subscribed = json.loads(response.read(int(response.readline())))
        yield
        teardown(master, subscribed["subscribed"]["framework_id"]["value"])
    finally:
        connection.close()


def _work(arena: Arena, agent: str) -> Path:
    return agent_directory(arena.cluster.directory, agent) / "agents" / "0" / "work"


def _health(arena: Arena) -> int:
    """HTTP status of the scheduler's health; 0: no answer."""
    connection = http.client.HTTPConnection(arena.app.address, timeout=_TIMEOUT)
    try:
        connection.request("GET", "/v1/health")
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        connection.close()


def _is_healthy(arena: Arena) -> bool:
    return http.client.OK <= _health(arena) < http.client.MULTIPLE_CHOICES


def _tasks(arena: Arena) -> list[str]:
    return sorted(arena.witness.record().tasks)


def _host(arena: Arena, number: int) -> str:
    """Select an agent with tasks."""
    return _pick(sorted(set(arena.hosts()) & set(arena.wanted)), number)


def _pick(found: Sequence[str], number: int) -> str:
    return found[number % len(found)]


_KINDS: Mapping[str, Kind] = {
    "worker": _program("worker"),
    "worker-kills": _worker_kills,
    "ps": _program("ps"),
    "chief": _program("chief"),
    "executor": _executor,
    "scheduler": _scheduler,
    "agent": _agent,
    "master": _master,
    "zookeeper": _zookeeper,
    "agent-frozen": _agent_frozen,
    "master-frozen": _master_frozen,
    "disk-full": _disk_full,
    "program-frozen": _program_frozen,
    "state-lost": _state_lost,
    "scheduler-kills": _scheduler_kills,
    "scheduler-away": _scheduler_away,
    "registry-lost": _registry_lost,
    "agent-emptied": _agent_emptied,
    "agent-back": _agent_back,
    "agent-disk-full": _agent_disk_full,
    "zookeeper-frozen": _zookeeper_frozen,
    "calls-refused": _calls(Calls.REFUSED),
    "calls-unanswered": _calls(Calls.UNANSWERED),
    "event-unknown": _event_unknown,
    "hoarder": _hoarder,
    "agent-gone": _agent_gone,
    "agent-away": _agent_away,
}
