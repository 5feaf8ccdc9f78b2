"""Parse texts of options: Marathon constraints in three forms, lists of names.

    [["rack", "MAX_PER", "2"], ["hostname", "UNIQUE"]]     a JSON list of rows
    ["rack", "MAX_PER", "2"]                               one row
    rack:MAX_PER:2,hostname:UNIQUE                         text; a backslash escapes `:` and `,`

All rows must hold (dcos-commons, MarathonConstraintParser).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tf_scheduler.model.placement import HOSTNAME, Constraint, Operator

#: An options document, or a section of one.
Document = Mapping[str, Any]

_FORMS = '[["field", "OPERATOR", "value"], ...], ["field", "OPERATOR", "value"] or field:OPERATOR:value,...'
_OPERATORS = ", ".join(item.value for item in Operator)


#: Constructs whose time may grow faster than the length of a line: repeated groups, look-around, back-references.
_SLOW = re.compile(r"(?<!\\)\)[*+{]|\(\?(?:[=!(]|<[=!]|P=)|\\[1-9]")


def parse_line_pattern(text: str) -> None:
    """Check a regular expression for lines of output. Raises ValueError."""
    try:
        groups = re.compile(text).groupindex
    except re.error as error:
        raise ValueError(f"must be a regular expression: {error}") from error
    if text and not groups:
        raise ValueError("must have a named group, for example `(?P<step>[0-9]+)`")
    if match := _SLOW.search(text):
        raise ValueError(f"must not contain `{match[0]}`: repeated groups, look-around and back-references are slow")


class ConstraintError(ValueError):
    """Invalid constraints; `args` has one message per error."""


def parse_constraints(text: str) -> tuple[Constraint, ...]:
    """Parse all constraints; empty text has none. Raises ConstraintError."""
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


def _anything(_: str) -> str:
    return ""


def _needs_value(value: str) -> str:
    return "" if value else "needs a value"


def _needs_number(value: str) -> str:
    return "" if re.fullmatch(r"[0-9]{1,9}", value) and int(value) else f"needs a positive whole number, not {value!r}"


def _number_if_any(value: str) -> str:
    return _needs_number(value) if value else ""


def _needs_pattern(value: str) -> str:
    try:
        re.compile(value)
    except re.error as error:
        return f"needs a valid regular expression, not {value!r}: {error}"
    return _needs_value(value)


_VALUE_PROBLEMS: Mapping[Operator, Callable[[str], str]] = {
    Operator.UNIQUE: _anything,
    Operator.MAX_PER: _needs_number,
    Operator.CLUSTER: _needs_value,
    Operator.IS: _needs_value,
    Operator.IS_NOT: _needs_value,
    Operator.LIKE: _needs_pattern,
    Operator.UNLIKE: _needs_pattern,
    Operator.GROUP_BY: _number_if_any,
}


def split_names(names: str) -> tuple[str, ...]:
    """Split comma-separated names and strip white space."""
    return tuple(name.strip() for name in names.split(",") if name.strip())
