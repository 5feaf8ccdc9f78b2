"""The catalogue of faults, and a seeded plan of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import cycle

#: A number below the given one, by chance.
Draw = Callable[[int], int]


class Store(str, Enum):
    """The store of the scheduler's state."""

    SQLITE = "a file"
    ZOOKEEPER = "ZooKeeper"


@dataclass(frozen=True, slots=True)
class Fault:
    """A kind of fault. `store`: required store; `last`: no other fault can follow."""

    name: str
    what: str
    store: Store | None = None
    last: bool = False


@dataclass(frozen=True, slots=True)
class Strike:
    """A planned fault. `number` selects its victim; `parts`: simultaneous faults."""

    fault: Fault
    number: int
    parts: tuple[Fault, ...] = ()


@dataclass(frozen=True, slots=True)
class Round:
    """One training with its planned faults."""

    store: Store
    strikes: tuple[Strike, ...]


TWO = "two-at-once"

CATALOGUE: Mapping[str, Fault] = {
    fault.name: fault
    for fault in (
        Fault("worker", "the program of a worker is killed"),
        Fault("ps", "the program of a parameter server is killed"),
        Fault("chief", "the program of the chief is killed"),
        Fault("executor", "the executor of a task is killed"),
        Fault("scheduler", "the scheduler is killed; Marathon starts it again"),
        Fault("agent", "an agent is killed, and started again on its work directory"),
        Fault("master", "the master is killed, and started again on its work directory"),
        Fault("zookeeper", "ZooKeeper is killed, and started again on its data", Store.ZOOKEEPER),
        Fault("agent-frozen", "an agent is frozen until its tasks count as unreachable, and then continues"),
        Fault("master-frozen", "the master is frozen until the scheduler misses its heartbeats, and then continues"),
        Fault(TWO, "two of the kills at once"),
        Fault("disk-full", "the state's disk is full while a worker is killed, and later has free space", Store.SQLITE),
        Fault("worker-kills", "the program of a worker is killed three times in a row"),
        Fault("program-frozen", "the program of a task is stopped (SIGSTOP)"),
        Fault("state-lost", "the scheduler's state is lost; an operator continues the framework with `--adopt`"),
        Fault("scheduler-kills", "the scheduler is killed five times in a row"),
        Fault("scheduler-away", "the scheduler is stopped when an agent is unreachable, and continues when it is back"),
        Fault("registry-lost", "the master is killed, and started again without its registry"),
        Fault("agent-emptied", "an agent is killed, and started again with an empty work directory"),
        Fault("agent-back", "an agent is frozen until its tasks are replaced, and then continues"),
        Fault("agent-disk-full", "an agent has no disk space for launches when its worker is killed"),
        Fault("zookeeper-frozen", "ZooKeeper is frozen until its sessions have expired", Store.ZOOKEEPER),
        Fault("calls-refused", "the master refuses the scheduler's calls when a worker is killed, for 20 s"),
        Fault("calls-unanswered", "the master answers no calls when a worker is killed, for 20 s"),
        Fault("event-unknown", "the master sends events with unknown states and resource types"),
        Fault("hoarder", "another framework holds all offers for 30 s when a worker is killed"),
        Fault("agent-gone", "an agent is lost for good, with everything on it", last=True),
        Fault("agent-away", "an agent is frozen until the job has ended, and then continues", last=True),
    )
}

#: What two at once are drawn from.
_PARTS = ("worker", "ps", "chief", "executor", "scheduler", "agent", "master")
#: A victim is this number modulo how many there are.
_NUMBERS = 1 << 16


def unknown(names: Sequence[str]) -> list[str]:
    """List the problems of the names."""
    known = ", ".join(CATALOGUE)
    found = [f"unknown fault `{name}`; valid faults: {known}" for name in names if name not in CATALOGUE]
    found += [f"{name!r} is given twice" for name in sorted({name for name in names if names.count(name) > 1})]
    return found or ([] if names else [f"no fault is given; there are: {known}"])


def rounds(names: Sequence[str], draw: Draw) -> Iterator[Round]:
    """Yield endless laps, each with every fault once in random order."""
    while True:
        yield from lap(names, draw)


def lap(names: Sequence[str], draw: Draw) -> list[Round]:
    """Every fault once, in as few trainings as stores and last faults allow."""
    faults = sorted((CATALOGUE[name] for name in _shuffled(names, draw)), key=lambda fault: fault.last)
    stores = [store for store in Store if any(fault.store is store for fault in faults)] or [Store.SQLITE]
    last = sum(fault.last for fault in faults)
    stores += [stores[0]] * (last - len(stores))
    strikes: list[list[Strike]] = [[] for _ in stores]
    dealt = cycle(range(len(stores)))
    for fault in faults:
        where = next(number for number in dealt if fault.store in (None, stores[number]))
        strikes[where].append(_strike(fault, draw))
    return [Round(store, tuple(found)) for store, found in zip(stores, strikes, strict=True) if found]


def _strike(fault: Fault, draw: Draw) -> Strike:
    parts = tuple(CATALOGUE[name] for name in _shuffled(_PARTS, draw)[:2]) if fault.name == TWO else ()
    return Strike(fault, draw(_NUMBERS), parts)


def _shuffled(names: Sequence[str], draw: Draw) -> list[str]:
    """Fisher-Yates shuffle."""
    left, found = list(names), []
    while left:
        found.append(left.pop(draw(len(left))))
    return found
