"""Faults that end a job, or need many tasks: each on a cluster of its own."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import click

from kit.freezing import freeze, thaw
from mesos_local.agents import AgentSpec
from mesos_local.host import MesosLocalError
from tf_scheduler.cli.common.folders import RunFolder
from tf_scheduler.cli.local_run.process import get_json
from tf_scheduler.errors import SchedulerError

from .arena import AGENT_FLAGS, AGENTS, MASTER_FLAGS, Arena, arena, in_run_folder
from .evidence import Record
from .faults import JOBS, Fault, Store, stores_of
from .groups import UnavailableError, memory_limits
from .many import TASKS, many_kills
from .measures import launched_twice
from .page import Ended
from .training import left_in_mesos, left_on_machine
from .witness import logged

#: Seconds after an agent's return for which the master has to live (a Mesos 1.11 master aborts within 10).
_MASTER_LIVES = 30.0
#: Seconds for a whole job.
_PATIENCE = 200.0


@dataclass(frozen=True, slots=True)
class Trial:
    """A job with its expected end. `play` raises JobError if something else happens.

    `words`: parts of the reason of its result. `launches`: most launches of one task. `moves`: to other addresses, too.
    """

    what: str
    options: Mapping[str, Any]
    play: Callable[[Arena], str]
    verdict: str = "failed"
    words: tuple[str, ...] = ()
    launches: int = 2
    moves: bool = False
    agents: Sequence[AgentSpec] = AGENTS
    master: Mapping[str, str] = field(default_factory=lambda: MASTER_FLAGS)
    #: Yields more flags of the agents. Raises UnavailableError where this machine cannot run the job.
    flags: Callable[[], AbstractContextManager[Mapping[str, str]]] = field(default=lambda: nullcontext({}))


def _run(fault: Fault, trial: Trial, store: Store) -> Ended:
    """Run a job to its end, and compare with what is expected."""
    click.echo(f"{fault.name}: {trial.what}: state in: {store.value}", err=True)
    began = time.monotonic()
    try:
        with trial.flags() as flags:
            ended = in_run_folder(lambda folder: _job(fault, trial, store, folder, flags))
    except UnavailableError as error:
        ended = Ended(fault.name, trial.what, store, "skipped", 0, 0.0, str(error))
    click.echo(f"  {ended.verdict} after {time.monotonic() - began:.0f} s: {ended.seen}", err=True)
    for finding in ended.findings:
        click.echo(f"  did not hold: {finding}", err=True)
    return ended


def _job(fault: Fault, trial: Trial, store: Store, folder: RunFolder, flags: Mapping[str, str]) -> Ended:
    findings: list[str] = []
    verdict = seen = ""
    with arena(trial.options, folder, store, trial.agents, {**AGENT_FLAGS, **flags}, trial.master) as found:
        began = time.monotonic()
        try:
            seen = trial.play(found)
            findings += left_in_mesos(found)
        except (SchedulerError, MesosLocalError) as error:
            findings.append(str(error))
        seconds = time.monotonic() - began
        record = found.witness.record()
        verdict, reason = _result(found)
        findings += [*unexpected(trial, record, verdict, reason), *sorted(found.witness.findings)]
        findings += ["an agent is avoided"] if logged(found.witness, "is avoided for", 0.0)() else []
        cluster = found.cluster.directory
    findings += left_on_machine(cluster, folder, record)
    most = max((len(record.of(task)) for task in record.tasks), default=0)
    return Ended(fault.name, trial.what, store, verdict, most, seconds, seen or reason, tuple(dict.fromkeys(findings)))


def _result(found: Arena) -> tuple[str, str]:
    """Verdict and reason as recorded by the scheduler."""
    for line in found.witness.lines():
        if "result" in line:
            return line["result"], line["reason"]
    return "did not end", ""


def unexpected(trial: Trial, record: Record, verdict: str, reason: str) -> Iterator[str]:
    """Differences between the end of a job and the expected one."""
    if verdict != trial.verdict:
        yield f"the result is `{verdict}` instead of `{trial.verdict}`: {reason}"
    yield from (f"the reason does not contain `{words}`: {reason}" for words in trial.words if words not in reason)
    for task in sorted(record.tasks):
        launches = record.of(task)
        addresses = dict.fromkeys(launch.address for launch in launches)
        if len(launches) > trial.launches:
            yield f"{task} was launched {len(launches)} times"
        if len(addresses) > 1 and not trial.moves:
            yield f"{task} has moved: {', '.join(addresses)}"
    yield from launched_twice(record)


def until_over(found: Arena) -> str:
    """Wait for the end of the job, whatever its result."""
    found.until("the job has ended", lambda: bool((seen := found.app.refresh()) and seen.over), _PATIENCE, unseen=True)
    return ""


# --- jobs


def small(count: int, command: str, **sections: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a job of small workers that do not depend on each other."""
    base: dict[str, Any] = {
        "service": {"name": "chaos", "strategy": "independent", "command": command},
        "worker": {"count": count, "cpus": 0.1, "mem": 32, "disk": 0},
        "chief": {"count": 0},
        "parameter_server": {"count": 0},
        "executor": {"cpus": 0.05, "mem": 64},
        "restart": {"backoff": 1, "max_backoff": 2},
    }
    return {**base, **{name: {**base.get(name, {}), **given} for name, given in sections.items()}}


def _gang(command: str) -> dict[str, Any]:
    """Options of a parameter server and two workers that wait for each other."""
    server = {"count": 1, "cpus": 0.1, "mem": 32, "disk": 0}
    return small(2, command, service={"strategy": "between_graph"}, parameter_server=server)


def _written(program: str) -> str:
    """A command that writes and runs a Python program."""
    return f"cat > train.py <<'END'\n{program}END\nexec python3 -S train.py"


