"""The catalogue of faults, and a seeded plan of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

#: A number below the given one, by chance.
Draw = Callable[[int], int]


class Store(str, Enum):
    """The store of the scheduler's state."""

    SQLITE = "file"
    ZOOKEEPER = "ZooKeeper"
    ENSEMBLE = "ZooKeeper of three"
    #: In a file; the cluster has containers.
    CONTAINERS = "containers"


#: What a fault strikes that requires none.
_USUAL = (Store.SQLITE, Store.ZOOKEEPER)


@dataclass(frozen=True, slots=True)
class Fault:
    """A kind of fault. `store`: required store; `last`: no other fault can follow.

    `parts`: words for what it strikes, and for what has to work meanwhile; two faults can occur at once if their words
    differ. Without any it occurs only alone. `times`: how often it strikes per lap and store.
    """

    name: str
    what: str
    store: Store | None = None
    last: bool = False
    parts: str = ""
    times: int = 1


@dataclass(frozen=True, slots=True)
class Strike:
    """A planned fault. `number` selects its victim; `parts`: simultaneous faults."""

    fault: Fault
    number: int
    parts: tuple[Fault, ...] = ()

    @property
    def name(self) -> str:
        """The fault's name, and those of simultaneous ones."""
        return f"{self.fault.name} ({', '.join(part.name for part in self.parts)})" if self.parts else self.fault.name


@dataclass(frozen=True, slots=True)
class Round:
    """One training with its planned faults."""

    store: Store
    strikes: tuple[Strike, ...]


#: How often a fault has struck with a store.
Struck = Counter[tuple[str, Store]]

TWO = "two-at-once"
#: It needs a kernel with netem.
DELAY = "packet-delay"


