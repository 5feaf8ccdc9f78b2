"""The report as Markdown: one row for each kind of fault, and what is meant by each column."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from .faults import CATALOGUE, Store
from .measures import Cost, Goal, goals, ratio


@dataclass(frozen=True, slots=True)
class Training:
    """One training with its faults. `findings`: what did not hold; `accuracy`: what the chief has printed."""

    store: Store
    verdict: str
    accuracy: float | None
    seconds: float
    epochs: int
    costs: tuple[Cost, ...]
    #: Job -> seconds from the start of its program, by hand beside the training, to its server's answer.
    bare: Mapping[str, float] = field(default_factory=dict)
    findings: tuple[str, ...] = ()

    @property
    def held(self) -> bool:
        return self.verdict == "succeeded" and not self.findings


@dataclass(frozen=True, slots=True)
class Circumstances:
    """Of a whole run: what tells how much its numbers mean. `load`: processes that wanted a processor, over it all."""

    command: str
    day: str
    processors: int
    load: float


_HEADS = (
    *("fault", "strikes", "noticed", "decided", "answers again", "stood still", "all as before"),
    *("steps lost", "hit", "others"),
)
#: Of a finding in a table.
_LONGEST = 200

HEAD = """\
# Reliability

What is done to a real training on a real Mesos, and what comes of it. This page is made by a command, which repeats it:

    {command}

It trains [examples/digits](../examples/digits) (a chief, a parameter server, two workers) on a local cluster of three
agents, with the scheduler as a process of its own that Marathon keeps running. The faults strike one by one, each when
the one before is healed; *killed* is SIGKILL, *frozen* SIGSTOP. The same `--seed` makes the same plan. With `--minutes`
it goes on until then, with `--faults` only some of them strike. Exit code 0: every training succeeded, and everything
below held.
"""

COLUMNS = """\
Seconds; of several strikes the median, and in parentheses the longest.

- *noticed*: from the fault until executor, agent or master said that the task was lost (out of reach, for a frozen
  agent).
- *decided*: from then, the way to the scheduler included, until it had stored what starts again. `-`: nothing to
  decide.
- *answers again*: from the fault until the TensorFlow servers of all tasks that were hit answered again, each in a new
  process that has imported TensorFlow.
- *stood still*: how much longer than usual no epoch was finished.
- *all as before*: from the fault until every task ran and answered, everything was registered with the master, every
  update was acknowledged, and an epoch was finished after that.
- *steps lost*: steps of training that were done again, at most: those of finished epochs, and of the epoch that was
  under way, which a new chief begins anew. *none*: training went on where it was.
- *hit*: tasks whose programs the fault ended. *others*: tasks that started again besides.
"""

HELD = """\
Looked at all the time, after each fault, and after the end:

- the training ended in success, with the accuracy that its chief demands (0.95);
- no task was launched while its last launch was neither ended nor given up, and no two programs of one task ran at
  once, but for one on an agent that was out of reach;
- every ended task was acknowledged: no agent kept an update to send again;
- in the end no task, framework, reservation or used resource was left in Mesos, no executor or program on the machine,
  no task's port open, and after the cluster's end no process and no folder of it.
