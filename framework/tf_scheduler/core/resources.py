"""Match and consume: what is missing, and what is taken and left over. Offers are never changed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tf_scheduler.model.resources import Needs, Ranges, Resource, Shortage

PORTS = "ports"


def total(resources: Iterable[Resource], name: str) -> int:
    """Thousandths of a scalar over all its entries (a name is not unique in an offer)."""
    return sum(entry.value for entry in resources if entry.name == name and isinstance(entry.value, int))


def port_count(resources: Iterable[Resource]) -> int:
    """How many ports the entries hold."""
    return sum(end - begin + 1 for entry in resources for begin, end in _port_ranges(entry))


def shortages(resources: tuple[Resource, ...], needs: Needs) -> tuple[Shortage, ...]:
    """Everything that `resources` lack for `needs`, not only the first; empty when they suffice."""
    missing = [
        Shortage(name, amount, has) for name, amount in needs.scalars() if (has := total(resources, name)) < amount
    ]
    if needs.ports > (has := port_count(resources)):
        missing.append(Shortage(PORTS, needs.ports, has))
    return tuple(missing)


def consume(resources: tuple[Resource, ...], needs: Needs) -> tuple[tuple[Resource, ...], tuple[Resource, ...]]:
    """(taken, rest). Entries are used in the order of the offer and keep their shape.

    Call it only when `shortages` is empty; a lack raises ValueError.
    """
    wanted = dict(needs.scalars())
    ports = needs.ports
    taken: list[Resource] = []
    rest: list[Resource] = []
    for entry in resources:
        if entry.name == PORTS:
            part, left = _split_ranges(_port_ranges(entry), ports)
            ports -= port_count(_as_entries(entry, part))
            taken += _as_entries(entry, part)
            rest += _as_entries(entry, left)
        elif isinstance(entry.value, int) and wanted.get(entry.name):
            amount = min(entry.value, wanted[entry.name])
            wanted[entry.name] -= amount
            taken.append(replace(entry, value=amount))
            rest += [replace(entry, value=entry.value - amount)] if entry.value > amount else []
        else:
            rest.append(entry)
    if ports or any(wanted.values()):
        raise ValueError(f"resources do not hold {needs}: look at shortages() first")
    return tuple(taken), tuple(rest)


def claim_ports(
    resources: tuple[Resource, ...], wanted: frozenset[int]
) -> tuple[tuple[Resource, ...], tuple[Resource, ...]]:
    """(taken, rest): exactly these ports, as far as they are there."""
    taken: list[Resource] = []
    rest: list[Resource] = []
    for entry in resources:
        mine = [port for begin, end in _port_ranges(entry) for port in sorted(wanted) if begin <= port <= end]
        taken += _as_entries(entry, tuple((port, port) for port in mine))
        rest += _as_entries(entry, _without(_port_ranges(entry), mine)) if mine else [entry]
    return tuple(taken), tuple(rest)


def _without(ranges: Ranges, ports: list[int]) -> Ranges:
    for port in ports:
        ranges = tuple(
            part
            for begin, end in ranges
            for part in ([(begin, port - 1), (port + 1, end)] if begin <= port <= end else [(begin, end)])
            if part[0] <= part[1]
        )
    return ranges


def ports_of(resources: Iterable[Resource]) -> tuple[int, ...]:
    """Every port in the entries, ascending within an entry."""
    return tuple(port for entry in resources for begin, end in _port_ranges(entry) for port in range(begin, end + 1))


def _port_ranges(entry: Resource) -> Ranges:
    return entry.value if entry.name == PORTS and isinstance(entry.value, tuple) else ()


def _as_entries(entry: Resource, ranges: Ranges) -> list[Resource]:
    return [replace(entry, value=ranges)] if ranges else []


def _split_ranges(ranges: Ranges, count: int) -> tuple[Ranges, Ranges]:
    """The first `count` ports (or all there are) and the others."""
    taken: list[tuple[int, int]] = []
    rest: list[tuple[int, int]] = []
    for begin, end in ranges:
        size = min(end - begin + 1, count)
        count -= size
        if size:
            taken.append((begin, begin + size - 1))
        if begin + size <= end:
            rest.append((begin + size, end))
    return tuple(taken), tuple(rest)
