"""Parse option values that are text: constraints, name lists, patterns, storage.

Placement constraints are Marathon's, in three forms:

    [["rack", "MAX_PER", "2"], ["hostname", "UNIQUE"]]     a JSON list of rows
    ["rack", "MAX_PER", "2"]                               one row
    rack:MAX_PER:2,hostname:UNIQUE                         text; a backslash escapes `:` and `,`

All rows must hold (dcos-commons, MarathonConstraintParser).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tf_scheduler.model.placement import HOSTNAME, Constraint, Operator
from tf_scheduler.model.redaction import redact_text

#: An options document, or a section of one.
Document = Mapping[str, Any]

_FORMS = '[["field", "OPERATOR", "value"], ...], ["field", "OPERATOR", "value"] or field:OPERATOR:value,...'
_OPERATORS = ", ".join(item.value for item in Operator)


#: Parts of a regular expression; look-around, back-references and rare escapes are not among them.
_PART = re.compile(
    r"(?:(?P<open>\((?:\?(?:P<\w+>|:|[aims]+(?=\))))?(?!\?))|(?P<close>\))|(?P<choice>\|)|(?P<edge>[$^]|\\[AbBZ])"
    r"|(?P<atom>\\(?:x..|u....|[^\dNUux])|\[\^?\]?(?:\\.|[^\]\\])*\]|[^()|\\*+?]))"
    r"(?P<repeat>[*+?]|\{(?:\d+|\d*,\d*)\})?\??",
    re.DOTALL,
)
_REFUSED = re.compile(r"\(\?\w*\W|..?", re.DOTALL)
#: Characters for which classes of an expression may differ.
_CHARACTERS = "".join(map(chr, range(128))) + "\xa0\xe9\u0661\u20ac"
#: Alternatives and optional groups, each of which may double the time.
_MAX_CHOICES = 4


@dataclass
class _Atom:
    """A part of a regular expression that matches one character, such as `[0-9]+`."""

    text: str
    characters: frozenset[str]
    is_variable: bool
    #: Index of the atom that may follow if this one is left out, perhaps with its group; None: it is required.
    after: int | None = None


def parse_line_pattern(text: str) -> None:
    """Check a regular expression for lines of output. Raises ValueError."""
    try:
        groups = re.compile(text).groupindex
    except re.error as error:
        raise ValueError(f"must be a regular expression: {error}") from error
    if text and not groups:
        raise ValueError("must have a named group, for example `(?P<step>[0-9]+)`")
    atoms = _atoms(text)
    overlapping = [_overlapping(atoms, number) if atom.is_variable else "" for number, atom in enumerate(atoms)]
    for number, (atom, other) in enumerate(zip(atoms, overlapping, strict=True)):
        # What the last atom matches cannot be wrong, so that a repetition just before it needs one try.
        later = zip(atoms[number + 1 : -1], overlapping[number + 1 :], strict=False)
        if other and any(one.is_variable and (same or one.text[-1] != "?") for one, same in later):
            raise ValueError(
                f"must not contain `{atom.text}` before `{other}`: both match the same characters, which is slow; "
                "exclude them, as `[^,]+,` does, and write `\\D+` for what is between two numbers"
            )


def _atoms(text: str) -> list[_Atom]:
    """Split a regular expression into atoms. Raises ValueError if it may be slow."""
    atoms: list[_Atom] = []
    # Required atoms of the last alternative, and the number of alternatives before it, of each open group.
    required: list[list[_Atom]] = [[]]
    alternatives = [0]
    choices = position = 0
    while position < len(text):
        part = _PART.match(text, position)
        if part is None or (part["close"] and part["repeat"] not in (None, "?")):
            match = part or _REFUSED.match(text, position)
            refused = match[0] if match else ""
            raise ValueError(f"must not contain `{refused}`: repeated groups, look-around and back-references are slow")
        position = part.end()
        if part["edge"]:
            atoms.append(_Atom(part[0], frozenset(), is_variable=False, after=len(atoms) + 1))
        elif part["open"]:
            required.append([])
            alternatives.append(0)
        elif part["atom"]:
            atoms.append(_atom(part["atom"], part["repeat"] or "", text, len(atoms) + 1))
            required[-1].append(atoms[-1])
        elif part["choice"] or part["close"]:
            choices += bool(part["choice"] or part["repeat"])
            before = 0 if part["choice"] else alternatives.pop()
            last = required.pop()
            if part["choice"] or part["repeat"] or before:
                for atom in last:
                    atom.after = atom.after or len(atoms)
                last = []
            if part["choice"]:
                alternatives[-1] += 1
                required.append(last)
            else:
                required[-1] += last
    if choices > _MAX_CHOICES:
        raise ValueError(f"is slow: it has {choices} alternatives and optional groups, only {_MAX_CHOICES} are allowed")
    return atoms


def _atom(text: str, repeat: str, pattern: str, after: int) -> _Atom:
    """Return an atom. `pattern`: the whole expression; `after`: the next atom's index."""
    one = re.compile(text, re.IGNORECASE | re.DOTALL)
    characters = frozenset(character for character in _CHARACTERS + pattern if one.fullmatch(character))
    least, comma, most = repeat.strip("{}").partition(",")
    is_variable = repeat in ("*", "+", "?") or (bool(comma) and least != most)
    is_optional = repeat in ("*", "?") or (repeat[:1] == "{" and not least.strip("0"))
    return _Atom(text + repeat, characters, is_variable, after if is_optional else None)


