"""Generate pages of docs from the tables that the code uses.

`scripts/generate-docs` writes them; tests compare.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from tf_executor.around import health
from tf_executor.process.memory import CLOSING_SECONDS
from tf_scheduler.api.views.base import SILENCE
from tf_scheduler.convert import beta, pod, tfjob, tony
from tf_scheduler.convert.tables import Row
from tf_scheduler.core.plans.scheduling import CANARIES
from tf_scheduler.core.plans.tables import AGGREGATE, ALREADY, ENDINGS, LAUNCHED, SITUATIONS, TRANSITIONS
from tf_scheduler.core.recovery import failure_causes, reconcile, recover, replacement, startup_timeout
from tf_scheduler.core.recovery.reactions import REACTIONS, Report
from tf_scheduler.core.state import restart_units
from tf_scheduler.mesos.outbox import MAX_CALLS, MAX_UNANSWERED, RESUBSCRIBE_INTERVAL
from tf_scheduler.model.plan import PlanKind, Status, Verb
from tf_scheduler.model.spec import ADDRESS_DEPENDENTS, JobKind
from tf_scheduler.model.task import Cause, TaskState

HOME = Path(__file__).resolve().parent.parent
_MARKED_TABLE = re.compile(r"(<!-- table: ([a-z-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def pages() -> Iterator[tuple[Path, str]]:
    """Yield each generated page with its text."""
    docs = HOME / "docs"
    yield docs / "reference" / "state-machine.md", state_machine()
    yield docs / "explanation" / "recovery.md", recovery()
    for path in sorted((docs / "how-to" / "migrate").glob("*.md")):
        yield path, with_tables(path.read_text())


def main() -> None:
    """Write outdated pages."""
    for path, text in pages():
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
            print(f"wrote {path.relative_to(HOME)}")


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |".replace("|  |", "| |") for row in (head, ["---"] * len(head), *rows))


# docs/reference/state-machine.md

_HEAD = """\
# State machines of plans

This page lists the statuses of steps, phases and plans, and their transitions. It is generated from the tables that the
code uses. [plans.md](plans.md) describes how to use plans.

