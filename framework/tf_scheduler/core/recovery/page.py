"""docs/recovery.md, from the tables themselves. `python -m tf_scheduler.core.recovery.page` prints it."""

from __future__ import annotations

from collections.abc import Iterable

from tf_scheduler.model.failure import Cause

from . import anew, causes, heal, joining, starting, stumbling, suspects, units

_INTRODUCTION = f"""# Recovery

What happens when a task ends that has not finished, or is lost. This page is made from the tables that decide it.

1. Its **cause** is found: the first row of the first table that fits.
2. If another launch can help, the task and its **unit** (second table) start again: those that still run are told to
   end, at once.
3. The task waits for its **back-off**: none after the first loss, then `restart.backoff` seconds, doubled each time up
   to `restart.max_backoff`, with jitter. A launch that lasted {heal.STEADY:g} s begins the row anew.
4. From its end on it seeks its **old address**, the same agent and port, for {anew.HOME_WAIT:g} s: then nobody else
   has to start again. If its agent is gone, or that time is over, it goes wherever it fits. The ClusterSpec gets a new
   generation, and the tasks that must know every address start again with it (fourth column of the second table).
5. A program that ends **at once**, twice in a row at the same address, does not go there again, as somebody who is no
   task of Mesos may have its port: the next launch gets other ports, as in 4. *At once*: with an error of its own (an
   exit code that asks for no restart, or SIGABRT), within {stumbling.SOON:g} s of its launch, before its server
   answered and before it told progress. No task of the service gets that port then, as long as a round of offers finds
   places without it. The last {stumbling.KEPT} such addresses of each task are remembered.

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
{joining.FORGIVEN} such launches in a row the next one ends the job. When nobody's server answers, and nothing is known,
that is told, with the names of all, and nobody is ended: a program may have no server. In the first {joining.GRACE:g} s
of a scheduler nobody is late.

A launch that stays in TASK_STAGING, or of which nothing is heard, for `recovery.start_timeout` seconds
({starting.LEAST:g} at least) counts as lost: Mesos is told to end it, and the next launch goes to another agent, if
there is one.

With `health.stalled_after` a program without progress and without output for so long fails: exit by the executor,
counted. Parameter servers, and workers with strategy `parameter_server`, are silent by nature and not looked at.

## Which agent is avoided

A launch that could not begin on an agent, was lost there, or did not join, is held against the agent; what fails
within {suspects.TOGETHER:g} s of another there counts once, and a program that crashes by itself does not count. After
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


def page() -> str:
    """The whole page, in Markdown."""
    parts = (_INTRODUCTION, "## Why it ended", _causes(), "## What starts again", _units())
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _causes() -> str:
    rows = ([row.when, row.cause.value, *_treatment(row.cause)] for row in causes.ROWS)
    table = _table(["the first that fits", "cause", "launched again", "counted"], rows)
    note = (
        f"An error within {heal.COLLATERAL:g} s of another task's loss is *collateral*: launched again, not counted. "
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
    if cause is Cause.NEVER:
        return ["no: the job fails", "no"]
    return ["yes" if cause.retried else "no", "yes" if cause.counted else "no"]


def _units() -> str:
    rows = (
        [row.strategy.value if row.strategy else "any", row.job.value, row.same.value, row.moved.value, row.why]
        for row in units.ROWS
    )
    return _table(["strategy", "lost", "at its old address", "at a new address", "because"], rows)


def _table(head: list[str], rows: Iterable[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    print(page(), end="")  # noqa: T201 - that is what it is for