def _overlapping(atoms: Sequence[_Atom], number: int) -> str:
    """Return a following atom that may match the repeated atom's characters, or empty."""
    following: int | None = number + 1
    while following is not None and following < len(atoms):
        if atoms[following].characters & atoms[number].characters:
            return atoms[following].text
        following = atoms[following].after
    return ""


class ConstraintError(ValueError):
    """Invalid placement constraints; `args` has one message per error."""


#: Names of credentials in the file systems of fsspec, besides those that `redact_text` masks.
_CREDENTIAL = re.compile(
    "key|secret|token|pass|credential|connection_string|cookie|authorization|bearer|sas(?!l)", re.IGNORECASE
)


def parse_storage_options(text: str) -> dict[str, Any]:
    """Parse options of a file system, without credentials. Raises ValueError."""
    try:
        options = json.loads(text or "{}")
        wrong = next(_credentials(options), "")
    except (ValueError, RecursionError) as error:
        raise ValueError(f"must be a JSON object as text: {error}") from error
    if not isinstance(options, dict):
        raise ValueError(f"must be a JSON object as text, not {text[:60]}")
    if wrong:
        raise ValueError(
            f"{wrong}: credentials are secrets: use the option secrets, for example for the variable "
            "AWS_SECRET_ACCESS_KEY"
        )
    return options


def _credentials(value: Any, path: str = "") -> Iterator[str]:
    """Yield options named like credentials, and texts that `redact_text` masks."""
    if isinstance(value, dict):
        for name, item in value.items():
            inner = f"{path}.{name}" if path else name
            is_named = bool(_CREDENTIAL.search(name)) or _is_masked(f'"{name}": "value"')
            yield from (inner,) if is_named and not isinstance(item, bool) else _credentials(item, inner)
    elif isinstance(value, list):
        for item in value:
            is_pair = isinstance(item, list) and len(item) == 2 and isinstance(item[0], str)  # such as a header
            yield from _credentials({item[0]: item[1]} if is_pair else item, path)
    elif isinstance(value, str) and _is_masked(value):
        yield path


def _is_masked(text: str) -> bool:
    return redact_text(text) != text


