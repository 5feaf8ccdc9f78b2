"""`plan list`, `plan status`."""

from __future__ import annotations

import json
from typing import Any, Iterator, Mapping, Sequence
from urllib.parse import quote

from .service import PLAN_CODES, Service

Tree = Mapping[str, Any]


def names(service: Service) -> str:
    """The plans, as JSON: so the DC/OS SDK's commands print them."""
    return json.dumps(service.get("plans"), indent=2)


def status(service: Service, plan: str, as_json: bool) -> str:
    """One plan as a tree, or as the API gives it."""
    found = service.get(f"plans/{quote(plan, safe='')}", PLAN_CODES)
    return json.dumps(found, indent=2) if as_json else "\n".join(tree(plan, found))


def tree(name: str, plan: Tree) -> Iterator[str]:
    """The lines of a plan: its phases, their steps, with statuses; then its errors."""
    yield _line(name, plan)
    for last, phase in _marked(plan["phases"]):
        yield ("└─ " if last else "├─ ") + _line(phase["name"], phase)
        for final, step in _marked(phase["steps"]):
            yield ("   " if last else "│  ") + ("└─ " if final else "├─ ") + f"{step['name']} ({step['status']})"
    if plan.get("errors"):
        yield ""
        yield "Errors:"
        yield from (f"- {error}" for error in plan["errors"])


def _line(name: str, part: Tree) -> str:
    return f"{name} ({part['strategy']} strategy) ({part['status']})"


def _marked(items: Sequence[Tree]) -> Iterator[Any]:
    """Each item with whether it is the last."""
    return ((index == len(items) - 1, item) for index, item in enumerate(items))
