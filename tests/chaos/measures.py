"""The cost of each fault, the goals, and the invariants."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from .evidence import Heard, Launched, Record, Said


@dataclass(frozen=True, slots=True)
class Struck:
    """An injected fault. Times are Unix times.

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
    """Durations in seconds, or None if not measured; `page` explains each."""

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
    """The cost of one fault."""
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
    """The first report of each loss: of hit tasks, or else of unreachable ones."""
    names = {launch.id: launch.task for launch in record.launched}
    found: dict[str, Heard] = {}
    for heard in record.heard:
        lost = heard.state == "unreachable" or (heard.ended and names.get(heard.id) in struck.hit)
        if lost and struck.began <= heard.time <= struck.whole:
            found.setdefault(heard.id, heard)
    return list(found.values())


def _decided(losses: Sequence[Heard], record: Record) -> float | None:
    """The longest decision time."""
    when = {decision.id: decision.time for decision in record.decided}
    return max((when[loss.id] - loss.said for loss in losses if loss.id in when), default=None)


def _answers(struck: Struck, record: Record, again: Sequence[Launched]) -> float | None:
    times = [record.answered(launch) for launch in again if launch.task in struck.hit]
    return max((time for time in times if time is not None), default=struck.began) - struck.began if times else None


def _still(struck: Struck, said: Sequence[Said]) -> float:
    """Excess of the longest gap between epochs around the fault over the usual gap."""
    ends = [line.time for line in said if line.epoch is not None]
    gaps = [(begin, end) for begin, end in pairwise(ends)]
    usual = median([end - begin for begin, end in gaps]) if gaps else 0.0
    touched = [end - begin for begin, end in gaps if end > struck.began and begin < struck.whole]
    return max(0.0, max(touched, default=0.0) - usual)


def _epochs_lost(struck: Struck, said: Sequence[Said]) -> int | None:
    """Epochs that a chief restarted by the fault had to repeat."""
    lost: int | None = None
    reached = 0
    for line in said:
        reached = max(reached, line.epoch or 0)
        first = line.epoch == 1 and reached > 1
        if struck.began < line.time <= struck.whole and (line.resumed is not None or first):
            lost = (lost or 0) + max(0, reached - (line.resumed or 0))
            reached = line.resumed or 0
    return lost


#: Faults that end a process beside a living executor or agent, which sees it at once.
LOCAL = frozenset({"worker", "ps", "chief", "executor", "executor-killed"})
#: After these, addresses may be gone: who starts again at a new one takes others along (docs/explanation/recovery.md).
MOVING = frozenset(
    {"agent-gone", "agent-away", "agent-emptied", "agent-back", "agent-disk-full", "two-at-once"}
    | {"agent-disk-full-running", "port-taken", "maintenance-soon"}
)
#: Seconds; and, of a worker that is back, times its bare start.
NOTICED, DECIDED, RATIO = 1.0, 0.1, 1.3


@dataclass(frozen=True, slots=True)
class Goal:
    """A goal of healing; `met` None: not measured."""

    what: str
    measured: str
    met: bool | None


def goals(costs: Sequence[Cost], bare: Sequence[float]) -> Iterator[Goal]:
    """Evaluate the goals by the longest strikes. `bare`: a worker's start-up time."""
    local = [cost for cost in costs if cost.fault in LOCAL]
    yield _within(
        "the end of a program or an executor is noticed within {:g} s", [cost.noticed for cost in local], NOTICED
    )
    yield _within(
        "within {:g} s of the report, the scheduler decides which tasks restart",
        [cost.decided for cost in local],
        DECIDED,
    )
    yield _back(ratio(costs, bare))
    yield _alone([cost for cost in costs if cost.fault not in MOVING])


def ratio(costs: Sequence[Cost], bare: Sequence[float]) -> float | None:
    """Recovery time of a killed worker in multiples of its bare start."""
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
    restarts = "; ".join(f"{fault}: {', '.join(names)}" for fault, names in found.items())
    return Goal("no task restarts unnecessarily", restarts or ("none" if costs else "-"), not found if costs else None)


#: Connections between programs may fail, which a program notices when it uses one, also after the fault.
LATE = frozenset({"peers-cut", "peers-cut-to", "peers-cut-from", "peers-cut-long", "peers-cut-timeout", "packet-loss"})


def needless_launches(costs: Iterable[Cost]) -> Iterator[str]:
    """Tasks that were launched again by a fault that ended none."""
    for cost in costs:
        if cost.others and not cost.hit and cost.fault not in LATE:
            yield f"{cost.fault}: {', '.join(cost.others)} launched again although nothing had ended"


def launched_twice(record: Record) -> Iterator[str]:
    """Launches of a task while the previous one was neither ended nor given up."""
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
    """Tasks with several programs at one moment; `lost`: unreachable launches then."""
    for task, launches in sorted(programs.items()):
        live = sorted(set(launches) - set(lost))
        if len(live) > 1:
            yield f"programs of {task} ran twice at the same time: {', '.join(live)}"


def left_behind(**found: Iterable[str]) -> Iterator[str]:
    """Describe the leftovers by kind, such as `processes`."""
    for kind, things in found.items():
        shown = sorted(things)
        if shown:
            yield f"{kind.replace('_', ' ')} left: {', '.join(shown)}"