def parse_constraints(text: str) -> tuple[Constraint, ...]:
    """Parse all placement constraints; empty text means none. Raises ConstraintError."""
    if not text.strip():
        return ()
    rows = _rows(text)
    errors = [error for row in rows for error in _errors(row)]
    if errors:
        raise ConstraintError(*errors)
    return tuple(_constraint(row) for row in rows)


def _rows(text: str) -> list[list[str]]:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        if text.lstrip().startswith("["):
            raise ConstraintError(f"is not JSON; write {_FORMS}") from None
        return [_split(row, ":") for row in _split(text, ",")]
    if isinstance(content, list) and all(isinstance(row, list) for row in content):
        return [_texts(row) for row in content]
    if isinstance(content, list):
        return [_texts(content)]
    raise ConstraintError(f"must be {_FORMS}")


def _texts(row: Sequence[Any]) -> list[str]:
    """Convert numbers in hand-written JSON to text: ["rack", "MAX_PER", 2]."""
    wrong = [item for item in row if isinstance(item, bool) or not isinstance(item, (str, int, float))]
    if wrong:
        raise ConstraintError(f"{json.dumps(row)}: {json.dumps(wrong[0])} is neither text nor a number")
    return [str(item) for item in row]


def _split(text: str, mark: str) -> list[str]:
    """Split at unescaped marks and strip white space; keep other backslashes."""
    tokens = re.findall(r"\\.|[^\\]|\\\Z", text, re.DOTALL)
    parts = [""]
    for token in tokens:
        if token == mark:
            parts.append("")
        else:
            parts[-1] += mark if token == f"\\{mark}" else token
    return [part.strip() for part in parts]


def _errors(row: Sequence[str]) -> Iterator[str]:
    text = json.dumps(list(row), ensure_ascii=False)
    if not 2 <= len(row) <= 3:
        yield f"{text}: expected field, operator and optional value, not {len(row)} parts"
        return
    if not row[0]:
        yield f"{text}: the field is empty; write {HOSTNAME}, @region, @zone or the name of an attribute"
    elif row[0].startswith("@") and row[0] not in ("@hostname", "@region", "@zone"):
        yield f"{text}: unknown field {row[0]}; use @hostname, @region or @zone"
    if row[1].upper() not in Operator.__members__:
        yield f"{text}: unknown operator {row[1]}; use one of {_OPERATORS}"
        return
    problem = _VALUE_PROBLEMS[Operator(row[1].upper())](row[2] if len(row) == 3 else "")
    if problem:
        yield f"{text}: {row[1].upper()} {problem}"


def _constraint(row: Sequence[str]) -> Constraint:
    operator = Operator(row[1].upper())
    ignored = operator is Operator.UNIQUE or len(row) == 2
    field = HOSTNAME if row[0] == "@hostname" else row[0]
    return Constraint(field, operator, "" if ignored else row[2])


def _needs_value(value: str) -> str:
    return "" if value else "needs a value"


def _needs_number(value: str) -> str:
    return "" if re.fullmatch(r"[0-9]{1,9}", value) and int(value) else f"needs a positive whole number, not {value!r}"


def _needs_pattern(value: str) -> str:
    try:
        re.compile(value)
    except re.error as error:
        return f"needs a valid regular expression, not {value!r}: {error}"
    return _needs_value(value)


_VALUE_PROBLEMS: Mapping[Operator, Callable[[str], str]] = {
    Operator.UNIQUE: lambda _: "",
    Operator.MAX_PER: _needs_number,
    Operator.CLUSTER: _needs_value,
    Operator.IS: _needs_value,
    Operator.IS_NOT: _needs_value,
    Operator.LIKE: _needs_pattern,
    Operator.UNLIKE: _needs_pattern,
    Operator.GROUP_BY: lambda value: _needs_number(value) if value else "",
}


def split_names(names: str) -> tuple[str, ...]:
    """Split comma-separated names and strip white space."""
    return tuple(name.strip() for name in names.split(",") if name.strip())