#: A child of the program takes ten times the memory of the task.
_HUNGRY = "python3 -S -c 'held = bytearray(1000 << 20); print(len(held))'; exit $?"
#: Agents with room for many tasks, and a master that waits for them while the machine is busy with the starts.
_LARGE = tuple(replace(agent, resources="cpus:2;mem:8000;disk:100000") for agent in AGENTS)
_PATIENT = {"allocation_interval": "100ms"}

_IMPORT = _gang(_written("import os\nimport nope\n"))
_USAGE = _gang(_written("import argparse\nargparse.ArgumentParser().parse_args(['--no-such-flag'])\n"))
_MISSING = _gang("exec pythn train.py")

#: worker-1 and worker-2 are in turn the one that never answers.
_LATE = """\
import json, os, pathlib, socket, time
name, config = os.environ["TASK_NAME"], json.loads(os.environ["TF_CONFIG"])
count = pathlib.Path(os.environ["CHECKPOINT_DIR"], name)
starts = int(count.read_text()) + 1 if count.exists() else 1
count.write_text(str(starts))
if name == f"worker-{1 + starts % 2}":
    time.sleep(1000)
host, _, port = config["cluster"]["worker"][config["task"]["index"]].rpartition(":")
with socket.create_server((host, int(port))) as server:
    while True:
        connection, _ = server.accept()
        connection.sendall(bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))
        connection.recv(1000)
        connection.close()
"""


def _is_running(found: Arena, tasks: int, launches: int = 1) -> bool:
    """Whether the last launches of all tasks run, each the `launches`-th or later."""
    record = found.witness.record()
    lasts = [record.of(task) for task in record.tasks]
    states = [record.last(each[-1]) for each in lasts if len(each) >= launches]
    return len(states) == tasks and all(heard is not None and heard.state == "running" for heard in states)


def _uninstall_with_agent_away(found: Arena) -> str:
    found.until("all tasks run", lambda: _is_running(found, 2))
    victim = next(agent for agent, names in found.hosts().items() if "worker-0" in names)
    node, away = found.wanted[victim], found.hosts()[victim]
    freeze(node)
    try:
        found.until("its tasks run elsewhere", lambda: not found.hosts().get(victim) and _is_running(found, 2))
        found.app.uninstall()
        named = [f"{task} may still run on {victim}" for task in sorted(away)]
        found.until("what may still run is named", lambda: _names(found, named), unseen=True)
    finally:
        thaw(node)
    back = time.time()
    until_over(found)
    ended = time.time() - back
    found.until("the master has lived on", lambda: time.time() > back + _MASTER_LIVES, unseen=True)
    found.cluster.master.check_alive()
    return f"{'; '.join(named)}. Ended {ended:.1f} s after the agent's return"


def _many_kills(found: Arena) -> str:
    seen = many_kills(found)
    found.app.uninstall()
    until_over(found)
    return seen


def _names(found: Arena, sentences: Sequence[str]) -> bool:
    found.app.refresh()
    answer = get_json(found.app.address, "/v1/health?verbose=true")
    return answer is not None and all(sentence in str(answer[1]) for sentence in sentences)


def _broken(what: str, options: Mapping[str, Any], *words: str) -> Trial:
    return Trial(what, options, until_over, words=words)


TRIALS: Mapping[str, Sequence[Trial]] = {
    "program-broken": (
        _broken("a module that does not exist", _IMPORT, "ModuleNotFoundError: No module named 'nope' (train.py:2)"),
        _broken(
            "an argument that the program does not know",
            _USAGE,
            "unrecognized arguments: --no-such-flag",
        ),
        _broken("a command that does not exist", _MISSING, "pythn: command not found"),
    ),
    "kill-loop": (
        Trial(
            "SIGKILL at each start of worker-0",
            small(2, 'test "$TASK_NAME" != worker-0 || kill -9 $$; exec sleep 1000', restart={"max_uncounted": 4}),
            until_over,
            words=("worker-0", "restart.max_uncounted"),
            launches=5,
        ),
    ),
    "late-in-turn": (
        Trial(
            "three workers, of which worker-1 and worker-2 never answer in turn",
            small(
                3,
                _written(_LATE),
                service={"strategy": "multi_worker_mirrored"},
                recovery={"start_timeout": 4, "avoid_after": 0},
            ),
            until_over,
            words=("has not joined the others", "this happened to 3 of its launches"),
            launches=5,
        ),
    ),
    "out-of-memory": (
        Trial(
            "a worker whose container has a memory limit",
            small(1, _HUNGRY, restart={"max_failures": 2}, recovery={"avoid_after": 2}),
            until_over,
            words=("worker-0", "96", "; raise worker.mem"),
            launches=3,
            flags=memory_limits,
        ),
    ),
    "many-kills": (
        Trial(
            f"{TASKS} tasks",
            small(TASKS, "exec sleep infinity", worker={"cpus": 0.02}, executor={"cpus": 0.02}),
            _many_kills,
            verdict="stopped",
            launches=3,
            moves=True,
            agents=_LARGE,
            master=_PATIENT,
        ),
    ),
    "uninstall-with-agent-away": (
        Trial(
            "two workers, one of them on an agent that is frozen until the uninstall waits for it",
            small(2, "exec sleep 1000", worker={"cpus": 0.5}, recovery={"unreachable_timeout": 3}),
            _uninstall_with_agent_away,
            verdict="stopped",
            moves=True,
        ),
    ),
}


def jobs(names: Sequence[str]) -> list[Ended]:
    """Run the jobs of these faults, each with both stores."""
    found = [(JOBS[name], trial, store) for name in names for trial in TRIALS[name] for store in stores_of(JOBS[name])]
    return [_run(fault, trial, store) for fault, trial, store in found]
