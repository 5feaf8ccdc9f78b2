"""Whose turn it is among the phases of a plan, or the steps of a phase."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from tf_scheduler.model.plan import Dependencies, PlanStrategy

#: So many children of a canary wait for an operator each (dcos-commons, CanaryStrategy).
CANARIES = 2


@dataclass(frozen=True, slots=True)
class Children:
    """The children of one plan or phase, by name."""

    strategy: PlanStrategy
    #: All, in their order.
    names: Sequence[str]
    #: Those with work left.
    open: AbstractSet[str]
    #: Whether one is complete. Asked as late as possible: it may cost.
    complete: Callable[[str], bool]
    after: Dependencies = field(default_factory=dict)
    #: Canaries that an operator let go.
    released: AbstractSet[str] = frozenset()
    #: An operator let all go.
    all_released: bool = False


def in_turn(children: Children) -> tuple[str, ...]:
    """Those with work left that may be worked on now, in their order."""
    if not children.open:
        return ()
    if children.strategy.canary and not children.all_released:
        return tuple(name for name in children.names if name in children.open and name in children.released)
    if children.strategy is PlanStrategy.DEPENDENCY:
        return tuple(name for name in children.names if name in children.open and _ready(children, name))
    if children.strategy in (PlanStrategy.PARALLEL, PlanStrategy.PARALLEL_CANARY):
        return tuple(name for name in children.names if name in children.open)
    return _first(children)


def held(children: Children) -> tuple[str, ...]:
    """Canaries that wait for an operator, in their order; the rest follows them by itself."""
    if not children.strategy.canary or children.all_released:
        return ()
    count = CANARIES - len(children.released)
    waiting = (name for name in children.names if name not in children.released and not children.complete(name))
    return tuple(name for name, _ in zip(waiting, range(max(count, 0)), strict=False))


def _ready(children: Children, name: str) -> bool:
    return all(children.complete(other) for other in children.after.get(name, ()))


def _first(children: Children) -> tuple[str, ...]:
    """Serial: the first with work left, if all before it are complete. Looked at from its side: the one that it
    waits for is the one right before it."""
    position = next(place for place, name in enumerate(children.names) if name in children.open)
    before = children.names[:position]
    return (children.names[position],) if all(map(children.complete, reversed(before))) else ()
