"""Generate docs/state-machine.md, docs/recovery.md and the tables of docs/migrate from the tables that the code uses.

`scripts/generate-docs` writes them; tests compare.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from tf_scheduler.convert import beta, pod, tfjob, tony_rows
from tf_scheduler.convert.tables import Row
from tf_scheduler.core.plans.scheduling import CANARIES
from tf_scheduler.core.plans.tables import AGGREGATE, ALREADY, ENDINGS, LAUNCHED, SITUATIONS, TRANSITIONS
from tf_scheduler.core.recovery import failure_causes, recover, replacement, startup_timeout
from tf_scheduler.core.state import restart_units
from tf_scheduler.model.plan import PlanKind, Status, Verb
from tf_scheduler.model.spec import ADDRESS_DEPENDENTS, JobKind
from tf_scheduler.model.task import Cause, TaskState

HOME = Path(__file__).resolve().parent.parent
_MARKED_TABLE = re.compile(r"(<!-- table: ([a-z-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def pages() -> Iterator[tuple[Path, str]]:
    """Each generated page with the text that it must have."""
    docs = HOME / "docs"
    yield docs / "state-machine.md", state_machine()
    yield docs / "recovery.md", recovery()
    for path in sorted((docs / "migrate").glob("*.md")):
        yield path, with_tables(path.read_text())


def main() -> None:
    """Write the pages that are not current."""
    for path, text in pages():
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
            print(f"wrote {path.relative_to(HOME)}")


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |".replace("|  |", "| |") for row in (head, ["---"] * len(head), *rows))


# docs/state-machine.md

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


def state_machine() -> str:
    """Return docs/state-machine.md."""
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
    yield _table(
        ("strategy", "jobs"), ((strategy.value, _listed(kinds)) for strategy, kinds in ADDRESS_DEPENDENTS.items())
    )


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
    for old, row in TRANSITIONS.items():
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
        PlanKind.UNINSTALL: "`uninstall`, when the end is decided",
        PlanKind.ROLL_OUT: "`deploy`, and `update` from the first complete deployment on",
        PlanKind.RECOVERY: "`recovery`",
        PlanKind.DECOMMISSION: "`decommission`",
        PlanKind.CUSTOM: "those of the options",
    }
    for kind, name in names.items():
        yield name, kind.value


def _listed(items: Iterable[Status | JobKind]) -> str:
    return ", ".join(sorted(item.value for item in items))


# docs/recovery.md

_INTRODUCTION = f"""# Recovery

What happens when a task ends that has not finished, or is lost. This page is made from the tables that decide it.

1. Its **cause** is found: the first row of the first table that fits.
2. If another launch can help, the task and its **unit** (second table) start again: those that still run are told to
   end, at once.
3. The task waits for its **back-off**: none after the first loss, then `restart.backoff` seconds, doubled each time up
   to `restart.max_backoff`, with jitter. A launch that lasted {recover.STEADY_SECONDS:g} s begins the row anew.
4. From its end on it seeks its **old address**, the same agent and port, for {replacement.PREVIOUS_ADDRESS_WAIT:g} s: then nobody else
   has to start again. If its agent is gone, or that time is over, it goes wherever it fits. The ClusterSpec gets a new
   generation, and the tasks that must know every address start again with it (fourth column of the second table).
5. A program that ends **at once**, twice in a row at the same address, does not go there again, as somebody who is no
   task of Mesos may have its port: the next launch gets other ports, as in 4. *At once*: with an error of its own (an
   exit code that asks for no restart, or SIGABRT), within {recover.CRASH_WINDOW:g} s of its launch, before its server
   answered and before it told progress. No task of the service gets that port then, as long as a round of offers finds
   places without it. The last {recover.MAX_BAD_ADDRESSES} such addresses of each task are remembered.

Everything of this is stored before it is done: the back-off and the count of failures survive the scheduler.

A task that has finished is never launched again. Where a lost task starts again together with every task of the cluster
(second table), and one of these has finished, the job fails, with that reason: the lost one would wait for it in vain.

When a task becomes unreachable (its agent does not answer), it is waited for `recovery.unreachable_timeout` seconds, or
what its own section says; then it counts as lost, and if it returns it is killed. One that is gone for good is replaced
at once.

## Who does not join, and who hangs

TensorFlow waits for a missing peer silently and for ever, and looks well. A program that has not opened its TensorFlow
server's port `recovery.start_timeout` seconds after its start, and that has told no progress, is ended and launched
again, with its unit, if it is known to open one: those of others answer, that of an earlier launch did, or its
server is opened for it (`service.job_name`). Its last output is told. That counts as no failure, but after
{startup_timeout.MAX_LATE_LAUNCHES} such launches in a row the next one ends the job. When nobody's server answers, and nothing is known,
that is told, with the names of all, and nobody is ended: a program may have no server. In the first {startup_timeout.RECONNECT_GRACE:g} s
of a scheduler nobody is late.

A launch that stays in TASK_STAGING, or of which nothing is heard, for `recovery.start_timeout` seconds
({startup_timeout.MIN_LAUNCH_SECONDS:g} at least) counts as lost: Mesos is told to end it, and the next launch goes to another agent, if
there is one.

With `health.stalled_after` a program without progress and without output for so long fails: exit by the executor,
counted. Parameter servers, and workers with strategy `parameter_server`, are silent by nature and not looked at.

## Which agent is avoided

