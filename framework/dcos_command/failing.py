"""An error as a document, for programs that read JSON: in the shape of the scheduler's API."""

from __future__ import annotations

import json
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any, Iterator, Mapping, Sequence, TextIO

from . import AS_JSON
from .errors import CommandError, NothingToDo, RefusedError

_YES = ("1", "true", "yes")


def wants_json(arguments: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Whether it was said, of a command line that may be wrong otherwise."""
    return "--json" in arguments or environment.get(AS_JSON, "").lower() in _YES


@contextmanager
def told(as_json: bool, out: TextIO | None, *, one_line: bool = False) -> Iterator[None]:
    """What keeps a command from being done is a document, too, for whoever reads `out`. It is raised in any case."""
    try:
        yield
    except CommandError as error:
        if as_json and out is not None:
            out.write(json.dumps(document(error), indent=None if one_line else 2) + "\n")
            out.flush()
        raise


def document(error: CommandError) -> Mapping[str, Any]:
    """`status` is that of HTTP, where there was an answer. That there is nothing to do is no error, but a message."""
    if isinstance(error, NothingToDo):
        return {"message": str(error)}
    status = {"status": error.status} if isinstance(error, RefusedError) else {}
    return {"error": {**status, "code": _code(error), "message": str(error)}}


def _code(error: CommandError) -> str:
    if not isinstance(error, RefusedError):
        return error.word
    try:
        return error.word or HTTPStatus(error.status).name.lower()
    except ValueError:
        return "error"
