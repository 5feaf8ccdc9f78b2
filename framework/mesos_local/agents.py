"""Describe and validate agents of a local cluster; read the agents file."""

from __future__ import annotations

import json
import math
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from itertools import pairwise
from pathlib import Path
from reprlib import Repr
from typing import Any, NoReturn

from .host import MesosLocalError, os_error_text

#: Hostname, resources and attributes of one agent, if present and of the right type.
Fields = Mapping[str, object]
Pairs = list[tuple[str, str]]

_LAST_PORT = 65535
_MAX_NUMBER = 1e12  # Mesos counts in thousandths, in a double

# RFC 1123, but shorter than its 253 in all, because folders and logs are named after agents.
_MAX_LABEL, _MAX_HOSTNAME = 63, 200
_LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?")
#: Names of other nodes and logs.
RESERVED = ("guard", "master", "network", "zookeeper")

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*(\([A-Za-z0-9_*./-]+\))?")
_NUMBER = re.compile(r"[0-9]{1,30}(\.[0-9]{1,30})?")
_RANGES = re.compile(r"\[\s*[0-9]{1,18}\s*-\s*[0-9]{1,18}\s*(,\s*[0-9]{1,18}\s*-\s*[0-9]{1,18}\s*)*\]")
_SET = re.compile(r"\{[^{}]*\}")
_SPAN = re.compile(r"([0-9]{1,18})\s*-\s*([0-9]{1,18})")

_short = Repr()
_short.maxstring, _short.maxother, _short.maxlevel = 80, 80, 2


def abbreviate(value: object) -> str:
    """Return the `repr` of a value for a message, with limited length and depth."""
    return _short.repr(value)


def parse_pairs(source: object) -> Pairs:
    """Parse "name:value;name:value" or a mapping; without a colon the value is empty."""
    if isinstance(source, Mapping):
        return [(str(name), str(value)) for name, value in source.items()]
    parts = [part.partition(":") for part in str(source).split(";") if part.strip()]
    return [(name.strip(), value.strip()) for name, _, value in parts]


def find_errors(agents: Sequence[Fields]) -> list[str]:
    """Return all errors in these agents; empty if they are valid."""
    errors = [] if agents else ["at least one agent is required"]
    seen: set[object] = set()
    for position, fields in enumerate(agents):
        where = describe(position, fields)
        errors += [f"{where}: {error}" for error in _field_errors(fields)]
        if "hostname" in fields and fields["hostname"] in seen:
            errors.append(f"{where}: duplicate hostname {abbreviate(fields['hostname'])}")
        seen.add(fields.get("hostname"))
    return errors + list(_port_errors(agents))


def describe(position: int, fields: Fields) -> str:
    """Return a name for messages, such as "agent 1 (hostname)"."""
    hostname = fields.get("hostname")
    return f"agent {position + 1}" + (f" ({abbreviate(hostname)[1:-1]})" if isinstance(hostname, str) else "")


def port_spans(fields: Fields) -> list[tuple[int, int]]:
    """Return (first, last) of each valid port range of any role."""
    named = parse_pairs(fields.get("resources", {}))
    return [span for name, value in named if _is_ports(name) and _valid_ports(value) for span in _spans(value)]


def _field_errors(fields: Fields) -> Iterator[str]:
    if "hostname" in fields:
        yield from _hostname_errors(str(fields["hostname"]))
    for name, what in (("resources", "resource"), ("attributes", "attribute")):
        yield from _pairs_errors(what, fields.get(name, {}))


def _hostname_errors(hostname: str) -> Iterator[str]:
    labels = hostname.split(".")
    if not all(_LABEL.fullmatch(label) for label in labels):
        yield (
            f"hostname {abbreviate(hostname)} is invalid: only letters, digits, '.' and '-' are allowed; "
            "each part between dots starts and ends with a letter or digit"
        )
    if len(hostname) > _MAX_HOSTNAME or max(map(len, labels)) > _MAX_LABEL:
        yield (
            f"hostname {abbreviate(hostname)} is too long ({len(hostname)} characters): "
            f"at most {_MAX_LABEL} between two dots and {_MAX_HOSTNAME} in all are allowed"
        )
    if hostname in RESERVED:
        yield f"hostname {hostname!r} is reserved: agents must not have the names {', '.join(RESERVED)}"


def _pairs_errors(what: str, source: object) -> Iterator[str]:
    named = parse_pairs(source)
    for name, raw in source.items() if isinstance(source, Mapping) else ():
        if isinstance(raw, bool) or not isinstance(raw, str | int | float):
            yield f"{what} {abbreviate(name)}: {abbreviate(raw)} is neither text nor a number"
            named.remove((str(name), str(raw)))
    for name, value in named:
        if not _NAME.fullmatch(name) or not value or ";" in value or not value.isprintable():
            yield f"{what} {abbreviate(name)} with the value {abbreviate(value)} is not of the form name:value"
        elif what == "resource" and (error := _value_error(name, value)):
            yield f"resource {abbreviate(name)}: {abbreviate(value)} {error}"
    names = [name for name, _ in named]
    repeated = sorted({name for name in names if names.count(name) > 1})
    yield from (f"{what} {abbreviate(name)} is given twice" for name in repeated)


