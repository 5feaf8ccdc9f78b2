"""Amounts, durations, names and command lines as other systems write them."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Sequence

#: Suffixes of Kubernetes' quantities (Kubernetes API reference, Quantity).
_SUFFIXES = {
    "": 1.0,
    "m": 1e-3,
    "k": 1e3,
    "M": 1e6,
    "G": 1e9,
    "T": 1e12,
    "P": 1e15,
    "Ki": 2.0**10,
    "Mi": 2.0**20,
    "Gi": 2.0**30,
    "Ti": 2.0**40,
    "Pi": 2.0**50,
}
_MEBI = 2.0**20
#: `$(NAME)`, which Kubernetes replaces before the container starts; `$$(NAME)` stays `$(NAME)`.
_REFERENCE = re.compile(r"(\$?)\$\(([A-Za-z_][A-Za-z0-9_]*)\)")


def quantity(value: object) -> float:
    """`500m` -> 0.5, `4Gi` -> 4294967296.0. Raise ValueError."""
    found = re.fullmatch(r"([0-9.]+(?:[eE][+-]?[0-9]+)?)([A-Za-z]{0,2})", str(value).strip())
    if found is None or found[2] not in _SUFFIXES:
        raise ValueError("it is a quantity, such as 2, 500m or 4Gi")
    return number(number(found[1]) * _SUFFIXES[found[2]])


def whole(value: object) -> int:
    """`3`, `"3"`, `3.0` -> 3. Raise ValueError."""
    found = _float(value)
    if not found.is_integer():
        raise ValueError("it is a whole number")
    return int(found)


def number(value: object) -> float:
    """`2`, `"2.5"` -> 2.0, 2.5. Raise ValueError."""
    found = _float(value)
    if not math.isfinite(found):
        raise ValueError("it is a number")
    return found


def _float(value: object) -> float:
    """nan for what is no number."""
    try:
        return float("nan" if isinstance(value, bool) else str(value))
    except ValueError:
        return math.nan


def megabytes(value: object) -> int:
    """A quantity of bytes as whole MB of Mesos (which are 2^20 bytes), rounded up."""
    return math.ceil(quantity(value) / _MEBI)


def cores(value: object) -> float:
    """A quantity of processors, at least what Mesos counts."""
    return max(0.01, round(quantity(value), 3))


def hadoop_megabytes(value: object) -> int:
    """`2g`, `2048m`, `2048` (MB) -> 2048, as TonY reads memory. Raise ValueError."""
    found = re.fullmatch(r"([0-9]+)\s*([kmgt]?)b?", str(value).strip().lower())
    if found is None:
        raise ValueError("it is an amount of memory, such as 2g or 2048m")
    factors = {"k": 2.0**-10, "": 1.0, "m": 1.0, "g": 2.0**10, "t": 2.0**20}
    return max(1, math.ceil(number(number(found[1]) * factors[found[2]])))


def seconds_of_milliseconds(value: object) -> float:
    """`90000` -> 90.0."""
    return number(value) / 1000


def service_name(value: object) -> str:
    """A name that Marathon takes: lower case, dashes for what it does not have."""
    return re.sub(r"[^a-z0-9]+", "-", str(value).lower()).strip("-")[:63].strip("-") or "tensorflow"


def command_line(words: Sequence[object]) -> str:
    """Words that are handed over as they are -> a line for the shell; `$(NAME)` becomes a variable of it."""
    return " ".join(_word(str(word)) for word in words)


def _word(text: str) -> str:
    done, parts = 0, []
    for found in _REFERENCE.finditer(text):
        before = text[done : found.start()]
        parts.append(_quoted(before) if before else "")
        parts.append(shlex.quote(f"$({found[2]})") if found[1] else f'"${{{found[2]}}}"')
        done = found.end()
    rest = text[done:]
    return "".join(parts) + (_quoted(rest) if rest or not parts else "")


def _quoted(text: str) -> str:
    """For the shell; `{task_index}` gets two quotes inside, or it would be replaced (docs/tasks.md)."""
    return re.sub(r"\{(?=[a-z_]+\})", "{''", shlex.quote(text))


def refers(text: str) -> bool:
    """Whether it has a `$(NAME)` that Kubernetes would have replaced."""
    return any(not found[1] for found in _REFERENCE.finditer(text))


def truth(value: object) -> bool:
    """`true`, in whatever case; all else is false."""
    return str(value).strip().lower() == "true"
