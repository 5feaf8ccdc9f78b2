"""TonY's tony.xml -> options."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from .mapping import Deed, Put, Say, Spot, asked
from .tony_rest import PREFIXES
from .tony_rows import COMMAND, IMAGE, INSTANCES, JOB_IMAGE, JOB_ROWS, ROWS, SECTIONS, roles

#: What TonY gives a task that does not say it (tony-default.xml): property, option, value.
_DEFAULTS = (("memory", "mem", 2048), ("vcores", "cpus", 1.0))


def convert(properties: Mapping[str, str], program: str) -> Iterator[Deed]:
    """All of a tony.xml: name -> value. `program`: command line where the file has none; empty: not known."""
    found = roles(properties)
    for role in found:
        yield from _job(role, properties)
    for name, value in properties.items():
        spot = Spot(name, siblings=properties)
        if not _belongs_to(name, found):
            yield from _other(name, value, spot)
    if program and COMMAND not in properties:  # a job's own command counts more
        yield Put(("service", "command"), program)
    elif program:
        yield Say(COMMAND, "is what tasks run; --command is for a file without it")


def _belongs_to(name: str, jobs: Iterable[str]) -> bool:
    return any(name.startswith(f"tony.{role}.") for role in jobs)


def _job(role: str, properties: Mapping[str, str]) -> Iterator[Deed]:
    section, prefix = _section(role, properties), f"tony.{role}."
    own = {name.removeprefix(prefix): value for name, value in properties.items() if name.startswith(prefix)}
    yield from (Put((section, option), value) for name, option, value in _DEFAULTS if name not in own)
    rows = {row.source: row for row in JOB_ROWS}
    for name, value in own.items():
        spot = Spot(prefix + name, section, properties)
        if name in rows:
            yield from asked(rows[name], value, spot)
        else:
            yield Say(spot.path, "is not known here and was left out")


def _section(role: str, properties: Mapping[str, str]) -> str:
    """Workers with GPUs have their own. Of a number that is none its row tells."""
    gpus = properties.get(f"tony.{role}.gpus", "")
    return "gpu_worker" if role == "worker" and gpus.isdecimal() and float(gpus) else SECTIONS[role]


def _other(name: str, value: str, spot: Spot) -> Iterator[Deed]:
    exact = next((row for row in ROWS if row.source == name), None)
    if exact is not None:
        yield from asked(exact, value, spot)
        return
    image = IMAGE.fullmatch(name)
    if image and image[1] in SECTIONS:
        yield from asked(JOB_IMAGE, value, replace(spot, section=_section(image[1], spot.siblings)))
        return
    role = INSTANCES.fullmatch(name)
    if role:
        yield Say(name, f"was left out: there is no job like {role[1]}; there are {', '.join(sorted(SECTIONS))}")
        return
    reason = next((why for prefix, why in PREFIXES.items() if name.startswith(prefix)), None)
    yield Say(name, f"was left out: {reason}" if reason else "is not known here and was left out")
