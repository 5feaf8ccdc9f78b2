"""TonY's tony.xml -> options."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from .mapping import Deed, Put, Say, Spot, asked
from .tony_rows import INSTANCES, JOB_ROWS, PREFIXES, ROWS, SECTIONS, roles

_COUNTED = ("parameter_server", "worker")
#: What TonY gives a task that does not say it (tony-default.xml): property, option, value.
_DEFAULTS = (("memory", "mem", 2048), ("vcores", "cpus", 1.0))


def convert(properties: Mapping[str, str], program: str) -> Iterator[Deed]:
    """All of a tony.xml: name -> value. `program`: command line where the file has none; empty: not known."""
    yield from (Put((section, "count"), 0) for section in _COUNTED)
    found = roles(properties)
    for role in found:
        yield from _job(role, properties)
    for name, value in properties.items():
        spot = Spot(name, siblings=properties)
        if not _belongs_to(name, found):
            yield from _other(name, value, spot)
    commands = [name for name in properties if name.endswith(".command")]
    if program and not commands:
        yield Put(("service", "command"), program)


def _belongs_to(name: str, jobs: Iterable[str]) -> bool:
    return any(name.startswith(f"tony.{role}.") for role in jobs)


def _job(role: str, properties: Mapping[str, str]) -> Iterator[Deed]:
    section, prefix = SECTIONS[role], f"tony.{role}."
    own = {name.removeprefix(prefix): value for name, value in properties.items() if name.startswith(prefix)}
    if section == "worker" and int(own.get("gpus", "0")):
        section = "gpu_worker"
    yield from (Put((section, option), value) for name, option, value in _DEFAULTS if name not in own)
    rows = {row.source: row for row in JOB_ROWS}
    for name, value in own.items():
        spot = Spot(prefix + name, section, properties)
        if name in rows:
            yield from asked(rows[name], value, spot)
        else:
            yield Say(spot.path, "is not known here and was left out")


def _other(name: str, value: str, spot: Spot) -> Iterator[Deed]:
    exact = next((row for row in ROWS if row.source == name), None)
    if exact is not None:
        yield from asked(exact, value, spot)
        return
    role = INSTANCES.fullmatch(name)
    if role:
        yield Say(name, f"was left out: there is no job like {role[1]}; there are {', '.join(sorted(SECTIONS))}")
        return
    reason = next((why for prefix, why in PREFIXES.items() if name.startswith(prefix)), None)
    yield Say(name, f"was left out: {reason}" if reason else "is not known here and was left out")
