"""What one fault has cost, by the evidence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from .evidence import Heard, Launched, Record, Said


@dataclass(frozen=True, slots=True)
class Struck:
    """A fault that has struck. Times: seconds since the epoch.

    `began`, `whole`: when it struck, and when everything was as before, an epoch of training included. `hit`: the tasks
    that it ended. `unit`: they, and those that have to start again with them.
    """

    fault: str
    victim: str
    began: float
    whole: float
    hit: frozenset[str]
    unit: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds; None: there was nothing to measure. See `page` for what each means."""

    fault: str
    victim: str
    noticed: float | None
    decided: float | None
    answers: float | None
    still: float
    whole: float
    #: Finished epochs that had to be trained again; None: training went on from where it was.
    epochs_lost: int | None
    #: Steps of these, and of the epoch that was under way: at most so many.
    steps_lost: int | None
    hit: tuple[str, ...]
    others: tuple[str, ...]
    #: Of the others, those that need not have started again.
    needless: tuple[str, ...]


def cost(struck: Struck, record: Record, said: Sequence[Said]) -> Cost:
    """Of one fault."""
    losses = _losses(struck, record)
    again = [launch for launch in record.launched if struck.began <= launch.time <= struck.whole]
    others, epochs = {launch.task for launch in again} - struck.hit, _epochs_lost(struck, said)
    return Cost(
        fault=struck.fault,
        victim=struck.victim,
        noticed=max((loss.said for loss in losses), default=struck.began) - struck.began if losses else None,
        decided=_decided(losses, record),
        answers=_answers(struck, record, again),
        still=_still(struck, said),
        whole=struck.whole - struck.began,
        epochs_lost=epochs,
        steps_lost=None if epochs is None or record.epoch_steps is None else (epochs + 1) * record.epoch_steps,
        hit=tuple(sorted(struck.hit)),
        others=tuple(sorted(others)),
        needless=tuple(sorted(others - struck.unit)),
    )


def _losses(struck: Struck, record: Record) -> list[Heard]:
    """The first word of each loss: of the tasks that were hit, or else of any that went out of reach."""
    names = {launch.id: launch.task for launch in record.launched}
    found: dict[str, Heard] = {}
    for heard in record.heard:
        lost = heard.state == "unreachable" or (heard.ended and names.get(heard.id) in struck.hit)
        if lost and struck.began <= heard.time <= struck.whole:
            found.setdefault(heard.id, heard)
    return list(found.values())


def _decided(losses: Sequence[Heard], record: Record) -> float | None:
    """The longest of them."""
    when = {decision.id: decision.time for decision in record.decided}
    return max((when[loss.id] - loss.said for loss in losses if loss.id in when), default=None)


def _answers(struck: Struck, record: Record, again: Sequence[Launched]) -> float | None:
    times = [record.answered(launch) for launch in again if launch.task in struck.hit]
    return max((time for time in times if time is not None), default=struck.began) - struck.began if times else None


def _still(struck: Struck, said: Sequence[Said]) -> float:
    """How much longer than usual no epoch was finished: the longest silence that touches the time of the fault."""
    ends = [line.time for line in said if line.epoch is not None]
    gaps = [(begin, end) for begin, end in pairwise(ends)]
    usual = median([end - begin for begin, end in gaps]) if gaps else 0.0
    touched = [end - begin for begin, end in gaps if end > struck.began and begin < struck.whole]
    return max(0.0, max(touched, default=0.0) - usual)


def _epochs_lost(struck: Struck, said: Sequence[Said]) -> int | None:
    """Of a chief that was started again within the time of the fault."""
    lost: int | None = None
    reached = 0
    for line in said:
        reached = max(reached, line.epoch or 0)
        first = line.epoch == 1 and reached > 1
        if struck.began < line.time <= struck.whole and (line.resumed is not None or first):
            lost = (lost or 0) + max(0, reached - (line.resumed or 0))
            reached = line.resumed or 0
    return lost