"""


def page(circumstances: Circumstances, trainings: Sequence[Training]) -> str:
    """`trainings`: at least one."""
    parts = [
        HEAD.format(command=circumstances.command),
        "## What each fault cost\n",
        "\n".join(_table(trainings)) + "\n",
        COLUMNS,
        "## What is aimed at\n",
        "\n".join(_goals(_all_costs(trainings), _all_bare(trainings))) + "\n",
        " ".join(_bare(trainings)) + "\n",
        "## What held\n",
        HELD,
        "\n".join(_trainings(trainings)) + "\n",
        " ".join(_circumstances(circumstances)) + "\n",
    ]
    return "\n".join(parts)


def _table(trainings: Sequence[Training]) -> Iterator[str]:
    yield f"| {' | '.join(_HEADS)} |"
    yield f"| {' | '.join(['---'] * len(_HEADS))} |"
    for fault in CATALOGUE.values():
        costs = [cost for cost in _all_costs(trainings) if cost.fault == fault.name]
        if costs:
            yield _row(fault.what, costs)


def _row(what: str, costs: Sequence[Cost]) -> str:
    cells = [
        f"{what}{_victims(costs)}",
        str(len(costs)),
        _seconds((cost.noticed for cost in costs), 2),
        _seconds((cost.decided for cost in costs), 3),
        _seconds((cost.answers for cost in costs), 1),
        _seconds((cost.still for cost in costs), 1),
        _seconds((cost.whole for cost in costs), 1),
        _lost(costs),
        _names(cost.hit for cost in costs),
        _names(cost.others for cost in costs),
    ]
    return f"| {' | '.join(cells)} |"


def _victims(costs: Sequence[Cost]) -> str:
    """Only where the row does not say them."""
    found = sorted({cost.victim for cost in costs if cost.fault == "two-at-once"})
    return f": {'; '.join(found)}" if found else ""


def _seconds(values: Iterable[float | None], digits: int) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return "-"
    middle, most = f"{median(known):.{digits}f}", f"{max(known):.{digits}f}"
    return middle if middle == most else f"{middle} ({most})"


def _lost(costs: Sequence[Cost]) -> str:
    if all(cost.epochs_lost is None for cost in costs):
        return "none"
    known = [cost.steps_lost for cost in costs if cost.steps_lost is not None]
    return str(max(known)) if known else "not told"


def _names(found: Iterable[Sequence[str]]) -> str:
    return ", ".join(sorted({name for names in found for name in names})) or "-"


def _all_costs(trainings: Sequence[Training]) -> list[Cost]:
    return [cost for training in trainings for cost in training.costs]


def _all_bare(trainings: Sequence[Training]) -> list[float]:
    return [seconds for training in trainings for seconds in training.bare.values()]


def _goals(costs: Sequence[Cost], bare: Sequence[float]) -> Iterator[str]:
    yield "| goal | measured | |"
    yield "| --- | --- | --- |"
    for goal in goals(costs, bare):
        yield f"| {goal.what} | {goal.measured} | {_verdict(goal)} |"


def _verdict(goal: Goal) -> str:
    return "not measured" if goal.met is None else "met" if goal.met else "**missed**"


def _bare(trainings: Sequence[Training]) -> Iterator[str]:
    costs, bare = _all_costs(trainings), _all_bare(trainings)
    known = [cost.answers for cost in costs if cost.fault == "worker" and cost.answers is not None]
    times = ratio(costs, bare)
    if times is None:
        yield "Not measured: no worker was killed, or none was started by hand."
        return
    yield f"Started by hand beside the training, a worker's program takes {median(bare):.1f} s until it answers."
    yield f"From the kill of a worker to the answer of the next one it took {median(known):.1f} s:"
    yield f"{times:.2f} times as long."


def _trainings(trainings: Sequence[Training]) -> Iterator[str]:
    yield "| state in | result | accuracy | epochs | seconds | strikes | what did not hold |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for each in trainings:
        accuracy = "-" if each.accuracy is None else f"{each.accuracy:.4f}"
        numbers = f"{accuracy} | {each.epochs} | {each.seconds:.0f} | {len(each.costs)}"
        found = "; ".join(finding.replace("|", "/")[:_LONGEST] for finding in each.findings)
        yield f"| {each.store.value} | {each.verdict} | {numbers} | {found or 'nothing'} |"


def _circumstances(found: Circumstances) -> Iterator[str]:
    yield f"Measured on {found.day}, on {found.processors} processors, with {found.load:.1f} processes that wanted one"
    yield "on average: chief, parameter server and workers are four of them."
    if found.load > 2 * found.processors:
        yield "The machine was busy with other work, too: to import TensorFlow takes a multiple of its usual time then."
