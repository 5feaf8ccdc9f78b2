"""What an update from one options document to another would do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tf_scheduler.errors import Problem
from tf_scheduler.model.ids import TaskName

from .masking import masked_value
from .restarts import Restart, Update, restarts
from .spec import to_spec
from .tree import OPTIONS
from .update import refusals

Document = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Changed:
    """One option with two values; secrets in them are hidden."""

    path: str
    old: Any
    new: Any


@dataclass(frozen=True, slots=True)
class Difference:
    """Everything that an update would do; what is refused does nothing."""

    changed: tuple[Changed, ...]
    refused: tuple[Problem, ...] = ()
    restarted: tuple[Restart, ...] = ()
    added: tuple[TaskName, ...] = ()
    removed: tuple[TaskName, ...] = ()


def difference(old: Document, new: Document) -> Difference:
    """Of two resolved options documents."""
    changed = tuple(_changed(old, new))
    if refused := refusals(old, new):
        return Difference(changed, tuple(refused))
    update = Update.of(to_spec(old), to_spec(new))
    return Difference(changed, (), tuple(restarts(update)), update.added, update.removed)


def _changed(old: Document, new: Document) -> Iterator[Changed]:
    for option in OPTIONS:
        before, after = option.value(old), option.value(new)
        if before != after:
            yield Changed(str(option), masked_value(option, before), masked_value(option, after))
