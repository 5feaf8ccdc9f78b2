"""The report as Markdown: one row per kind of fault, and what the columns mean."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from .faults import CATALOGUE, JOBS, Store
from .measures import Cost, Goal, goals, ratio


@dataclass(frozen=True, slots=True)
class Training:
    """A training. `findings`: broken invariants; `accuracy`: by the chief's output."""

    store: Store
    verdict: str
    accuracy: float | None
    seconds: float
    epochs: int
    costs: tuple[Cost, ...]
    #: Number of strikes, including one that failed.
    attempted: int = 0
    #: Job -> seconds from the start of its program, by hand beside the training, to its server's answer.
    bare: Mapping[str, float] = field(default_factory=dict)
    findings: tuple[str, ...] = ()

    @property
    def held(self) -> bool:
        return self.verdict == "succeeded" and not self.findings


@dataclass(frozen=True, slots=True)
class Ended:
    """A job of one fault. `launches`: most of one task; `seen`: reason, or measured."""

    fault: str
    what: str
    store: Store
    verdict: str
    launches: int
    seconds: float
    seen: str
    findings: tuple[str, ...] = ()

    @property
    def held(self) -> bool:
        return not self.findings


@dataclass(frozen=True, slots=True)
class Circumstances:
    """A whole run. `load`: mean number of processes that wanted a processor."""

    command: str
    day: str
    processors: int
    load: float
    #: Faults that this machine cannot inject, with the reason.
    skipped: Mapping[str, str] = field(default_factory=dict)


_HEADS = (
    *("fault", "strikes", "noticed", "decided", "answers again", "stood still", "all as before"),
    *("steps lost", "hit", "others"),
)
_NO_TIME = "not in this run"
#: Of a finding in a table.
_LONGEST = 200

HEAD = """\
# Reliability

This page shows the measured effects of faults during a real training on a real Mesos. This command repeats the
measurement and writes this page:

    {command}

`scripts/chaos` trains [examples/digits](../examples/digits) (a chief, a parameter server, two workers) on a local
cluster of three agents, with the scheduler as a separate process that Marathon restarts. The faults occur one by one,
each after recovery from the previous fault. A *killed* process gets SIGKILL, a *frozen* process SIGSTOP. In a lap, each
fault strikes a training with the scheduler's state in a file and one with the state in ZooKeeper, in an order that
depends on `--seed`. Without `--minutes` there is one lap per seed. With it, each seed takes this time and continues the
lap of the previous seed. `--faults` selects faults. Exit code 0 means that every training succeeded, and that all
invariants of this page held.
"""

COLUMNS = """\
All times are in seconds. If a fault occurred several times, the table shows the median and, in parentheses, the
maximum.

- *strikes*: number of strikes by the store of the scheduler's state.
- *noticed*: time from the fault until executor, agent or master reported the task as lost. A task on a frozen agent is
  reported as unreachable.
- *decided*: time from the report of the loss until the scheduler has stored its decision to restart. The time
  includes the delivery of the report. `-`: no decision.
- *answers again*: time from the fault until the TensorFlow servers of all affected tasks answered again. Each server
  runs in a new process that has imported TensorFlow.
- *stood still*: longest time without a finished epoch, minus the usual time of an epoch.
- *all as before*: time from the fault until every task ran and answered, scheduler and agents were registered with the
  master, every update was acknowledged, and another epoch was finished.
- *steps lost*: maximum number of repeated training steps. Repeated steps are steps of finished epochs, and steps of the
  running epoch, which a new chief restarts. *none*: the training continued without repeated steps.
- *hit*: tasks whose programs ended because of the fault. *others*: further restarted tasks.
"""

HELD = """\
These invariants are checked continuously, after each fault, and at the end:

- the training succeeded, with the accuracy that its chief requires (0.95);
- no task was launched before its previous launch had ended or was abandoned, and no two programs of one task ran at
  the same time, except on an unreachable agent, where the older one stops within 5 s and its grace period, because
  another launch uses its checkpoint folder ([recovery.md](../explanation/recovery.md#two-launches-of-one-task));
- every ended task was acknowledged: no agent had an update left to resend;
- finally no task, framework, reservation or used resource was left in Mesos, no executor or program on the machine,
  no process that left its task's session, no open port of a task, and after the cluster's end no process, mount or
  folder.
"""


ENDS = """\
These faults end a job, or need another job than a training. Each job consists of small tasks without TensorFlow, on a
cluster of its own. It must end as expected, with a reason that names the cause, within the expected number of launches
of each task (*launches*: the most of one task), without an avoided agent, and without a task at a new address (except
where many programs are killed, or an agent is frozen). No task was launched twice, and nothing was left behind.
"""


CONTAINERS = """\
## With containers

These faults strike the same training on a cluster with containers, whose agents have networks of their own
([containers.md](../how-to/containers.md#networks)); the scheduler's state is in a file. Chief, parameter server and
workers use the addresses of their agents, so that an agent that is cut off from the others separates tasks. Packets are
dropped by iptables in the network of one agent. This command repeats the measurement and writes this section:

    {command}
"""

CONTAINERS_HELD = """\
The invariants are those above. When the service had ended, no container and no mount was left in the cluster; after the
cluster's end, no control group, namespace or network interface.
"""