CATALOGUE: Mapping[str, Fault] = {
    fault.name: fault
    for fault in (
        Fault("worker", "the program of a worker is killed", parts="task"),
        Fault("ps", "the program of a parameter server is killed", parts="task"),
        Fault("chief", "the program of the chief is killed", parts="task"),
        Fault("executor", "the executor of a task is killed", parts="task"),
        Fault(
            "executor-killed",
            "an executor is killed whose task has a process without its environment and session",
            parts="task",
        ),
        Fault("scheduler", "the scheduler is killed; Marathon starts it again", parts="scheduler"),
        Fault("agent", "an agent is killed, and started again on its work directory", parts="agent"),
        Fault("master", "the master is killed, and started again on its work directory", parts="master registry"),
        Fault("zookeeper", "ZooKeeper is killed, and started again on its data", Store.ZOOKEEPER, parts="store"),
        Fault(
            "agent-frozen",
            "an agent is frozen until its tasks count as unreachable, and then continues",
            parts="agent registry",
        ),
        Fault(
            "master-frozen",
            "the master is frozen until the scheduler misses its heartbeats, and then continues",
            parts="master scheduler",
        ),
        Fault(TWO, "two faults at once", times=2),
        Fault(
            "disk-full",
            "the state's disk is full while a worker is killed, and later has free space",
            Store.SQLITE,
            parts="scheduler store",
        ),
        Fault("worker-kills", "the program of a worker is killed three times in a row", parts="task"),
        Fault("program-frozen", "the program of a task is stopped (SIGSTOP)", parts="task"),
        Fault(
            "state-lost",
            "the scheduler's state is lost; an operator continues the framework with `--adopt`",
            parts="scheduler store master registry",
        ),
        Fault(
            "nodes-deleted",
            "the state's nodes are deleted while the scheduler runs or is down; an operator continues with `--adopt`",
            Store.ZOOKEEPER,
            parts="scheduler store master registry",
        ),
        Fault(
            "byte-flipped",
            "a byte of the stored state changes while the scheduler is down; an operator restores it after the refusal",
            parts="scheduler store",
        ),
        Fault(
            "roll-back",
            "the state was written by a newer version; an operator restores it after the refusal",
            parts="scheduler store",
        ),
        Fault(
            "disk-read-only",
            "the state's file system is read-only when the scheduler starts",
            Store.SQLITE,
            parts="scheduler store",
        ),
        Fault(
            "twin",
            "another scheduler of the same name is started with an empty state, and refused",
            parts="master registry",
        ),
        Fault(
            "quorum-lost",
            "two of three ZooKeeper servers are frozen for 25 s while a worker is killed",
            Store.ENSEMBLE,
        ),
        Fault("scheduler-kills", "the scheduler is killed five times in a row", parts="scheduler"),
        Fault(
            "scheduler-away",
            "the scheduler is stopped when an agent is unreachable, and continues when it is back",
            parts="scheduler agent registry",
        ),
        Fault(
            "scheduler-reconnects",
            "the scheduler loses its connection when an agent is unreachable, and reconnects when the agent is back",
            parts="scheduler agent master registry",
        ),
        Fault(
            "clock-forward",
            "the scheduler's clock is set forward by 1 h while an agent is unreachable and a worker is killed",
            parts="scheduler agent task registry store",
        ),
        Fault(
            "clock-back",
            "the scheduler's clock is set back by 1 h while an agent is unreachable and a worker is killed",
            parts="scheduler agent task registry store",
        ),
        Fault("registry-lost", "the master is killed, and started again without its registry", parts="master registry"),
        Fault(
            "agent-emptied",
            "an agent is killed, and started again with an empty work directory",
            parts="agent registry",
        ),
        Fault(
            "agent-back", "an agent is frozen until its tasks are replaced, and then continues", parts="agent registry"
        ),
        Fault("agent-disk-full", "an agent has no disk space for launches when its worker is killed", parts="agent"),
        Fault("agent-disk-full-running", "an agent's disk is full for 10 s while tasks run and its worker is killed"),
        Fault(
            "zookeeper-frozen", "ZooKeeper is frozen until its sessions have expired", Store.ZOOKEEPER, parts="store"
        ),
        Fault(
            "calls-refused",
            "the master refuses the scheduler's calls when a worker is killed, for 20 s",
            parts="master",
        ),
        Fault("calls-unanswered", "the master answers no calls when a worker is killed, for 20 s", parts="master"),
        Fault("event-unknown", "the master sends events with unknown states and resource types", parts="master"),
        Fault("hoarder", "another framework holds all offers for 30 s when a worker is killed", parts="master"),
        Fault(
            "port-taken",
            "a worker is killed, and another process listens on its port before the relaunch",
        ),
        Fault(
            "maintenance-soon",
            "maintenance of an agent is scheduled that begins in a minute, and later cancelled",
        ),
        Fault("output-removed", "the output files of the chief are removed from its sandbox"),
        Fault("log-cut", "the scheduler's log file is cut to half of its size when a worker is killed"),
        Fault(
            "two-schedulers",
            "a second scheduler with the same options and state runs when a worker is killed",
            Store.ZOOKEEPER,
        ),
        Fault(
            "agent-containers",
            "an agent is killed, and started again while its containers run",
            Store.CONTAINERS,
        ),
        Fault(
            "master-cut",
            "an agent is cut off from master and scheduler until its tasks count as unreachable",
            Store.CONTAINERS,
        ),
        Fault(
            "master-cut-to",
            "packets from an agent to master and scheduler are lost until its tasks count as unreachable",
            Store.CONTAINERS,
        ),
        Fault(
            "master-cut-from",
            "packets from master and scheduler to an agent are lost until its tasks count as unreachable",
            Store.CONTAINERS,
        ),
        Fault(
            "master-cut-long",
            "an agent is cut off from master and scheduler until its tasks are replaced",
            Store.CONTAINERS,
        ),
        Fault("peers-cut", "an agent is cut off from the other agents for 20 s", Store.CONTAINERS),
        Fault("peers-cut-to", "packets from an agent to the other agents are lost for 20 s", Store.CONTAINERS),
        Fault("peers-cut-from", "packets from the other agents to an agent are lost for 20 s", Store.CONTAINERS),
        Fault(
            "peers-cut-long",
            "an agent is cut off from the other agents until the training counts as stalled",
            Store.CONTAINERS,
        ),
        Fault(
            "peers-cut-timeout",
            "an agent is cut off from the other agents until connections of its tasks fail",
            Store.CONTAINERS,
        ),
        Fault("packet-loss", "a fifth of the packets from and to an agent are lost for 30 s", Store.CONTAINERS),
        Fault(DELAY, "each packet from an agent is delayed by 200 ms for 30 s", Store.CONTAINERS),
        Fault("agent-gone", "an agent is lost for good, with everything on it", last=True),
        Fault("agent-away", "an agent is frozen until the job has ended, and then continues", last=True),
    )
}

