"""Resources of agents, needs of tasks, volumes and networks.

Scalars are integers in thousandths, so that sums are exact. Mesos rounds scalars to 0.001 (Mesos documentation,
attributes-resources).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

#: Thousandths in one unit of a scalar resource.
UNIT = 1000

#: From this value on, thousands separators are shown.
_LONG = 1e6

#: Inclusive (begin, end) pairs, ascending and disjoint.
Ranges = tuple[tuple[int, int], ...]
Value = int | Ranges | frozenset[str]


def thousandths(value: float) -> int:
    """Return a scalar rounded to thousandths, as Mesos stores it."""
    return round(value * UNIT)


def format_thousandths(value: int) -> str:
    """Format thousandths for display: 1500 -> `1.5`, 10**9 -> `1,000,000`."""
    number = value / UNIT
    return (f"{number:,.3f}" if number >= _LONG else f"{number:.3f}").rstrip("0").rstrip(".")


@dataclass(frozen=True, slots=True)
class Resource:
    """One entry of an offer; reserved, unreserved and disk entries may share a name."""

    name: str
    #: Thousandths, ranges or a set.
    value: Value
    #: Other fields (reservations, allocation_info, disk ...) as canonical JSON, returned to Mesos unchanged; only
    #: entries of equal shape are interchangeable.
    shape: str = "{}"

    def value_fields(self) -> dict[str, Any]:
        """Return the type and the value in the JSON form of Mesos (mesos.proto, Resource)."""
        if isinstance(self.value, int):
            return {"type": "SCALAR", "scalar": {"value": self.value / UNIT}}
        if isinstance(self.value, tuple):
            ranges = [{"begin": begin, "end": end} for begin, end in self.value]
            return {"type": "RANGES", "ranges": {"range": ranges}}
        return {"type": "SET", "set": {"item": sorted(self.value)}}


@dataclass(frozen=True, slots=True)
class Needs:
    """Resources of a task in thousandths (`mem`, `disk`: of a MB); `ports` is a count."""

    cpus: int = 0
    mem: int = 0
    disk: int = 0
    #: Whole numbers only: Mesos rejects fractions.
    gpus: int = 0
    ports: int = 0

    def __add__(self, other: Needs) -> Needs:
        return Needs(
            self.cpus + other.cpus,
            self.mem + other.mem,
            self.disk + other.disk,
            self.gpus + other.gpus,
            self.ports + other.ports,
        )

    @classmethod
    def of(cls, resources: Iterable[Resource]) -> Needs:
        """Return the sums of the scalars of the resources; `ports` is 0."""
        amounts = Counter[str]()
        for item in resources:
            amounts[item.name] += item.value if isinstance(item.value, int) else 0
        return cls(amounts["cpus"], amounts["mem"], amounts["disk"], amounts["gpus"])

    def scalars(self) -> tuple[tuple[str, int], ...]:
        """Return (resource name, thousandths) of every needed scalar."""
        pairs = (("cpus", self.cpus), ("mem", self.mem), ("disk", self.disk), ("gpus", self.gpus))
        return tuple((name, amount) for name, amount in pairs if amount > 0)

    def covers(self, resources: Iterable[Resource]) -> bool:
        """Return whether the needs are at least the scalars of the resources."""
        amounts = Counter[str]()
        for item in resources:
            amounts[item.name] += item.value if isinstance(item.value, int) else 0
        needs = dict(self.scalars())
        return all(amount <= needs.get(name, 0) for name, amount in amounts.items())

    def __str__(self) -> str:
        parts = [f"{name} {format_thousandths(amount)}" for name, amount in self.scalars()]
        return ", ".join([*parts, *([f"ports {self.ports}"] if self.ports else [])])


@dataclass(frozen=True, slots=True)
class Shortage:
    """A resource that an agent lacks: the amount needed, and the amount it has."""

    name: str
    #: Thousandths; a count for ports.
    needs: int
    has: int
    #: Amount on PATH, MOUNT and other separate disks, which tasks cannot use.
    unused: int = 0

    def __str__(self) -> str:
        if self.name == "ports":
            return f"needs {self.needs} ports, has {self.has}"
        unused = f" ({format_thousandths(self.unused)} on PATH or MOUNT disks is not used)" if self.unused else ""
        return f"needs {self.name} {format_thousandths(self.needs)}, has {format_thousandths(self.has)}{unused}"


@dataclass(frozen=True, slots=True)
class Volume:
    """A directory or file of the agent that is mounted into a task."""

    #: Absolute path on the agent.
    host_path: str
    #: Path in the task: absolute, or relative to its working directory.
    container_path: str
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class VirtualNetwork:
    """A CNI network: each container has its own address and predictable DNS name."""

    #: Name in the agents' CNI configuration or in DC/OS.
    name: str
    #: Labels for the network plugin.
    labels: Mapping[str, str] = field(default_factory=dict)
