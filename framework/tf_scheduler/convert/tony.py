"""Converter for TonY's tony.xml."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from .tables import UNKNOWN, Action, Location, Note, SetOption, apply_row
from .tony_rows import COMMAND, IMAGE, INSTANCES, JOB_IMAGE, JOB_ROWS, PREFIXES, ROWS, SECTIONS, roles

#: TonY's defaults (tony-default.xml): property, option, value.
_DEFAULTS = (("memory", "mem", 2048), ("vcores", "cpus", 1.0))


def convert(properties: Mapping[str, str], program: str) -> Iterator[Action]:
    """Convert the properties of a tony.xml; `program` is the command line of a file without one."""
    jobs = roles(properties)
    for role in jobs:
        yield from _job(role, properties)
    for name, value in properties.items():
        location = Location(name, siblings=properties)
        if not any(name.startswith(f"tony.{role}.") for role in jobs):
            yield from _other(name, value, location)
    if program and COMMAND not in properties:  # a job's own command takes precedence
        yield SetOption(("service", "command"), program)
    elif program:
        yield Note(COMMAND, "overrides --command, which is for files without it")


def _job(role: str, properties: Mapping[str, str]) -> Iterator[Action]:
    section, prefix = _section(role, properties), f"tony.{role}."
    own = {name.removeprefix(prefix): value for name, value in properties.items() if name.startswith(prefix)}
    yield from (SetOption((section, option), value) for name, option, value in _DEFAULTS if name not in own)
    rows = {row.source: row for row in JOB_ROWS}
    for name, value in own.items():
        location = Location(prefix + name, section, properties)
        if name in rows:
            yield from apply_row(rows[name], value, location)
        else:
            yield Note(location.path, UNKNOWN)


def _section(role: str, properties: Mapping[str, str]) -> str:
    """Return the section of a role; workers with GPUs belong to gpu_worker."""
    gpus = properties.get(f"tony.{role}.gpus", "")
    return "gpu_worker" if role == "worker" and gpus.isdecimal() and float(gpus) else SECTIONS[role]


def _other(name: str, value: str, location: Location) -> Iterator[Action]:
    exact = next((row for row in ROWS if row.source == name), None)
    if exact is not None:
        yield from apply_row(exact, value, location)
        return
    image = IMAGE.fullmatch(name)
    if image and image[1] in SECTIONS:
        yield from apply_row(JOB_IMAGE, value, replace(location, section=_section(image[1], location.siblings)))
        return
    role = INSTANCES.fullmatch(name)
    if role:
        yield Note(name, f"omitted: unknown job {role[1]}; expected one of {', '.join(sorted(SECTIONS))}")
        return
    reason = next((why for prefix, why in PREFIXES.items() if name.startswith(prefix)), None)
    yield Note(name, f"omitted: {reason}" if reason else UNKNOWN)
