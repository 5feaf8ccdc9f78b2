"""`placement_constraint`: Marathon's constraint language, in the three forms that the DC/OS SDK accepts.

    [["rack", "MAX_PER", "2"], ["hostname", "UNIQUE"]]     a JSON list of rows
    ["rack", "MAX_PER", "2"]                               one row
    rack:MAX_PER:2,hostname:UNIQUE                         text; a backslash keeps the next `:` or `,` in a value

Rows are ANDed; no rows, no rule (dcos-commons, MarathonConstraintParser).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tf_scheduler.model.placement import HOSTNAME, Constraint, Operator

_FORMS = '[["field", "OPERATOR", "value"], ...], ["field", "OPERATOR", "value"] or field:OPERATOR:value,...'
_OPERATORS = ", ".join(item.value for item in Operator)


class ConstraintError(ValueError):
    """Every row that is wrong, one sentence each."""

    def __init__(self, messages: Sequence[str]) -> None:
        super().__init__("; ".join(messages))
        self.messages = tuple(messages)


def parse_constraints(text: str) -> tuple[Constraint, ...]:
    """All constraints that `text` asks for. Raise ConstraintError."""
    if not text.strip():
        return ()
    rows = _rows(text)
    errors = [error for row in rows for error in _errors(row)]
    if errors:
        raise ConstraintError(errors)
    return tuple(_constraint(row) for row in rows)


def _rows(text: str) -> list[list[str]]:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        if text.lstrip().startswith("["):
            raise ConstraintError([f"is not JSON; write {_FORMS}"]) from None
        return [_split(row, ":") for row in _split(text, ",")]
    if isinstance(content, list) and all(isinstance(row, list) for row in content):
        return [_texts(row) for row in content]
    if isinstance(content, list):
        return [_texts(content)]
    raise ConstraintError([f"must be {_FORMS}"])


def _texts(row: Sequence[Any]) -> list[str]:
    """Numbers are welcome where JSON is written by hand: ["rack", "MAX_PER", 2]."""
    wrong = [item for item in row if isinstance(item, bool) or not isinstance(item, (str, int, float))]
    if wrong:
        raise ConstraintError([f"{json.dumps(row)}: {json.dumps(wrong[0])} is neither text nor a number"])
    return [str(item) for item in row]


def _split(text: str, mark: str) -> list[str]:
    """Parts between marks, without the space around them.

    A backslash keeps the mark after it; before anything else it stays, as regular expressions want it.
    """
    tokens = re.findall(r"\\.|[^\\]|\\\Z", text, re.DOTALL)
    parts = [""]
    for token in tokens:
        if token == mark:
            parts.append("")
        else:
            parts[-1] += mark if token == f"\\{mark}" else token
    return [part.strip() for part in parts]


def _errors(row: Sequence[str]) -> Iterator[str]:
    shown = json.dumps(list(row), ensure_ascii=False)
    if not 2 <= len(row) <= 3:
        yield f"{shown}: a row has a field, an operator and perhaps a value, not {len(row)} parts"
        return
    if not row[0]:
        yield f"{shown}: the field is empty; write {HOSTNAME}, @region, @zone or the name of an attribute"
    elif row[0].startswith("@") and row[0] not in ("@hostname", "@region", "@zone"):
        yield f"{shown}: there is no field {row[0]}; there are @hostname, @region, @zone"
    if row[1].upper() not in Operator.__members__:
        yield f"{shown}: there is no operator {row[1]}; there are {_OPERATORS}"
        return
    problem = _VALUE_PROBLEMS[Operator(row[1].upper())](row[2] if len(row) == 3 else "")
    if problem:
        yield f"{shown}: {row[1].upper()} {problem}"


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
    return "" if re.fullmatch(r"[0-9]{1,9}", value) and int(value) else f"needs a whole number from 1, not {value!r}"


def _number_if_any(value: str) -> str:
    return _needs_number(value) if value else ""


def _needs_pattern(value: str) -> str:
    try:
        re.compile(value)
    except re.error as error:
        return f"needs a regular expression; {value!r} is none: {error}"
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