def write(path: Path, circumstances: Circumstances, trainings: Sequence[Training], ended: Sequence[Ended] = ()) -> None:
    """Write the report; parts of an earlier one that were not measured again stay."""
    new = page(circumstances, trainings, ended)
    before = path.read_text() if path.exists() else ""
    head, mark = CONTAINERS.partition("\n")[:2]
    (old, _, old_rest), (first, _, rest) = (text.partition(f"\n{head}{mark}") for text in (before, new))
    first, rest = (first if _is_general(trainings, ended) or not old else old), rest or old_rest
    path.write_text(first + (f"\n{head}{mark}{rest}" if rest else ""))


def page(circumstances: Circumstances, trainings: Sequence[Training], ended: Sequence[Ended] = ()) -> str:
    """Compose the report."""
    contained = [each for each in trainings if each.store is Store.CONTAINERS]
    others = [each for each in trainings if each.store is not Store.CONTAINERS]
    conditions = textwrap.fill(" ".join(_circumstances(circumstances)), 120) + "\n"
    parts = [
        HEAD.format(command=circumstances.command),
        *(_parts(others) if others else ()),
        *(("## Jobs that must end, and many small tasks\n", ENDS, "\n".join(_ended(ended)) + "\n") if ended else ()),
        *((conditions,) if _is_general(trainings, ended) else ()),
        *(_contained(contained, circumstances) if contained else ()),
        *((conditions,) if contained else ()),
    ]
    return "\n".join(parts)


def _is_general(trainings: Sequence[Training], ended: Sequence[Ended]) -> bool:
    """Whether anything was measured without containers."""
    return bool(ended) or any(each.store is not Store.CONTAINERS for each in trainings)


def _contained(trainings: Sequence[Training], circumstances: Circumstances) -> Iterator[str]:
    yield CONTAINERS.format(command=circumstances.command)
    yield "\n".join(_table(trainings)) + "\n"
    struck = {cost.fault for cost in _all_costs(trainings)}
    others = {name for name, fault in CATALOGUE.items() if fault.store is Store.CONTAINERS} - struck
    if names := [f"{CATALOGUE[name].what} ({circumstances.skipped.get(name, _NO_TIME)})" for name in sorted(others)]:
        yield textwrap.fill(f"Not measured: {'; '.join(names)}.", 120) + "\n"
    yield CONTAINERS_HELD
    yield "\n".join(_trainings(trainings)) + "\n"


def _parts(trainings: Sequence[Training]) -> list[str]:
    return [
        "## Cost of each fault\n",
        "\n".join(_table(trainings)) + "\n",
        COLUMNS,
        "## Goals\n",
        "\n".join(_goals(_all_costs(trainings), _all_bare(trainings))) + "\n",
        textwrap.fill(" ".join(_bare(trainings)), 120) + "\n",
        "## Invariants\n",
        HELD,
        "\n".join(_trainings(trainings)) + "\n",
    ]


def _table(trainings: Sequence[Training]) -> Iterator[str]:
    yield f"| {' | '.join(_HEADS)} |"
    yield f"| {' | '.join(['---'] * len(_HEADS))} |"
    for fault in CATALOGUE.values():
        struck = [(cost, each.store) for each in trainings for cost in each.costs if cost.fault == fault.name]
        if struck:
            costs, stores = zip(*struck, strict=True)
            yield _row(fault.what, costs, Counter(stores))


def _row(what: str, costs: Sequence[Cost], stores: Counter[Store]) -> str:
    cells = [
        f"{what}{_victims(costs)}",
        ", ".join(f"{store.value} {stores[store]}" for store in Store if stores[store]),
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
    """The victims, if the row's name does not include them."""
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
    return str(max(known)) if known else "unknown"


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
    yield f"A worker's program that is started by hand during the training takes {median(bare):.1f} s until it answers."
    yield f"From the kill of a worker to the answer of its replacement {median(known):.1f} s passed,"
    yield f"{times:.2f} times as long as the start by hand."


def _trainings(trainings: Sequence[Training]) -> Iterator[str]:
    yield "| store | result | accuracy | epochs | seconds | strikes | violated invariants |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for each in trainings:
        accuracy = "-" if each.accuracy is None else f"{each.accuracy:.4f}"
        numbers = f"{accuracy} | {each.epochs} | {each.seconds:.0f} | {len(each.costs)}"
        found = "; ".join(finding.replace("|", "/")[:_LONGEST] for finding in each.findings)
        yield f"| {each.store.value} | {each.verdict} | {numbers} | {found or 'nothing'} |"


def _ended(jobs: Sequence[Ended]) -> Iterator[str]:
    yield "| fault | job | state in | result | launches | seconds | seen | violated invariants |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- |"
    for each in jobs:
        numbers = f"{each.launches} | {each.seconds:.0f}"
        texts = (each.seen, "; ".join(each.findings) or "nothing")
        seen = " | ".join(textwrap.shorten(text.replace("|", "/"), _LONGEST, placeholder=" ...") for text in texts)
        yield f"| {JOBS[each.fault].what} | {each.what} | {each.store.value} | {each.verdict} | {numbers} | {seen} |"


def _circumstances(found: Circumstances) -> Iterator[str]:
    yield f"The times were measured on {found.day}, on {found.processors} processors, with an average load of"
    yield f"{found.load:.1f}. Chief, parameter server and workers contribute 4 to this load."
    if found.load > 2 * found.processors:
        yield "The machine was busy with other work, so importing TensorFlow took a multiple of its usual time."
