"""Tables of docs/reference/api.md: fields of answers, and parameters of requests.

A field is described by the comment before it in the code, a parameter by its row.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from types import ModuleType

from tf_executor.contract import bodies, reports
from tf_scheduler.api.http.endpoint import NO_MAXIMUM, QueryParameter
from tf_scheduler.api.routes.operations import service_routes

#: Table -> prefix of the fields and the classes that have them, in the order of their names.
FIELDS: Mapping[str, Mapping[str, Sequence[str]]] = {
    "fields-task": {"": ("_TasksBody", "TasksBody"), "tasks.": ("_TaskBody", "TaskBody")},
    "fields-progress": {
        "": ("_TrainingBody", "TrainingBody"),
        "jobs.JOB.": ("JobProgressBody",),
        "tasks.": ("Progress",),
        "members.": ("MembersBody",),
    },
    "fields-result": {"": ("ResultBody",)},
    "fields-pending": {"": ("PendingBody",)},
    "fields-events": {"": ("EventsBody",), "events.": ("EventBody",)},
    "fields-job": {"": ("QueuedJobBody",)},
    "fields-queue": {"": ("QueueBody",), "queues.": ("OwnerUsageBody", "QueueUsageBody")},
}
#: Table -> path of the endpoint that has the parameters.
PARAMETERS = {
    "parameters-logs": "/v1/tasks/{name}/logs",
    "parameters-progress": "/v1/tf/progress",
    "parameters-events": "/v1/events",
}
#: Members of `Progress` that no answer has.
_INTERNAL = ("sequence",)


def tables() -> Mapping[str, str]:
    """Return the tables by name."""
    endpoints = {endpoint.path: endpoint for endpoint in service_routes()}
    return {
        **{name: _table(("field", "value"), _fields(parts)) for name, parts in FIELDS.items()},
        **{
            name: _table(("parameter", "value"), map(_parameter, endpoints[path].query))
            for name, path in PARAMETERS.items()
        },
    }


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ("---", "---"), *rows))


def _fields(parts: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, str]]:
    notes = {**field_notes(bodies), **field_notes(reports)}
    for prefix, classes in parts.items():
        for name, note in ((name, note) for item in classes for name, note in notes[item].items()):
            if name not in _INTERNAL:
                yield f"`{prefix}{name}`", note.replace("None", "null")


def _parameter(item: QueryParameter) -> tuple[str, str]:
    default = "" if item.default in (None, "") or item.default is False else f" Default: {item.default}."
    maximum = "" if item.maximum == NO_MAXIMUM else f" At most {item.maximum}."
    return f"`{item.name}`", f"{item.description}{default}{maximum if item.kind is int else ''}"


@lru_cache
def field_notes(module: ModuleType) -> Mapping[str, Mapping[str, str]]:
    """Return the comment before each field of each class of a module."""
    source = inspect.getsource(module)
    lines = source.splitlines()
    classes = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ClassDef))
    return {item.name: dict(_commented(item, lines)) for item in classes}


def _commented(item: ast.ClassDef, lines: Sequence[str]) -> Iterator[tuple[str, str]]:
    for node in item.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            note: list[str] = []
            while (line := lines[node.lineno - 2 - len(note)].strip()).startswith("#: "):
                note.insert(0, line[len("#: ") :])
            if note:
                yield node.target.id, " ".join(note)