#: Faults that end their job, or need another job than a training: each has jobs of its own (`jobs`).
JOBS: Mapping[str, Fault] = {
    fault.name: fault
    for fault in (
        Fault("program-broken", "the program can never run"),
        Fault("kill-loop", "a program is killed at each start"),
        Fault("late-in-turn", "tasks of a gang do not join, each time another one"),
        Fault("out-of-memory", "a program uses more memory than its container may"),
        Fault("many-kills", "many programs are killed at the same moment"),
        Fault("uninstall-with-agent-away", "a service is uninstalled while a replaced task's agent is frozen"),
    )
}
#: Names of all faults.
ALL = (*CATALOGUE, *JOBS)

#: Strikes of one training: another one costs half a minute, and a failure ends the strikes of its training.
LONGEST = 12
#: A victim is this number modulo how many there are.
_NUMBERS = 1 << 16


def unknown(names: Sequence[str]) -> list[str]:
    """List the problems of the names."""
    known = ", ".join(ALL)
    found = [f"unknown fault `{name}`; valid faults: {known}" for name in names if name not in ALL]
    found += [f"{name!r} is given twice" for name in sorted({name for name in names if names.count(name) > 1})]
    return found or ([] if names else [f"no fault is given; there are: {known}"])


def laps(names: Sequence[str], struck: Struck) -> int:
    """Count the finished laps. In each, every fault strikes with each store it can."""
    return min(struck[name, store] // CATALOGUE[name].times for name in names for store in stores_of(CATALOGUE[name]))


def next_round(names: Sequence[str], struck: Struck, draw: Draw) -> Round:
    """Plan the next training of the lap, first the faults that struck least often."""
    until = laps(names, struck) + 1
    due: dict[Store, list[str]] = {store: [] for store in Store}
    for fault in map(CATALOGUE.__getitem__, names):
        for store in stores_of(fault):
            due[store] += [fault.name] * (until * fault.times - struck[fault.name, store])
    store = max(Store, key=lambda each: len(due[each]))
    rare = sorted(_shuffled(due[store], draw), key=lambda name: _strikes(name, struck))
    faults = [CATALOGUE[name] for name in rare]
    last = [fault for fault in faults if fault.last][:1]
    chosen = [fault for fault in faults if not fault.last][: LONGEST - len(last)] + last
    return Round(store, tuple(_strike(fault, store, draw) for fault in chosen))


def can_pair(one: Fault, other: Fault) -> bool:
    """Whether two faults can occur at once."""
    return bool(one.parts and other.parts) and not set(one.parts.split()) & set(other.parts.split())


def stores_of(fault: Fault) -> tuple[Store, ...]:
    """Stores with which a fault can occur."""
    return _USUAL if fault.store is None else (fault.store,)


def _strikes(name: str, struck: Struck) -> int:
    return sum(struck[name, store] for store in Store) // CATALOGUE[name].times


def _strike(fault: Fault, store: Store, draw: Draw) -> Strike:
    return Strike(fault, draw(_NUMBERS), _pair(store, draw) if fault.name == TWO else ())


def _pair(store: Store, draw: Draw) -> tuple[Fault, ...]:
    faults = [CATALOGUE[name] for name in _shuffled(list(CATALOGUE), draw) if store in stores_of(CATALOGUE[name])]
    first = next(fault for fault in faults if fault.parts)
    return first, next(fault for fault in faults if can_pair(first, fault))


def _shuffled(names: Sequence[str], draw: Draw) -> list[str]:
    """Fisher-Yates shuffle."""
    left, found = list(names), []
    while left:
        found.append(left.pop(draw(len(left))))
    return found