def _value_error(name: str, value: str) -> str:
    if _is_ports(name):
        return "" if _valid_ports(value) else "is not a list of port ranges such as [31000-31099,31200-31299]"
    if _NUMBER.fullmatch(value):
        if float(value) > _MAX_NUMBER:
            return f"is too large: at most {_MAX_NUMBER:,.0f}"
        return "is not a whole number" if name == "gpus" and "." in value else ""
    if name in ("cpus", "mem", "disk", "gpus"):
        return "is not a number"
    valid = _RANGES.fullmatch(value) or _SET.fullmatch(value)
    return "" if valid else "is neither a number, nor ranges such as [1-5], nor a set such as {a,b}"


def _is_ports(name: str) -> bool:
    """Whether a resource is named `ports` or `ports(role)`."""
    return name.partition("(")[0] == "ports"


def _valid_ports(value: str) -> bool:
    return _RANGES.fullmatch(value) is not None and all(0 < a <= b <= _LAST_PORT for a, b in _spans(value))


def _spans(ranges: str) -> list[tuple[int, int]]:
    return [(int(begin), int(end)) for begin, end in _SPAN.findall(ranges)]


def _port_errors(agents: Sequence[Fields]) -> Iterator[str]:
    spans = sorted(
        (span, str(fields.get("hostname", describe(number, fields))))
        for number, fields in enumerate(agents)
        for span in port_spans(fields)
    )
    for (one, owner), (other, other_owner) in pairwise(spans):
        if other[0] <= one[1]:
            yield f"ports of {owner} and {other_owner} overlap at {other[0]}: all agents share this machine's ports"


FIRST_PORT = 31000  # start of Mesos' default range, below the ports of outgoing connections (from 32768)
PORTS_PER_AGENT = 100
_MEGABYTE = 1 << 20
_RESERVE_MB = 1024  # memory for the master, the agents and the system
# The posix isolators do not limit, so these may exceed the machine.
_MIN_MB = 3072  # two TensorFlow tasks of 1 GB and their executors
_MIN_CPUS = 2


@dataclass(frozen=True, slots=True)
class AgentSpec:
    """Configuration of one agent.

    Args:
        hostname: Unique name of letters, digits, "." and "-".
        resources: "cpus:2;mem:4096;gpus:2;ports:[31000-31099]", or a mapping of name to number or text; mem and disk
            in MB. The cluster assigns missing ports, as all agents share the machine's; the agent detects the rest.
        attributes: "rack:a;zone:b", or a mapping.
    """

    hostname: str
    resources: str | Mapping[str, object]
    attributes: str | Mapping[str, object] = field(default_factory=dict)

    def fields(self) -> dict[str, object]:
        return {"hostname": self.hostname, "resources": self.resources, "attributes": self.attributes}

    def resource_pairs(self) -> dict[str, str]:
        """Return name -> value of the resources, in Mesos' format."""
        return dict(parse_pairs(self.resources))

    def attribute_pairs(self) -> dict[str, str]:
        """Return name -> value of the attributes, as text."""
        return dict(parse_pairs(self.attributes))


def count_gpus(devices: Path = Path("/dev")) -> int:
    """Return the number of NVIDIA GPUs of this machine."""
    return len([*devices.glob("nvidia[0-9]*")])