The scheduler does not store the status of a step, phase or plan. It derives each status from records (launches and their
options), task statuses (as last reported by Mesos) and operators' commands (interrupts, forced steps, restarts,
parameters). A restarted scheduler therefore shows and continues the same plans.
"""

_SHOWN = """\
A PENDING or PREPARED step is shown as WAITING while it is interrupted, or while it is a canary that is not released.
The step of a paused task is shown as PAUSING, and as PAUSED when its placeholder runs. The status of
the phase and of the plan is computed from the original status of the step, not from PAUSING or PAUSED.
"""

_MOVES_HEAD = """\
The tests check that each transition in the table happens in the simulation, and that no other transition happens
(`tests/simulation/test_moves.py`).
"""


def state_machine() -> str:
    """Return docs/reference/state-machine.md."""
    return "\n\n".join(_wrapped(section.strip()) for section in _sections()) + "\n"


def _wrapped(section: str) -> str:
    is_long_line = "\n" not in section and len(section) > 120
    return textwrap.fill(section, 120, break_on_hyphens=False) if is_long_line else section


def _sections() -> Iterator[str]:
    yield _HEAD
    yield "## A step that launches a task"
    yield "The first row that applies gives the status:"
    yield _table(("step", "status"), ((row.value, _of(status)) for row, status in SITUATIONS.items()))
    yield "If the latest launch is the launch that the plan wants, the state of the launch gives the status:"
    yield _table(("state of the launch", "status"), _launched())
    yield "## A step that stops or removes something"
    yield (
        "Such a step kills a task, erases the record of a task, or deregisters the framework. "
        "The first row that applies gives the status:"
    )
    yield _table(("step", "status"), ((row.value, status.value) for row, status in ENDINGS.items()))
    yield _SHOWN
    yield "## Transitions of a step"
    yield _diagram()
    yield _MOVES_HEAD
    yield _table(("from", "to", "reason"), _moves())
    yield "## Phases and plans"
    yield (
        "The first row that applies gives the status. The children of a plan are its phases; the children of a phase are "
        "its steps. A child is due if it is incomplete and the strategy lets it run now."
    )
    yield _table(("condition", "status"), ((words, status.value) for status, _, words in AGGREGATE))
    yield "## Commands"
    yield (
        "Each command applies to a plan, a phase or a step. The answer is 208 if the command would change "
        "nothing and the plan, phase or step has a status that the table lists. Otherwise the answer is 200."
    )
    yield _table(("verb", "already done"), _verbs())
    yield f"A canary strategy holds back the first {CANARIES} incomplete steps; each `continue` releases one step."
    yield "## Plans"
    yield "If several plans have work for one task, the order of this table is their priority:"
    yield _table(("plan", "purpose"), _kinds())
    yield "## Jobs that need every address"
    yield (
        "The tasks of these jobs are launched together with all tasks that have no address yet. They are relaunched when "
        "an address changes:"
    )
    yield _table(
        ("strategy", "jobs"), ((strategy.value, _listed(kinds)) for strategy, kinds in ADDRESS_DEPENDENTS.items())
    )


def _of(status: Status | None) -> str:
    return "see below" if status is None else status.value


def _launched() -> Iterator[tuple[str, str]]:
    yield "no status yet", Status.STARTING.value
    for state, status in LAUNCHED.items():
        if state is TaskState.RUNNING:
            yield f"{state.value}, frozen or paused", Status.STARTED.value
        yield state.value, status.value
    yield "TASK_KILLING or TASK_KILLED, after the end of the job", Status.COMPLETE.value


def _moves() -> Iterator[tuple[str, str, str]]:
    for old, row in TRANSITIONS.items():
        for new, why in row.items():
            yield old.value, new.value, why


def _diagram() -> str:
    lines = [f"    {old.value} --> {new.value}" for old, new in MAIN_MOVES]
    return "\n".join(["```mermaid", "stateDiagram-v2", "    [*] --> PENDING", *lines, "```"])


#: Transitions in the diagram: of a launch, and back; the table has the others.
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
        PlanKind.UNINSTALL: "`uninstall`, after the end of the job",
        PlanKind.ROLL_OUT: "`deploy`, and `update` after the first complete deployment",
        PlanKind.RECOVERY: "`recovery`",
        PlanKind.DECOMMISSION: "`decommission`",
        PlanKind.CUSTOM: "user plans",
    }
    for kind, name in names.items():
        yield name, kind.value


def _listed(items: Iterable[Status | JobKind]) -> str:
    return ", ".join(sorted(item.value for item in items))


# docs/explanation/recovery.md

_INTRODUCTION = f"""# Recovery

This page describes what happens when a task is lost, or ends without success. The tables of this page are generated
from the code.

