"""Options of a service that is taken down: what is wrong with them must not hold that up, for nothing is launched."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from tf_scheduler.errors import OptionsError, Problem

from .loader import resolve

Document = Mapping[str, Any]

#: What says which service it is, and where Mesos and the store are: left out, another service could be taken down.
_SECTIONS = ("mesos", "tls", "scheduler")
_IDENTITY = ("name", "role", "principal", "service_account", "service_account_secret")
_NEEDED = (*_SECTIONS, *(f"service.{name}" for name in _IDENTITY))
#: Without one of them another may break a rule.
_ROUNDS = 3
#: A program is needed as well; it is not started.
_PROGRAM = {"command": "true"}


def salvaged(
    document: Document, defaults: Mapping[str, Mapping[str, Any]]
) -> tuple[dict[str, Any], tuple[Problem, ...]]:
    """Resolved options without those that are wrong, and what is wrong with these.

    Raise OptionsError when that is something needed.
    """
    left, told = deepcopy(dict(document)), dict[str, Problem]()
    provided = {**defaults, "service": {**_PROGRAM, **defaults.get("service", {})}}
    for _ in range(_ROUNDS):
        try:
            return resolve(left, provided if told else defaults), tuple(told.values())
        except OptionsError as error:
            for problem in error.problems:
                told.setdefault(problem.path, problem)
                _leave_out(left, problem)
    return resolve(_bare(left), provided), tuple(told.values())


def _leave_out(document: dict[str, Any], problem: Problem) -> None:
    """What it is about; of a list, and of who may use the API, all of it. Raise OptionsError for what is needed."""
    if any(f"{problem.path}.".startswith(f"{name}.") for name in _NEEDED):
        raise OptionsError([problem])
    section: Any = document
    *above, last = problem.path.split(".")
    if above == ["api"]:
        above, last = [], "api"
    for name in above:
        below = section.get(name)
        if not isinstance(below, dict):
            last = name
            break
        section = below
    section.pop(last, None)


def _bare(document: Document) -> dict[str, Any]:
    """What is needed, and who may use the API."""
    service = document.get("service", {})
    kept = {name: document[name] for name in (*_SECTIONS, "api", "secret_delivery") if name in document}
    return {**kept, "service": {name: service[name] for name in _IDENTITY if name in service}}