A launch that could not begin on an agent, was lost there, or did not join, is held against the agent; what fails
within {failure_causes.SAME_INCIDENT_SECONDS:g} s of another there counts once, and a program that crashes by itself does not count. After
`recovery.avoid_after` within `recovery.avoid_for` seconds the agent is avoided for as long, also by tasks whose old
address is there. It is used all the same when a round of offers has ended without a place: the least bad one first.

## Fewer workers rather than none

Collective training starts again as a whole. With `worker.min_count`, a restart that has found no place for all workers
for `recovery.shrink_after` seconds is made with as many as find one, but no fewer than that: the lowest indexes, in a
ClusterSpec of their own. All of them are wanted again at the next restart; nothing that trains is ended for it.

## What a job may choose

In the section of each job: `restart_policy`, `max_failures`, `uncounted_exit_codes`, `unreachable_timeout`.

| `restart_policy` | launched again after | counted |
| --- | --- | --- |
| on_failure | whatever the table below says | as it says |
| always | the same | nothing |
| never | only a launch that reached no agent | nothing |
| exit_code | all but exit codes from 1 to 127 | as the table says |

## What operators may order

Of one task: `restart` (at its old address, if possible), `replace` (on another agent, if there is one), `pause`,
`resume`. Its unit starts again with it. Nothing of that counts as a failure, and all of it survives the scheduler. A
task that has finished is not launched again by that either.

`pause` ends the program and keeps the place: the task is launched again at its old address, with the same resources,
and what runs there only tells that it is paused, and sleeps. It gets no secrets, and neither hooks nor health checks
nor time limits of its own; `resume` launches the program there again. Whoever would have to start again with it at its
old address sleeps with it, and goes on with it (the chief, when a parameter server is paused; all, in collective
training), or when an update takes that task away. As between the end of a program and any next launch, resources that
are not reserved may be taken by others in the second between the two. A paused task that is lost is launched again as
it was, paused, after a back-off, and wherever it finds a place if its agent is gone; that never counts, whatever the
`restart_policy`.
"""


def recovery() -> str:
    """Return docs/recovery.md."""
    parts = (_INTRODUCTION, "## Why it ended", _causes(), "## What starts again", _units())
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _causes() -> str:
    rows = ([row.when, row.cause.value, *_treatment(row.cause)] for row in failure_causes.CAUSE_RULES)
    table = _table(["the first that fits", "cause", "launched again", "counted"], rows)
    note = (
        f"An error within {recover.COLLATERAL_SECONDS:g} s of another task's loss is *collateral*: launched again, not counted. "
        "Not so with the strategy `independent`, whose tasks know nothing of each other; nor does a collateral error "
        "excuse another, nor a loss the next launch of a task that was launched again because of it. "
        "*Counted* means against `restart.max_failures` within `restart.window`; one more ends the job. "
        "`restart.uncounted_exit_codes` are the exit codes that ask for a restart. The result of a job names the "
        "failure that ended it; who fails by itself in the same time after it is added, as ended because of it."
    )
    return f"{table}\n\n{note}"


def _treatment(cause: Cause) -> list[str]:
    if cause is Cause.FINISHED:
        return ["no: it is done", "no"]
    if cause is Cause.INVALID_TASK:
        return ["no: the job fails", "no"]
    return ["yes" if cause.is_retryable else "no", "yes" if cause.is_counted else "no"]


def _units() -> str:
    rows = (
        [row.strategy.value if row.strategy else "any", row.job.value, row.same.value, row.moved.value, row.why]
        for row in restart_units.RESTART_RULES
    )
    return _table(["strategy", "lost", "at its old address", "at a new address", "because"], rows)


# docs/migrate


def migration_tables() -> Mapping[str, str]:
    """Return the tables in Markdown by name."""
    prefixes = (Row(f"{prefix}*", (), why) for prefix, why in tony_rows.PREFIXES.items())
    jobs = (Row(f"tony.JOB.{row.source}", row.to, row.note) for row in tony_rows.JOB_ROWS)
    return {
        "tfjob": _mapping(tfjob.ROWS),
        "tfjob-older": _mapping(tfjob.OLDER_ROWS),
        "replica": _mapping(pod.ROWS),
        "tony": _mapping(tony_rows.ROWS),
        "tony-job": _mapping(jobs),
        "tony-rest": _mapping(prefixes),
        "tony-arguments": _mapping(tony_rows.ARGUMENTS),
        "beta": _mapping(beta.ROWS),
        "beta-obsolete": _table(
            ("option", "why it has no effect"), ((f"`{a}`", b) for a, b in beta.obsolete_options())
        ),
    }


def with_tables(page: str) -> str:
    """Return the page with the text between each `<!-- table: NAME -->` and `<!-- end -->` replaced by that table."""
    known = migration_tables()
    return _MARKED_TABLE.sub(lambda match: f"{match[1]}\n{known[match[2]]}\n\n{match[3]}", page)


def _mapping(rows: Iterable[Row]) -> str:
    return _table(("there", "here", "how"), ((_code(row.source), _options(row), _escaped(row.note)) for row in rows))


def _options(row: Row) -> str:
    if row.to:
        return ", ".join(_code(option.format(job="JOB")) for option in row.to)
    return "" if row.converter else "left out"


def _code(text: str) -> str:
    return f"`{text}`"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("*", "\\*")


if __name__ == "__main__":
    main()
