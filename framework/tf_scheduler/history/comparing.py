"""Two runs side by side, and what it takes to repeat one. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from .model import Run


@dataclass(frozen=True, slots=True)
class Different:
    """One thing that two runs do not share; None where one lacks it."""

    name: str
    old: Any
    new: Any


def options_between(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Different]:
    """Options that differ, by their dotted path."""
    return _between(dict(_flat(old, "")), dict(_flat(new, "")))


def environment_between(old: Mapping[str, str], new: Mapping[str, str]) -> list[Different]:
    """Versions, digests and sizes that differ."""
    return _between(old, new)


def results_between(old: Run, new: Run) -> list[Different]:
    """How they went: all of it, differing or not."""
    before, after = results(old), results(new)
    return [Different(name, before[name], after[name]) for name in before]


def results(run: Run) -> dict[str, Any]:
    """The numbers that a run is known by."""
    last = run.last
    return {
        "state": run.state,
        "seconds": run.seconds,
        "seconds to the first step": None if run.first_step is None else round(run.first_step, 2),
        "last step": last.step,
        "last loss": last.loss,
        "last speed": last.speed,
        "last speed is in": f"{last.unit} a second" if last.unit else None,
        "restarts": run.restarts,
        "generations": len({launch.generation for launch in run.launches}),
    }


def _between(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Different]:
    names = [*old, *(name for name in new if name not in old)]
    return [
        Different(name, old.get(name), new.get(name))
        for name in names
        if (name in old, old.get(name)) != (name in new, new.get(name))
    ]


def _flat(node: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(node, Mapping) and node:
        for name, value in node.items():
            yield from _flat(value, f"{path}.{name}" if path else str(name))
    elif path:
        yield path, node


def hidden(run: Run, mask: str) -> list[str]:
    """Options whose values were not kept, since they are secret."""
    return [path for path, value in _flat(run.options, "") if isinstance(value, str) and mask in value]
