"""Resources: what an agent offers, what a task needs, and what it lacks.

Scalars are integers in thousandths, because Mesos itself rounds them to 0.001
(Mesos documentation, attributes-resources). That keeps sums exact.
"""

from __future__ import annotations

from dataclasses import dataclass

#: One unit of a scalar resource, in our integers.
UNIT = 1000

#: Nobody counts the digits of longer numbers.
_LONG = 1e6

#: Inclusive (begin, end) pairs, ascending and disjoint.
Ranges = tuple[tuple[int, int], ...]
Value = int | Ranges | frozenset[str]


def thousandths(value: float) -> int:
    """A scalar as Mesos keeps it: rounded to 0.001."""
    return round(value * UNIT)


def spoken(value: int) -> str:
    """Thousandths as a person writes them: 1500 -> `1.5`, 2000 -> `2`, and from a million on `1,000,000`."""
    number = value / UNIT
    return (f"{number:,.3f}" if number >= _LONG else f"{number:.3f}").rstrip("0").rstrip(".")


@dataclass(frozen=True, slots=True)
class Resource:
    """One entry of an offer. A name may occur several times: reserved, unreserved, per disk source."""

    name: str
    #: Thousandths, ranges or a set of items.
    value: Value
    #: Everything else of the entry (reservations, allocation_info, disk ...) as canonical JSON. Mesos wants
    #: it back exactly as it was offered; entries are interchangeable only if their shapes are equal.
    shape: str = "{}"


@dataclass(frozen=True, slots=True)
class Needs:
    """What one task takes from an agent. Scalars in thousandths."""

    cpus: int = 0
    #: MB
    mem: int = 0
    #: MB
    disk: int = 0
    #: Always whole: Mesos refuses fractions.
    gpus: int = 0
    #: How many ports, whichever they are.
    ports: int = 0

    def __add__(self, other: Needs) -> Needs:
        return Needs(
            self.cpus + other.cpus,
            self.mem + other.mem,
            self.disk + other.disk,
            self.gpus + other.gpus,
            self.ports + other.ports,
        )

    def scalars(self) -> tuple[tuple[str, int], ...]:
        """(resource name, thousandths) of everything that is asked for."""
        pairs = (("cpus", self.cpus), ("mem", self.mem), ("disk", self.disk), ("gpus", self.gpus))
        return tuple((name, amount) for name, amount in pairs if amount > 0)

    def __str__(self) -> str:
        parts = [f"{name} {spoken(amount)}" for name, amount in self.scalars()]
        return ", ".join([*parts, *([f"ports {self.ports}"] if self.ports else [])])


@dataclass(frozen=True, slots=True)
class Shortage:
    """Why one resource of an agent is not enough."""

    name: str
    #: Thousandths for scalars, a count for ports.
    needs: int
    has: int

    def __str__(self) -> str:
        if self.name == "ports":
            return f"needs {self.needs} ports, has {self.has}"
        return f"needs {self.name} {spoken(self.needs)}, has {spoken(self.has)}"
