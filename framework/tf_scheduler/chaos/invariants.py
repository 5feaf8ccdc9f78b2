"""What must hold whatever happened. Each finding is a sentence; none means that all held."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import pairwise

from .evidence import Heard, Launched, Record


def launched_twice(record: Record) -> Iterator[str]:
    """A launch of a task while the one before was neither ended nor given up."""
    for task in sorted(record.tasks):
        for before, after in pairwise(record.of(task)):
            if not _over(before, after.time, record):
                yield f"{task} was launched again ({after.id}) while {before.id} still ran"


def _over(launch: Launched, time: float, record: Record) -> bool:
    heard = [status for status in record.heard if status.id == launch.id and status.time <= time]
    return any(map(_is_over, heard))


def _is_over(status: Heard) -> bool:
    return status.ended or status.state == "unreachable"


def running_twice(programs: Mapping[str, Collection[str]], lost: Collection[str]) -> Iterator[str]:
    """Task -> the launches whose programs were seen at one moment; `lost`: launches that were out of reach then."""
    for task, launches in sorted(programs.items()):
        live = sorted(set(launches) - set(lost))
        if len(live) > 1:
            yield f"programs of {task} ran twice at the same time: {', '.join(live)}"


def left_behind(**found: Iterable[str]) -> Iterator[str]:
    """By what it is, such as `processes`."""
    for kind, things in found.items():
        shown = sorted(things)
        if shown:
            yield f"{kind.replace('_', ' ')} left: {', '.join(shown)}"
