"""Configurations: the options that a service was started with, one after the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Configuration:
    """Options that were, or are, the target of a service."""

    #: A UUID that follows from what it says.
    id: str
    #: Greater than that of any before; of all that are stored, the greatest is the target's.
    number: int
    #: Seconds since the epoch.
    at: float
    #: Digest of what tasks are launched with (core.plans.target).
    target: str
    #: What differs from the defaults, as `dcos package install --options` takes it; secrets are masked.
    options: Mapping[str, Any]
    #: What was other in the target before it: `option`, `old`, `new`, defaults with their values. None: not known.
    changed: Sequence[Mapping[str, Any]] | None = None


def newest_first(configurations: Mapping[str, Configuration]) -> list[Configuration]:
    """The target, the one before, and so on."""
    return sorted(configurations.values(), key=lambda item: -item.number)