1. The scheduler looks up the **cause** of the loss in the [first table](#why-it-ended). The first row that applies
   gives the cause.
2. If the cause permits a relaunch, the task restarts together with its **restart group**: the tasks that must restart
   with it ([second table](#what-starts-again)). The scheduler immediately stops the running tasks of the restart group.
3. The task waits for its **back-off**. The first relaunch has a back-off of 0. After the second loss the back-off is
   `restart.backoff` seconds, and each further loss doubles it up to `restart.max_backoff`. Each back-off has jitter. A
   launch that lasts {recover.STEADY_SECONDS:g} s or more resets the back-off.
4. After the back-off, the task waits up to {replacement.PREVIOUS_ADDRESS_WAIT:g} s for its **previous address** (agent
   and port), to avoid restarts of other tasks. If the address does not become available in this time, the scheduler
   places the task on any agent. If the agent is gone, the scheduler does not wait. A new address changes the
   ClusterSpec, and more tasks may have to restart (fifth column of the second table).
5. If a program fails, and **another process listens on its port**, the task gets other ports. Mesos offers ports and
   does not guard them. The executor checks the port when the program ends. No task of the service gets the port on this
   agent again, unless the tasks cannot be placed otherwise. For each task, the scheduler remembers the last
   {recover.MAX_BAD_ADDRESSES} such addresses.

The scheduler stores each recovery decision before it executes the decision, so back-off and failure counts survive a
restart of the scheduler.

Finished tasks are not relaunched. If the second table requires a restart of the whole cluster, but another task of the
cluster has already finished, the job fails. A restart would make the other tasks wait forever for the finished task.

A task is silent while its agent does not answer (TASK_UNREACHABLE), and while the Mesos master does not know its agent
(TASK_UNKNOWN, for example after the master has lost its registry). A silent task counts as lost after
`recovery.unreachable_timeout` seconds. The option `unreachable_timeout` of a job overrides this time for the tasks of
the job. The scheduler decides this only while it is connected, and asks Mesos once more when the time is over: the
scheduler may have been stopped itself, and the task may be back. If the task has succeeded meanwhile, and is not
replaced yet, its success counts. If Mesos reports that the agent of a task was removed, the scheduler replaces the task
immediately. See the [third table](#what-a-status-means).

## Launches that may still run

A silent launch that counts as lost is replaced, although its program may still run on its agent. A launch counts as lost
at the earliest 75 s after its agent became silent (master flags `agent_ping_timeout` and `max_agent_ping_timeouts`) plus
`recovery.unreachable_timeout`, or when an operator then replaces it (`pod replace`). While the agent is silent, Mesos
cannot stop the program; only the [checkpoint folder](#two-launches-of-one-task), if the agent reaches it, limits its
run time.

The scheduler stores such a launch until Mesos reports its end, for up to {reconcile.MAX_ABANDONED_AGE / 86400:g} days.
It kills the launch at the first sign of life: a status, a progress report, or a request for secrets. It also requests
the status of the launch every {reconcile.ABANDONED_INTERVAL:g} s. After the return of the agent, the program runs for
this time, and for up to `kill_grace` seconds more:

| case | seconds |
| --- | --- |
| the agent was frozen and continues (measured) | 0.1 |
| the agent was killed and is started again (measured, including its start) | 2.5 |
| the scheduler is starting when the agent returns (measured maximum) | 10 |
| the report of Mesos about the agent's return is lost | {reconcile.ABANDONED_INTERVAL:g} |

[operations.md](../how-to/operations.md#tasks-on-agents-that-do-not-answer) describes what operators see of these launches, and
what happens at the end of the job.

The program of a removed agent may still run. If an agent starts again without its work directory, it does not know the
executors of its earlier life. Each of these executors stops its program with SIGTERM, and after `kill_grace` seconds
with SIGKILL. An executor notices this within about 2 s after the agent has recovered. An executor whose agent does not
start again stops its program after the agent's `--recovery_timeout` (default: 15 minutes).

The scheduler does not wait for the end of this program. If it launches the task again at the previous address meanwhile,
the new program fails, because the old one listens on its port. Such an end is not counted as a failure, blames no agent,
and the next launch gets another port. If the old program ends within {CLOSING_SECONDS:g} s after the new one, the executor
cannot tell it from the new program: the end is one failure of the task, which keeps its port.

## Network partitions

| lost packets | effect |
| --- | --- |
| between an agent and the master, in one direction or both | the tasks of the agent are silent (above), and their programs continue |
| between agents, while connections hold | the programs wait; after the partition the training continues when TCP sends again, which takes up to as long as the partition. After {SILENCE:g} s without progress `health` and the web page show for how long |
| between agents, until connections fail (measured: from 20 s on; Linux, `net.ipv4.tcp_retries2`: after about 15 minutes) | with the strategy `parameter_server` the chief connects to its workers again, or it exits with an UnavailableError, which is a counted failure, and is launched again |

[reliability.md](../evidence/reliability.md#with-containers) has measurements of these cases for the strategy `parameter_server`.

## Two launches of one task

Two launches of a task can run at the same time: one on an agent that does not answer, or one of a framework whose
scheduler has lost its state, and its replacement. If `service.checkpoint_dir` is a path, executors make sure that only
the newest launch of a task uses the folder:

- Before the program starts, the executor writes the number of the launch to
  `CHECKPOINT_DIR/.dcos-tensorflow/SERVICE.TASK.json`. If a newer launch is there, the program does not start.
  If `.dcos-tensorflow` is missing, the executor writes the file 5 s after the start of the program.
- Every 5 s the executor reads the file. If a newer launch is there, the executor stops its program with SIGTERM, and
  after `kill_grace` seconds with SIGKILL.
- Of two launches of one framework, the later one is newer. Of two frameworks of one service, the one that came to the
  folder later is newer; the files `SERVICE.NUMBER.json` list the frameworks in this order. If two frameworks come at the
  same moment, exactly one wins with all its tasks. The earlier one never gets the folder back, so its job fails: its task
  ends with TASK_FAILED and the reason REASON_TASK_UNAUTHORIZED. To give the folder back to its job, uninstall the later
  framework and install the service again: its new framework comes last. No file has to be removed.

These limits apply:

| case | effect |
| --- | --- |
| a URL, checkpoints are carried | protected by numbers in the storage ([how to](../how-to/recipes.md#checkpoints-in-object-storage)) |
| a URL, TensorFlow writes to it | not protected |
| services with different names | not protected from each other |
| the folder is empty or does not exist | the file is written within 5 s after another file appears; hidden files do not count |
| a program removes the folder (`shutil.rmtree`) | the file is written again 5 to 10 s after the removal ends; until 5 s later, an older launch may still run |
| a program needs more than 5 s to remove one file, or one folder below a subfolder | its `rmtree` may fail because the file is written meanwhile |
| the file system has neither hard links nor exclusive creation (for example s3fs) | of two frameworks that come at the same moment, both may fail |
| the folder is not writable or does not answer | the task runs without protection; `executor.log` has a warning |

## Start-up timeout and hang detection

TensorFlow blocks forever, without an error, on a missing peer. The scheduler therefore checks programs
`recovery.start_timeout` seconds after their start. It stops a program that has reported no progress and whose
TensorFlow server does not answer, and relaunches the program with its restart group. The start-up timeout applies only
if a server is expected. A server is expected in three cases: the server of another task answers; the server of an
earlier launch of the task answered; or the executor starts the server itself (`service.job_name`). The scheduler
reports the last output of a program that it stops at the start-up timeout. A launch that is stopped at the start-up
timeout is called late. Late launches do not count as failures, but a task with more than
{startup_timeout.MAX_LATE_LAUNCHES} late launches fails the job. A late launch counts until an hour after the start-up
timeout of the next one, or until a launch of the task that had joined ends for another reason. So tasks that are late in turn fail
the job, too. If no server is expected and no server
answers, the scheduler only logs the names of the tasks, because programs may have no server. In the first
{startup_timeout.RECONNECT_GRACE:g} s after the scheduler has connected to Mesos, no launch counts as late.

A launch counts as lost if it is in TASK_STAGING, or has no status, for `recovery.start_timeout` seconds (minimum
{startup_timeout.MIN_LAUNCH_SECONDS:g}). The scheduler asks Mesos to kill the lost launch. The next launch moves to
another agent if possible.

A task is *frozen* if one of its processes is stopped by a signal (state T), also below a parent that works, or if one
is blocked by a disk, device or network file system (state D) and no process of the task uses CPU time. TensorFlow
reports no error then: the peers wait. The executor of every task checks its processes every {health.SAMPLE_INTERVAL:g}
s. It reports a task that is frozen for {health.FREEZE_REPORTED_AFTER:g} s. An event, `tasks`, `health` and the web page
then name the frozen task. After `health.frozen_after` seconds without output and progress the executor stops the frozen
task, and the scheduler relaunches it. The stop does not count as a failure, and no peer that waits for the task is
stopped. If a frozen task exits by itself, or its health check fails first, the message names the stopped process, and
the end does not count as a failure either. A process that is stopped by a debugger (state t) is not frozen.

Silence alone proves nothing: a healthy program may print and report nothing for hours. When a training that has reported
progress reports none for {SILENCE} s, `health` and the web page show for how long, and the task of the last
report. No task is stopped for this reason, unless `health.stalled_after` is set: then the executor stops a program that
reports no progress and prints no output for this time. The time begins with the program's first progress report, or after
`health.grace`, so that it does not include the import of TensorFlow. The stop of a stalled program counts as a failure.
Parameter servers, and workers with the strategy `parameter_server`, are normally silent, so `health.stalled_after` does not
apply to them. Choose a longer time than `health.frozen_after`: otherwise the peers of a frozen task are stopped first.

## Avoided agents

The scheduler counts failures of each agent. A launch is a failure of its agent if the agent dropped it, if it could not
start on the agent, was lost on the agent, or was late. The next launch of a task that its agent dropped uses another
agent if possible. Crashes of programs are not failures of the agent. If only the program was killed (SIGKILL), this is
a failure of the agent only if the program of another task was killed there before. Failures within
{failure_causes.SAME_INCIDENT_SECONDS:g} s on one agent count once. After `recovery.avoid_after` failures within
`recovery.avoid_for` seconds, the scheduler avoids the agent for another `recovery.avoid_for` seconds. Tasks whose previous address is on the agent
avoid the agent, too. If the tasks cannot be placed on the other offered agents, the scheduler also uses avoided agents,
beginning with the agent that has the fewest failures.

## Restart with fewer workers

Collective training restarts as a whole. If `worker.min_count` is set and the scheduler cannot place all workers within
`recovery.shrink_after` seconds, the cluster restarts with as many workers as possible, at least `worker.min_count`. The
smaller cluster consists of the workers with the lowest indexes, and its ClusterSpec contains only these workers. At the
next restart of the cluster, the scheduler tries again to place all workers. The scheduler stops running training to add workers
only with `worker.elastic.grow` ([updates.md](../how-to/updates.md#idle-agents)).

## Options of a job

The section of each job has these options: `restart_policy`, `max_failures`, `uncounted_exit_codes`, `unreachable_timeout`.

| `restart_policy` | relaunched after | counted |
| --- | --- | --- |
| on_failure | see the table below | see the table below |
| always | same as on_failure | no |
| never | only after TASK_DROPPED (the program was not started) | no |
| exit_code | same as on_failure, except after a `user error` with an exit code from 1 to 127 | see the table below |

## Operators' commands

These commands apply to one task: `restart` (at its previous address if possible), `replace` (on another agent if
possible), `pause`, `resume`. The restart group of the task restarts with the task. Operators' commands do not count as
failures. They survive a restart of the scheduler. Finished tasks are not relaunched. `restart` uses the current options:
if they no longer allow the agent of the task, for example after a changed constraint, the task moves. In the SDK only
`replace` moves a task.

`pause` stops the program and keeps the task's resources. The scheduler launches a placeholder with the same resources
at the previous address. The placeholder prints that the task is paused, and sleeps. The placeholder gets no secrets,
hooks, health checks or time limits. `resume` launches the program at the address of the placeholder. Tasks that depend
on the paused task (third column of the second table) are paused with it. A pause of a parameter server pauses the
chief; in collective training, a pause of one task pauses all tasks. Dependent tasks stay paused until the paused task
is resumed, or until an update removes the paused task. The placeholder is launched about a second after the end of the
program. In this second another framework can take resources that are not reserved. If a paused task is lost, the
scheduler relaunches its placeholder after a back-off. If the previous agent is gone, the scheduler uses another agent.
The loss of a paused task never counts as a failure.
"""


_FAILED_CALLS = f"""
## Failed calls

A thread sends the scheduler's calls to Mesos, one by one and in order. The loop handles events meanwhile. The metric
`tensorflow_calls_queued` shows how many calls wait, and `tensorflow_failed_calls_total` counts failed calls.

| call | ACCEPT | other calls |
| --- | --- | --- |
| refused (HTTP status 3xx to 5xx) | its launches end as TASK_DROPPED, its offers are declined | repeated on the next subscription |
| sent, no answer | its offers are declined, then the status of its launches is requested: Mesos may have launched them | sent again |
| not sent, because the connection was lost | its launches end as TASK_DROPPED | repeated on the next subscription |

The scheduler subscribes again after a refused call (at most once in {RESUBSCRIBE_INTERVAL:g} s), and after {MAX_UNANSWERED} calls in a row without an
answer. Mesos then offers all unused resources again, and the scheduler repeats what is missing: RECONCILE, KILL and REVIVE.
Mesos repeats status updates until they are acknowledged. Up to {MAX_CALLS:,} calls can wait. If more are decided, the scheduler
sends the waiting calls, and then subscribes again. `dcos-tensorflow health` reports refused calls until Mesos accepts a call.
"""


def recovery() -> str:
    """Return docs/explanation/recovery.md."""
    parts = (
        _INTRODUCTION,
        "## Why it ended",
        _causes(),
        _FAILED_CALLS,
        "## What starts again",
        _units(),
        *_reactions(),
    )
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _causes() -> str:
    rows = ([row.when, row.cause.value, *_treatment(row.cause)] for row in failure_causes.CAUSE_RULES)
    table = _table(["first condition that applies", "cause", "relaunched", "counted"], rows)
    note = (
        f"A `user error` within {recover.COLLATERAL_SECONDS:g} s after the loss of another task is *collateral*: the task is "
        "relaunched, and the error is not counted. There are five exceptions, in which the error is counted: the tasks do "
        "not depend on each other (strategy `independent`); the end of the other task was itself collateral; the failed "
        "launch is a relaunch because of the same loss; the program cannot start (see below); or the task ended with the same error as its previous launch, and the other task with a "
        "`user error`. Errors are the same if the exit code, and the first and last line of the exception or the last line "
        "of stderr (of stdout if stderr is empty), are equal except for numbers. "
        "The job fails if a task has more than `restart.max_failures` "
        "*counted* failures within `restart.window` seconds. Failures of other tasks of its job with the same error count, "
        "too; those within 5 s of another one do not. With `restart.fail_fast`, which is on by default, the job fails "
        "sooner until a task of the job has reported progress. A program *cannot start* if its command is missing or not "
        "executable (exit codes 126 and 127), if its interpreter (option `python`) does not exist, if it refuses its arguments (exit code 2 and `usage:`), if Python cannot open "
        "it, if its last line is a ModuleNotFoundError, ImportError, SyntaxError, IndentationError or NameError, or if it "
        "uses `Model.fit` of Keras 3 with a strategy that Keras 3 does not support. Such a program gets one more launch, on another machine; "
        "if only one machine has offered resources, the job fails immediately. The job also fails if two consecutive "
        "launches of a task, or of two tasks that restart together, end "
        f"with the same `user error` within {recover.EARLY_SECONDS / 60:g} minutes. Two equal errors do not fail the job if "
        "something else may be the reason: another task that does not answer, or "
        "that was lost with another error and does not run again or was lost just before; an error of a connection, such as "
        "UnavailableError; memory, a taken port, or an "
        "agent with recent failures. Ends of a program that are not "
        "counted because infrastructure may be the reason, for example SIGKILL, have their own limit: more than "
        "`restart.max_uncounted` within `restart.window` seconds fail the job. Lost agents do not count. The option `restart.uncounted_exit_codes` lists "
        "the exit codes that request a restart. A task that Mesos rejects (TASK_ERROR) is launched once more, on another "
        "agent if possible, because the resources of its agent may have changed since the offer. A second rejection of the "
        "same task in a row fails the job, and so does a launch that is not authorized. The result of a job names the failure that ended the job. Tasks that fail up "
        f"to {recover.COLLATERAL_SECONDS:g} s later are listed as consequences of this failure."
    )
    return f"{table}\n\n{textwrap.fill(note, 120, break_on_hyphens=False)}"


def _treatment(cause: Cause) -> list[str]:
    if cause is Cause.FINISHED:
        return ["no: it has finished", "no"]
    if cause is Cause.INVALID_TASK:
        return ["no: the job fails", "no"]
    return ["yes" if cause.is_retryable else "no", "yes" if cause.is_counted else "no"]


def _units() -> str:
    rows = (
        [
            row.strategy.value if row.strategy else "any",
            row.job.value,
            row.same.value,
            row.same.value,
            row.moved.value,
            row.why,
        ]
        for row in restart_units.RESTART_RULES
    )
    addresses = ["at its previous address", "at a new address with the same name", "at a new address"]
    return f"{_table(['strategy', 'lost', *addresses, 'reason'], rows)}\n\n{_NAMES.strip()}"


_NAMES = """
A task on a virtual network ([containers.md](../how-to/containers.md#networks)) keeps its name when it moves. Its peers look up the
name after their connections have failed, so the ClusterSpec stays, also after `replace` and before maintenance. If the
agent of the task does not answer (TASK_UNREACHABLE, TASK_LOST, TASK_GONE), the column "at a new address" applies: no
connection fails, and TensorFlow waits on the open connections. Measured with TensorFlow 2.21, the old address being that
of a container that has ended, or of an agent that is cut off:

| strategy | lost | old address | training continues with the new launch |
| --- | --- | --- | --- |
| parameter_server | worker | ended | in the second in which its server answers; the chief keeps running |
| parameter_server | worker | cut off | not within 120 s; after a restart of the chief in 15 s |
| parameter_server | ps, chief | ended | 1 to 2 s after the server of the new chief answers; the workers keep running |
| between_graph | worker | ended | 4 s after its server answers; ps and other workers keep running |
| between_graph | ps | ended | in the second in which its server answers; the workers keep running |
"""


def _reactions() -> Iterator[str]:
    yield "## What a status means"
    yield "The reaction to a status depends on the last stored state of the launch (rows) and on the reported state (columns):"
    rows = ([belief.value, *(row[report].value for report in Report)] for belief, row in REACTIONS.items())
    yield _table(["stored", *(report.value for report in Report)], rows)
    yield _REACTIONS


_REACTIONS = """| reaction | meaning |
| --- | --- |
| adopt | the status is stored; nothing is launched. A delayed status, such as STARTING after RUNNING, is ignored |
| wait | the status is stored; the task is silent, and counts as lost after `recovery.unreachable_timeout` |
| finish | the status is stored; the task has succeeded. A pending relaunch of the task is cancelled |
| end | the status is stored; the first table gives the cause |
| kill | the scheduler stops the program, because it has given the launch up |
| remember | nothing changes, but the launch may still run ([above](#launches-that-may-still-run)) |
| ignore | nothing changes. An ignored success is logged as a warning |
"""


# docs/how-to/migrate


def migration_tables() -> Mapping[str, str]:
    """Return the tables in Markdown by name."""
    prefixes = (Row(f"{prefix}*", (), why) for prefix, why in tony.PREFIXES.items())
    jobs = (Row(f"tony.JOB.{row.source}", row.to, row.note) for row in tony.JOB_ROWS)
    return {
        "tfjob": _mapping(tfjob.ROWS),
        "tfjob-older": _mapping(tfjob.OLDER_ROWS),
        "replica": _mapping(pod.ROWS),
        "tony": _mapping(tony.ROWS),
        "tony-job": _mapping(jobs),
        "tony-rest": _mapping(prefixes),
        "tony-arguments": _mapping(tony.ARGUMENTS),
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
    return _table(("from", "to", "notes"), ((_code(row.source), _options(row), _escaped(row.note)) for row in rows))


def _options(row: Row) -> str:
    if row.to:
        return ", ".join(_code(option.format(job="JOB")) for option in row.to)
    return "" if row.converter else "omitted"


def _code(text: str) -> str:
    return f"`{text}`"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("*", "\\*")


if __name__ == "__main__":
    main()