def default_agents(first_port: int = FIRST_PORT) -> tuple[AgentSpec, ...]:
    """Return three agents: each with all CPUs, a third of the memory, and 100 ports.

    The third agent has this machine's GPUs. On a machine without GPUs it offers 2, to test placement without devices.
    """
    total_mb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // _MEGABYTE
    common = {"cpus": max(_MIN_CPUS, os.cpu_count() or 1), "mem": max(_MIN_MB, (total_mb - _RESERVE_MB) // 3)}
    own: tuple[dict[str, object], ...] = ({}, {}, {"gpus": count_gpus() or 2})
    specs = [AgentSpec(f"agent-{n}", common | more, {"rack": f"rack-{n}"}) for n, more in enumerate(own, 1)]
    return with_ports(specs, first_port)


def check_agents(specs: Sequence[AgentSpec]) -> list[str]:
    """Return all errors in these agents; empty if they are valid."""
    return find_errors([spec.fields() for spec in specs])


def with_ports(specs: Sequence[AgentSpec], first_port: int = FIRST_PORT) -> tuple[AgentSpec, ...]:
    """Assign 100 ports to each agent without ports. Raises MesosLocalError if invalid."""
    if errors := check_agents(specs):
        raise MesosLocalError("invalid agents:\n" + "\n".join(f"  {error}" for error in errors))
    taken = [span for spec in specs for span in port_spans(spec.fields())]
    complete = []
    for spec in specs:
        if not port_spans(spec.fields()):
            first = first_port
            for begin, end in sorted(taken):
                if begin < first + PORTS_PER_AGENT and first <= end:
                    first = end + 1
            taken.append((first, first + PORTS_PER_AGENT - 1))
            resources = spec.resource_pairs() | {"ports": "[{}-{}]".format(*taken[-1])}
            complete.append(replace(spec, resources=resources))
        else:
            complete.append(spec)
    return tuple(complete)


_MAX_FILE_SIZE = 10 << 20  # bytes; thousands of agents
_KEYS = ("hostname", "resources", "attributes")
_REQUIRED = ("hostname", "resources")
_FORM = 'it must be a list of at least one object {"hostname": ..., "resources": ..., "attributes": ...}'


class _Object(dict[str, Any]):
    """A JSON object that records duplicate names."""

    repeated: tuple[str, ...] = ()

    @classmethod
    def of(cls, pairs: list[tuple[str, Any]]) -> _Object:
        result = cls(pairs)
        names = [name for name, _ in pairs]
        if len(result) < len(names):
            result.repeated = tuple(sorted({name for name in names if names.count(name) > 1}))
        return result


def load_agents(path: Path) -> tuple[AgentSpec, ...]:
    """Read an agents file; ports may be missing (`with_ports`).

    The file is a JSON list of {"hostname", "resources", "attributes"}. Raises MesosLocalError, which lists all errors.
    """
    content = _parse(_read(path), path)
    if not isinstance(content, list) or not content:
        raise _not_valid(path, [_FORM])
    entries = [_well_shaped(entry) for entry in content]
    errors = [error for position, entry in enumerate(content) for error in _shape_errors(position, entry)]
    if errors := errors + find_errors(entries):
        raise _not_valid(path, errors)
    return tuple(AgentSpec(**entry) for entry in content)


def _read(path: Path) -> bytes:
    """Read a regular file; reject others, because reading a pipe would block."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise MesosLocalError(f"agents file {path}: not a regular file")
        if status.st_size > _MAX_FILE_SIZE:
            raise MesosLocalError(f"agents file {path}: too large; maximum: {_MAX_FILE_SIZE >> 20} MB")
        return path.read_bytes()
    except OSError as error:
        raise MesosLocalError(f"{path}: {os_error_text(error, path)}") from error


def _parse(data: bytes, path: Path) -> object:
    try:
        return json.loads(
            data.decode("utf-8-sig"),
            object_pairs_hook=_Object.of,
            parse_int=lambda text: int(text) if len(text) < 20 else _refuse(text),
            parse_float=_parse_float,
            parse_constant=_refuse,
        )
    except (ValueError, RecursionError) as error:
        raise MesosLocalError(f"agents file {path}: invalid JSON: {error}") from error


def _parse_float(text: str) -> float:
    value = float(text)
    return value if math.isfinite(value) else _refuse(text)


def _refuse(text: str) -> NoReturn:
    raise ValueError(f"{abbreviate(text)[1:-1]} is not a number that Mesos accepts")


def _well_shaped(entry: object) -> Fields:
    """Return only the fields of the right type; their values can then be validated."""
    if not isinstance(entry, dict):
        return {}
    return {name: value for name, value in entry.items() if name in _KEYS and not _type_error(name, value)}


def _shape_errors(position: int, entry: object) -> Iterator[str]:
    if not isinstance(entry, _Object):
        yield f"agent {position + 1}: {abbreviate(entry)} is not an object"
        return
    where = describe(position, entry)
    yield from (f"{where}: {error}" for error in _entry_errors(entry))


def _entry_errors(entry: _Object) -> Iterator[str]:
    for name in entry:
        if name not in _KEYS:
            near = get_close_matches(name[:80], _KEYS, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"allowed: {', '.join(_KEYS)}"
            yield f"unknown key {abbreviate(name)}: {hint}"
    yield from (f"{abbreviate(name)} is given twice" for name in entry.repeated)
    yield from (f"{name} is missing" for name in _REQUIRED if name not in entry)
    for name in _KEYS:
        if name in entry:
            yield from _type_error(name, entry[name])
            for inner in getattr(entry[name], "repeated", ()):
                yield f"{name.removesuffix('s')} {abbreviate(inner)} is given twice"


def _type_error(name: str, value: object) -> list[str]:
    if name == "hostname":
        return [] if isinstance(value, str) else [f"hostname {abbreviate(value)} is not text"]
    if not isinstance(value, str | Mapping):
        return [f"{name} {abbreviate(value)} is neither text nor an object"]
    return []


def _not_valid(path: Path, errors: list[str]) -> MesosLocalError:
    return MesosLocalError(f"agents file {path}: invalid:\n" + "\n".join(f"  {error}" for error in errors))
