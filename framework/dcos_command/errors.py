"""Errors of the command, whose text is the whole message.

CommandError          exit code 1
+-- UsageError          exit code 2
+-- UnreachableError    exit code 3
    +-- NotStartedError     exit code 1
+-- NothingToDoError    exit code 0
+-- RefusedError        the answer has an HTTP status that is an error: exit code 1
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any, Iterator, Mapping, Sequence, TextIO

from . import JSON_VARIABLE


class CommandError(Exception):
    """Base class. `kind` is stable, for programs; the text is for people."""

    kind: str = "failed"
    exit_code: int = 1
    http_status: int = 500


class UsageError(CommandError):
    """Wrong use: options contradict each other, or a command is not confirmed."""

    kind = "wrong_usage"
    exit_code = 2
    http_status = 400


class UnreachableError(CommandError):
    """No server answers, or no service is known."""

    kind = "unreachable"
    exit_code = 3
    http_status = 503


class NotStartedError(UnreachableError):
    """A job of a queue service waits, so it has no scheduler; the text is the reason."""

    kind = "not_started"
    exit_code = 1
    http_status = 409


class NothingToDoError(CommandError):
    """Nothing has to change."""

    kind = "nothing_to_do"
    exit_code = 0
    http_status = 200


class RefusedError(CommandError):
    """The scheduler or the cluster refused the request.

    Text and `kind` come from the answer; `kind` may be empty. `lists_names`: the text lists the valid names.
    """

    def __init__(self, message: str, http_status: int, kind: str = "", *, lists_names: bool = False) -> None:
        super().__init__(message)
        self.http_status, self.kind, self.lists_names = http_status, kind, lists_names


def wants_json(arguments: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Whether the environment, or the command line (even if invalid), requests JSON."""
    return "--json" in arguments or environment.get(JSON_VARIABLE, "").lower() in ("1", "true", "yes")


@contextmanager
def report_as_json(as_json: bool, out: TextIO | None, *, one_line: bool = False) -> Iterator[None]:
    """Print a CommandError of the block as JSON to `out` if `as_json`; raise it again."""
    try:
        yield
    except CommandError as error:
        if as_json and out is not None:
            out.write(json.dumps(error_document(error), indent=None if one_line else 2) + "\n")
            out.flush()
        raise


def error_document(error: CommandError) -> Mapping[str, Any]:
    """Return the JSON document of an error; `status` only after an HTTP answer."""
    if isinstance(error, NothingToDoError):
        return {"message": str(error)}
    if not isinstance(error, RefusedError):
        return {"error": {"code": error.kind, "message": str(error)}}
    try:
        code = error.kind or HTTPStatus(error.http_status).name.lower()
    except ValueError:
        code = "error"
    return {"error": {"status": error.http_status, "code": code, "message": str(error)}}
