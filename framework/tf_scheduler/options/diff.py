"""What an update from one options document to another would do."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tf_scheduler.errors import Problem
from tf_scheduler.model.ids import TaskName
from tf_scheduler.model.state import SchedulerState

from . import launched
from .masking import masked_value
from .restarts import Restart, Update, restarts
from .spec import to_spec
from .tree import OPTIONS
from .update import refusals

Document = Mapping[str, Any]
#: In a sentence: options, tasks; characters of a value.
_SHOWN, _LONG = 12, 60


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


def difference(old: Document, new: Document, state: SchedulerState | None = None) -> Difference:
    """Of two resolved options documents. `state`: what was launched; None: everything, with the old options."""
    changed = tuple(changes(old, new))
    if refused := refusals(old, new):
        return Difference(changed, tuple(refused))
    update = Update.of(to_spec(old), to_spec(new))
    if state is None:
        return Difference(changed, (), tuple(restarts(update)), update.added, update.removed)
    again = launched.restarted(state, update)
    return Difference(changed, (), tuple(again), launched.added(state, update), launched.removed(state, update))


def changes(old: Document, new: Document) -> Iterator[Changed]:
    """Every option that has another value then."""
    for option in OPTIONS:
        before, after = option.value(old), option.value(new)
        if before != after:
            yield Changed(str(option), masked_value(option, before), masked_value(option, after))


def sentence(found: Difference) -> str:
    """`worker.count 2 -> 4; chief-0 restarts: the size of the cluster ... changed; worker-2, worker-3 are added`."""
    parts = [_some([f"{item.path} {_value(item.old)} -> {_value(item.new)}" for item in found.changed])]
    reasons: dict[str, list[str]] = {}
    for item in found.restarted:
        reasons.setdefault(item.reason, []).append(item.task)
    for reason, tasks in reasons.items():
        parts.append(f"{_some(tasks)} {'restarts' if len(tasks) == 1 else 'restart'}: {reason}")
    for word, names in (("added", found.added), ("removed", found.removed)):
        if names:
            parts.append(f"{_some(names)} {'is' if len(names) == 1 else 'are'} {word}")
    return "; ".join(filter(None, parts)) or "no option that is shown"


def _some(texts: Sequence[str]) -> str:
    more = f" and {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else ""
    return ", ".join(texts[:_SHOWN]) + more


def _value(value: Any) -> str:
    text = value if isinstance(value, str) and value else json.dumps(value, default=str)
    return text if len(text) <= _LONG else f"{text[: _LONG - 1]}…"
