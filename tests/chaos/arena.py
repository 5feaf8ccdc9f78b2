"""One training on its own cluster, and waiting for its conditions."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import RLock
from typing import Any, Protocol, TypeVar

import click

from chaos.evidence import Heard, Launched, Record
from chaos.faults import Store
from kit.containers import mounts
from kit.shared import port_block
from kit.zookeeper_ensemble import ZooKeeperEnsemble
from mesos_local.agents import AgentSpec, with_ports
from mesos_local.cluster import LocalCluster
from mesos_local.host import MesosLocalError
from mesos_local.master_api import MasterUnavailableError, call
from mesos_local.node import AgentNode
from tf_scheduler.cli.common.folders import RunFolder
from tf_scheduler.cli.local_run.follow import RunScheduler, prepare_launch, run_scheduler
from tf_scheduler.cli.local_run.process import SchedulerLaunch
from tf_scheduler.errors import JobError
from tf_scheduler.runner import new_uuid

from .disks import own_disk, work_folder
from .master_proxy import MasterProxy
from .wall_clock import WallClock
from .witness import Witness

#: Of the file that ends the training, in the folder of the checkpoints.
ENOUGH = "enough"
#: Node of the state.
CHROOT = "/chaos"
_PATIENCE = 300.0  # seconds for anything: to import TensorFlow takes a minute where many want a processor
#: Exit code of a scheduler that lost its store, or the right to act with it: the next one waits for ZooKeeper.
_NO_STORE = 3
_LOOK = 0.1
#: Seconds of `recovery.unreachable_timeout`: a frozen agent's tasks are waited for, those of a lost one not for long.
UNREACHABLE_TIMEOUT = 15
#: A lost agent is noticed within seconds, and two agents have room for what three had.
MASTER_FLAGS: Mapping[str, str] = {
    "acls": "{}",  # operators drain agents
    "allocation_interval": "100ms",
    "agent_ping_timeout": "1secs",
    "max_agent_ping_timeouts": "3",
}
AGENT_FLAGS: Mapping[str, str] = {"recovery_timeout": "60secs"}
AGENTS = tuple(AgentSpec(f"agent-{n}", "cpus:1.4;mem:2600;disk:10000", {"rack": f"rack-{n}"}) for n in (1, 2, 3))


@dataclass
class Arena:
    """The context of strikes. `wanted`: the agents that have to be registered."""

    cluster: LocalCluster
    app: RunScheduler
    folder: RunFolder
    witness: Witness
    proxy: MasterProxy
    clock: WallClock
    store: Store
    #: Its own servers, if the store is an ensemble.
    ensemble: ZooKeeperEnsemble | None
    launch: SchedulerLaunch
    wanted: dict[str, AgentNode] = field(default_factory=dict)
    #: Ids of agents that are lost for good.
    gone: list[str] = field(default_factory=list)
    #: Frozen agents that continue after the end of the job.
    away: list[AgentNode] = field(default_factory=list)
    #: Whether an operator repairs the scheduler: `until` neither asks nor restarts it, and its errors are expected.
    repair: bool = False
    #: Of a cluster with containers, before its first task.
    mounts: frozenset[str] = frozenset()
    #: Held while the scheduler is asked or restarted: faults can occur at once.
    lock: RLock = field(default_factory=RLock)

    def until(self, what: str, holds: Callable[[], bool], patience: float = _PATIENCE, *, unseen: bool = False) -> None:
        """Poll a condition. Raises JobError after the timeout or the scheduler's exit.

        `unseen`: the scheduler is stopped and cannot answer.
        """
        deadline = time.monotonic() + patience
        while not holds():
            if not unseen:
                self._look(what)
            if time.monotonic() > deadline:
                raise JobError(f"{patience:.0f} s were not enough until {what}")
            time.sleep(_LOOK)  # whatever could announce it may be what was killed

    @contextmanager
    def repairing(self) -> Iterator[None]:
        """Leave the scheduler to the operator inside the block."""
        with self.lock:
            self.repair = True
        try:
            yield
        finally:
            self.repair = False

    def _look(self, what: str) -> None:
        """Restart the scheduler if it is due. Raises JobError if it or its job failed."""
        with self.lock:
            if self.repair:
                return
            seen = self.app.refresh()
            if seen is not None and seen.verdict and seen.verdict != "succeeded":
                raise JobError(f"the training {seen.verdict} while waiting until {what}: {seen.reason}")
            if self.app.trouble and self.app.last_exit != _NO_STORE:
                raise JobError(self.app.trouble)

    def whole(self, hit: frozenset[str], since: float) -> bool:
        """Whether all tasks answer, `hit` ones relaunched, and Mesos is complete."""
        record = self.witness.record()
        launches = [record.of(task)[-1] for task in record.tasks]
        again = {launch.task for launch in launches if launch.time >= since}
        ran = bool(launches) and hit <= again and all(_answers(record, launch) for launch in launches)
        return ran and self._registered(len(launches))

    def _registered(self, tasks: int) -> bool:
        try:
            shown = self.cluster.state()
        except (MasterUnavailableError, OSError, ValueError):
            return False
        # The master remembers the tasks of an agent that is gone; those of one that is frozen count as not running.
        known = [task for task in shown.tasks if task.state != "TASK_UNREACHABLE"]
        running = [task for task in known if task.state == "TASK_RUNNING"]
        agents = {agent.hostname for agent in shown.agents if agent.active}
        frameworks = [framework.connected for framework in shown.frameworks]
        ran = len(running) == len(known) == tasks
        return ran and frameworks == [True] and set(self.wanted) <= agents and not any(self.unacknowledged())

    def unacknowledged(self) -> Iterator[str]:
        """Ended tasks with an update that the scheduler has not acknowledged."""
        for agent in self.wanted.values():
            try:
                found = call(agent.address, "GET_TASKS")
            except MesosLocalError:
                yield agent.name
                return
            yield from (task["task_id"]["value"] for task in found.get("terminated_tasks", ()))

    def hosts(self) -> dict[str, set[str]]:
        """Agent -> its tasks; the master may be unavailable."""
        record = self.witness.record()
        found: dict[str, set[str]] = {}
        for task in record.tasks:
            found.setdefault(record.of(task)[-1].agent, set()).add(task)
        return found

    def settle(self, hit: frozenset[str], since: float) -> float:
        """Wait for full recovery, including a finished epoch; return its Unix time."""
        self.until("every task runs and answers again", lambda: self.whole(hit, since))
        before = self.witness.epochs
        self.until("training goes on", lambda: self.witness.epochs > before)
        return time.time()


def _answers(record: Record, launch: Launched) -> bool:
    heard: Heard | None = record.last(launch)
    return heard is not None and heard.state == "running" and record.answered(launch) is not None


@contextmanager
def arena(
    document: Mapping[str, Any],
    folder: RunFolder,
    store: Store,
    agents: Sequence[AgentSpec] = AGENTS,
    agent_flags: Mapping[str, str] = AGENT_FLAGS,
    master_flags: Mapping[str, str] = MASTER_FLAGS,
    *,
    own_disks: bool = False,
) -> Iterator[Arena]:
    """Run a job with the options `document`. `own_disks`: of the agents."""
    with ExitStack() as stack:
        first_port = stack.enter_context(port_block())
        zookeeper = store is Store.ZOOKEEPER
        cluster = stack.enter_context(
            LocalCluster(
                with_ports(agents, first_port),
                master_flags=master_flags,
                agent_flags=agent_flags,
                zookeeper=zookeeper,
                die_with_parent=True,
                containers=store is Store.CONTAINERS,
            )
        )
        for name, agent in cluster.agents.items() if own_disks else ():
            stack.enter_context(own_disk(agent, work_folder(cluster.directory, name)))
        cluster.wait_registered()
        ensemble = stack.enter_context(ZooKeeperEnsemble(3)) if store is Store.ENSEMBLE else None
        servers = ensemble.addresses if ensemble else cluster.zookeeper.address if zookeeper else ""
        state = f"zk://{servers}{CHROOT}" if servers else ""
        proxy = stack.enter_context(MasterProxy(cluster.master.address))
        empty = mounts(cluster)
        if cluster.has_containers:
            document = {**document, "placement": {"strategy": "spread"}}  # each agent has tasks with peers elsewhere
        launch = prepare_launch(document, cluster, folder, state)
        clock = WallClock(folder.path / "clock")
        # As on a cluster: a scheduler that lost its state refuses to start beside its framework.
        launch = replace(launch, secrets={**launch.secrets, **clock.variables}, arguments=())
        if not cluster.has_containers:  # in whose network the scheduler runs, without the proxy
            _behind(proxy, folder)
        running = stack.enter_context(run_scheduler(launch, "chaos", cluster.master.address, console=False))
        witness = stack.enter_context(Witness(cluster.directory, folder.recording))
        wanted = dict(cluster.agents)
        yield Arena(cluster, running, folder, witness, proxy, clock, store, ensemble, launch, wanted, mounts=empty)


class Held(Protocol):
    """The result of a job. `held`: whether all was as expected."""

    @property
    def held(self) -> bool: ...


Result = TypeVar("Result", bound=Held)


def in_run_folder(run: Callable[[RunFolder], Result]) -> Result:
    """Run with a folder of logs and state; keep it only if something did not hold."""
    folder = RunFolder.create("chaos", new_uuid())
    try:
        done = run(folder)
    except BaseException:
        shutil.rmtree(folder.path)
        raise
    if done.held:
        shutil.rmtree(folder.path)
    else:
        click.echo(f"logs and state: {folder.path}", err=True)
    return done


def _behind(proxy: MasterProxy, folder: RunFolder) -> None:
    """Let the scheduler find the master at the proxy."""
    options = json.loads(folder.options.read_text())
    options["mesos"]["master"] = proxy.address
    folder.options.write_text(json.dumps(options))


def enough(folder: RunFolder) -> Path:
    """The training ends when this file exists."""
    return folder.checkpoints / ENOUGH
