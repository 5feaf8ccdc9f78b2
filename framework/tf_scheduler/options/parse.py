"""Bytes -> a JSON object, strictly: with line and column of what is wrong, and no name given twice."""

from __future__ import annotations

import json
from typing import Any, NoReturn

from tf_scheduler.errors import OptionsError, Problem

#: Objects and lists inside each other.
_DEEPEST = 64


def parse(data: bytes, source: str) -> dict[str, Any]:
    """Raise OptionsError, naming `source`, unless `data` is one JSON object in UTF-8."""
    text = _text(data, source)
    repeated: list[str] = []
    try:
        document = json.loads(text, object_pairs_hook=lambda pairs: _object(pairs, repeated), parse_constant=_refuse)
    except json.JSONDecodeError as error:
        raise _error(f"{source} is not JSON: line {error.lineno} column {error.colno}: {error.msg}") from error
    except (ValueError, RecursionError) as error:
        raise _error(f"{source} is not JSON that we accept: {error}") from error
    if repeated:
        raise OptionsError([Problem(name, f"is given more than once in one object of {source}") for name in repeated])
    if not _fits(document, _DEEPEST):
        raise _error(f"{source} is nested more than {_DEEPEST} deep")
    if not isinstance(document, dict):
        raise _error(f'{source} must hold a JSON object, such as {{"service": {{...}}}}, not {text.strip()[:20]!r}')
    _check_characters(document, source)
    return document


def _fits(value: Any, depth: int) -> bool:
    """Whether no value lies deeper; how deep Python itself could go depends on its version."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return depth > 0 and all(_fits(one, depth - 1) for one in inner)


def _check_characters(document: dict[str, Any], source: str) -> None:
    """Half of a surrogate pair, which JSON can write, cannot be encoded, and Mesos would refuse what holds it."""
    try:
        json.dumps(document, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        half = error.object[error.start]
        raise _error(f"{source} holds {half!r}, which is half of a character: write the whole one") from error


def _text(data: bytes, source: str) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _error(f"{source} is not UTF-8 text: byte {error.start} does not fit") from error


def _object(pairs: list[tuple[str, Any]], repeated: list[str]) -> dict[str, Any]:
    seen: dict[str, Any] = {}
    for name, value in pairs:
        if name in seen:
            repeated.append(name)
        seen[name] = value
    return seen


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a JSON number")


def _error(message: str) -> OptionsError:
    return OptionsError([Problem("", message)])
