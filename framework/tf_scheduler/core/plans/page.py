"""docs/state-machine.md, from the tables themselves. `python -m tf_scheduler.core.plans.page` prints it."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence

from tf_scheduler.model.knowers import KNOWERS
from tf_scheduler.model.plan import Status, Verb
from tf_scheduler.model.spec import JobKind
from tf_scheduler.model.task import TaskState

from .define import Kind
from .strategy import CANARIES
from .tables import AGGREGATE, ALREADY, ENDINGS, LAUNCHED, MOVES, SITUATIONS

_HEAD = """\
# State machines of plans

What a step, a phase and a plan are, and how they move. This page is made from the tables that decide it. What plans
are for, and how to use them, is in [plans.md](plans.md).

No status is stored. Each follows from three things that are: the records (what was launched, with what), the statuses
(what Mesos said of it last), and the operators' orders (interrupts, forced steps, restarts, parameters). So a scheduler
that starts anew shows the same plans as the one before, and goes on with them.
"""

_SHOWN = """\
A step that is PENDING or PREPARED is shown as WAITING when it is interrupted, or held as a canary. A step whose task an
operator has paused is shown as PAUSING, and as PAUSED when its place is kept and no program runs there; phase and plan
go by its status.
"""

_MOVES_HEAD = """\
The simulation checks at every event that no step moves in another way, and that every one of these moves happens
(`tests/simulation/test_moves.py`).
"""


def page() -> str:
    """The whole page, in Markdown."""
    return "\n\n".join(section.strip() for section in _sections()) + "\n"


def _sections() -> Iterator[str]:
    yield _HEAD
    yield "## A step that launches a task"
    yield "The first row that holds:"
    yield _table(("the step's task", "status"), ((row.value, _of(status)) for row, status in SITUATIONS.items()))
    yield "And if the launch that it wants is there:"
    yield _table(("Mesos says", "status"), _launched())
    yield "## A step that ends something"
    yield "It kills a task, erases its record, gives a reservation back, or deregisters. The first row that holds:"
    yield _table(("what is known", "status"), ((row.value, status.value) for row, status in ENDINGS.items()))
    yield _SHOWN
    yield "## How a step moves"
    yield _diagram()
    yield _MOVES_HEAD
    yield _table(("from", "to", "because"), _moves())
    yield "## A phase, or a plan"
    yield "The first row that holds; `children` are the steps of the phase, or the phases of the plan:"
    yield _table(("when", "status"), ((words, status.value) for status, _, words in AGGREGATE))
    yield "## What operators say"
    yield (
        "Each verb is for a plan, a phase or a step. It is answered with 208 if the status is one of these and nothing "
        "would change; else with 200."
    )
    yield _table(("verb", "done already when"), _verbs())
    yield f"A canary strategy holds the first {CANARIES} steps that are not complete; each `continue` lets one go."
    yield "## Which plans there are"
    yield "In this order they have the say over a task that several want:"
    yield _table(("plan", "what it is for"), _kinds())
    yield "## Who must know every address"
    yield (
        "These tasks are launched together with all that have no address yet, and launched again when an address has "
        "changed:"
    )
    yield _table(("strategy", "jobs"), ((strategy.value, _listed(kinds)) for strategy, kinds in KNOWERS.items()))


def _of(status: Status | None) -> str:
    return "see below" if status is None else status.value


def _launched() -> Iterator[tuple[str, str]]:
    yield "nothing yet", Status.STARTING.value
    for state, status in LAUNCHED.items():
        if state is TaskState.RUNNING:
            yield f"{state.value}, and its health check says no, or it is paused", Status.STARTED.value
        yield state.value, status.value
    yield "TASK_KILLING or TASK_KILLED, after the end of the job", Status.COMPLETE.value


def _moves() -> Iterator[tuple[str, str, str]]:
    for old, row in MOVES.items():
        for new, why in row.items():
            yield old.value, new.value, why


def _diagram() -> str:
    lines = [f"    {old.value} --> {new.value}" for old, new in MAIN_MOVES]
    return "\n".join(["```mermaid", "stateDiagram-v2", "    [*] --> PENDING", *lines, "```"])


#: What the picture shows: the way of a launch, and back; the table has the others.
MAIN_MOVES = (
    (Status.PENDING, Status.WAITING),
    (Status.WAITING, Status.PENDING),
    (Status.PENDING, Status.PREPARED),
    (Status.PENDING, Status.STARTING),
    (Status.PREPARED, Status.STARTING),
    (Status.STARTING, Status.STARTED),
    (Status.STARTING, Status.COMPLETE),
    (Status.STARTED, Status.COMPLETE),
    (Status.STARTED, Status.DELAYED),
    (Status.STARTED, Status.ERROR),
    (Status.COMPLETE, Status.PENDING),
    (Status.COMPLETE, Status.DELAYED),
    (Status.DELAYED, Status.PENDING),
    (Status.ERROR, Status.PENDING),
)


def _verbs() -> Iterator[tuple[str, str]]:
    for verb in Verb:
        yield f"`{verb.value}`", _listed(ALREADY[verb]) or "never"


def _kinds() -> Iterator[tuple[str, str]]:
    names = {
        Kind.UNINSTALL: "`uninstall`, when the end is decided",
        Kind.ROLL_OUT: "`deploy`, and `update` from the first complete deployment on",
        Kind.RECOVERY: "`recovery`",
        Kind.DECOMMISSION: "`decommission`",
        Kind.CUSTOM: "those of the options",
    }
    for kind, name in names.items():
        yield name, kind.value


def _listed(items: Iterable[Status | JobKind]) -> str:
    return ", ".join(sorted(item.value for item in items))


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows))


if __name__ == "__main__":
    sys.stdout.write(page())
