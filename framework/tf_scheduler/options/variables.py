"""The variables that options give to tasks: an object of names and values, or a list of both, as Cosmos takes it.

Alone: what renders a package needs no schema, which is slow to load.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: The option for them, in every section that has one.
OPTION = "environment"


def as_lists(document: Mapping[str, Any]) -> dict[str, Any]:
    """A valid document as Cosmos takes it: environments that are objects become lists."""
    return {name: _as_list(part) if isinstance(part, Mapping) else part for name, part in document.items()}


def _as_list(section: Mapping[str, Any]) -> dict[str, Any]:
    given = section.get(OPTION)
    if not isinstance(given, Mapping):
        return dict(section)
    return {**section, OPTION: [{"name": key, "value": text} for key, text in given.items()]}
