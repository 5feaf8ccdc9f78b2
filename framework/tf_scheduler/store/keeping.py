"""How what decisions change gets into the store."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tf_scheduler.model.effects import Decision
from tf_scheduler.model.events import Event

from .interface import StateStore, Write

#: Stores what these decisions change, all or nothing, with what else belongs to them; raises as `apply` does.
Keep = Callable[[StateStore, Sequence[Write], Sequence[tuple[Event, Decision]]], None]


def alone(store: StateStore, changed: Sequence[Write], _decided: Sequence[tuple[Event, Decision]]) -> None:
    """Nothing else does."""
    if changed:
        store.apply(changed)
