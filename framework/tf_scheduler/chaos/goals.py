"""What healing aims at, and whether the costs of the faults meet it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from .measures import Cost

#: Faults that end a process beside a living executor or agent, which sees it at once.
LOCAL = frozenset({"worker", "ps", "chief", "executor"})
#: After these, addresses may be gone: who starts again at a new one takes others along (docs/recovery.md).
MOVING = frozenset({"agent-gone", "two-at-once"})
#: Seconds; and, of a worker that is back, times its bare start.
NOTICED, DECIDED, RATIO = 1.0, 0.1, 1.3


@dataclass(frozen=True, slots=True)
class Goal:
    """`met` None: there was nothing to measure."""

    what: str
    measured: str
    met: bool | None


def goals(costs: Sequence[Cost], bare: Sequence[float]) -> Iterator[Goal]:
    """The longest of all strikes counts. `bare`: seconds that a worker's program takes by itself until it answers."""
    local = [cost for cost in costs if cost.fault in LOCAL]
    yield _within(
        "the end of a program or an executor is noticed within {:g} s", [cost.noticed for cost in local], NOTICED
    )
    yield _within("what starts again is decided within {:g} s of that", [cost.decided for cost in local], DECIDED)
    yield _back(ratio(costs, bare))
    yield _alone([cost for cost in costs if cost.fault not in MOVING])


def ratio(costs: Sequence[Cost], bare: Sequence[float]) -> float | None:
    """How many times as long as its bare start a killed worker took until the next one answered."""
    again = [cost.answers for cost in costs if cost.fault == "worker" and cost.answers is not None]
    return median(again) / median(bare) if again and bare else None


def _within(what: str, values: Sequence[float | None], limit: float) -> Goal:
    known = [value for value in values if value is not None]
    measured = f"{max(known):.3f} s at most" if known else "-"
    return Goal(what.format(limit), measured, max(known) < limit if known else None)


def _back(found: float | None) -> Goal:
    what = f"a killed worker is back within {RATIO} times its bare start"
    return Goal(what, "-" if found is None else f"{found:.2f} times", None if found is None else found <= RATIO)


def _alone(costs: Sequence[Cost]) -> Goal:
    found: Mapping[str, tuple[str, ...]] = {cost.fault: cost.needless for cost in costs if cost.needless}
    told = "; ".join(f"{fault}: {', '.join(names)}" for fault, names in found.items())
    return Goal(
        "nobody starts again who need not", told or ("nobody did" if costs else "-"), not found if costs else None
    )
