"""An even spread over the values of an attribute."""

from __future__ import annotations

from collections.abc import Sequence


def most_values(capacities: Sequence[int], tasks: int) -> int:
    """The most values over which `tasks` can be spread evenly; `capacities` descend. All, if there is no way."""
    for values in range(min(len(capacities), tasks), 0, -1):
        share, more = divmod(tasks, values)
        if capacities[values - 1] >= share and (not more or capacities[more - 1] > share):
            return values
    return len(capacities)
