"""What is right for an agent: hostname, resources, attributes, and what several agents share."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from reprlib import Repr

#: Hostname, resources and attributes of one agent, as far as they are there and have the right type.
Fields = Mapping[str, object]
Pairs = list[tuple[str, str]]

_LAST_PORT = 65535
_MOST = 1e12  # of a number; Mesos counts in thousandths, in a double

# RFC 1123; shorter in all than its 253, because folders and logs are named after agents.
_LONGEST_LABEL, _LONGEST_HOSTNAME = 63, 200
_LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?")
#: Other nodes, and what else has a log, have these names.
RESERVED = ("guard", "master", "zookeeper")

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*(\([A-Za-z0-9_*./-]+\))?")
_NUMBER = re.compile(r"[0-9]{1,30}(\.[0-9]{1,30})?")
_RANGES = re.compile(r"\[\s*[0-9]{1,18}\s*-\s*[0-9]{1,18}\s*(,\s*[0-9]{1,18}\s*-\s*[0-9]{1,18}\s*)*\]")
_SET = re.compile(r"\{[^{}]*\}")
_SPAN = re.compile(r"([0-9]{1,18})\s*-\s*([0-9]{1,18})")

_short = Repr()
_short.maxstring, _short.maxother, _short.maxlevel = 80, 80, 2


def shown(value: object) -> str:
    """A value in a message, however long or deep it is."""
    return _short.repr(value)


def pairs(given: object) -> Pairs:
    """Name and value of "name:value;name:value", or of a mapping; a part without a colon has an empty value."""
    if isinstance(given, Mapping):
        return [(str(name), str(value)) for name, value in given.items()]
    parts = [part.partition(":") for part in str(given).split(";") if part.strip()]
    return [(name.strip(), value.strip()) for name, _, value in parts]


def errors_of(agents: Sequence[Fields]) -> list[str]:
    """Every error in these agents, one sentence each; empty if they are valid."""
    errors = [] if agents else ["there must be at least one agent"]
    seen: set[object] = set()
    for position, fields in enumerate(agents):
        where = describe(position, fields)
        errors += [f"{where}: {error}" for error in _field_errors(fields)]
        if "hostname" in fields and fields["hostname"] in seen:
            errors.append(f"{where}: hostname {shown(fields['hostname'])} is used twice")
        seen.add(fields.get("hostname"))
    return errors + list(_port_errors(agents))


def describe(position: int, fields: Fields) -> str:
    """ "agent 1 (its-hostname)"."""
    hostname = fields.get("hostname")
    return f"agent {position + 1}" + (f" ({shown(hostname)[1:-1]})" if isinstance(hostname, str) else "")


def port_spans(fields: Fields) -> list[tuple[int, int]]:
    """First and last port of each valid range, of all roles."""
    named = pairs(fields.get("resources", {}))
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
            f"hostname {shown(hostname)} may hold letters, digits, '.' and '-' only; "
            "each part between dots starts and ends with a letter or digit"
        )
    if len(hostname) > _LONGEST_HOSTNAME or max(map(len, labels)) > _LONGEST_LABEL:
        yield (
            f"hostname {shown(hostname)} is too long ({len(hostname)} characters): "
            f"allowed are {_LONGEST_LABEL} between two dots, {_LONGEST_HOSTNAME} in all"
        )
    if hostname in RESERVED:
        yield f"hostname {hostname!r} is taken: {', '.join(RESERVED)} are not agents"


def _pairs_errors(what: str, given: object) -> Iterator[str]:
    named = pairs(given)
    for name, raw in given.items() if isinstance(given, Mapping) else ():
        if isinstance(raw, bool) or not isinstance(raw, str | int | float):
            yield f"{what} {shown(name)}: {shown(raw)} is neither text nor a number"
            named.remove((str(name), str(raw)))
    for name, value in named:
        if not _NAME.fullmatch(name) or not value or ";" in value or not value.isprintable():
            yield f"{what} {shown(name)}: {shown(value)} is not of the form name:value"
        elif what == "resource" and (error := _value_error(name, value)):
            yield f"resource {shown(name)}: {shown(value)} {error}"
    names = [name for name, _ in named]
    yield from (f"{what} {shown(name)} is given twice" for name in sorted({n for n in names if names.count(n) > 1}))


def _value_error(name: str, value: str) -> str:
    if _is_ports(name):
        return "" if _valid_ports(value) else "is not ranges such as [31000-31099,31200-31299]"
    if _NUMBER.fullmatch(value):
        if float(value) > _MOST:
            return f"is too large: at most {_MOST:,.0f}"
        return "is not a whole number" if name == "gpus" and "." in value else ""
    if name in ("cpus", "mem", "disk", "gpus"):
        return "is not a number"
    valid = _RANGES.fullmatch(value) or _SET.fullmatch(value)
    return "" if valid else "is neither a number, nor [ranges], nor a {set}"


def _is_ports(name: str) -> bool:
    """Also of a role, `ports(role)`."""
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
