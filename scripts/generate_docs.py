"""Write the tables of pages of docs that are made from the code; the prose around them is written by hand.

A table stands between `<!-- table: NAME -->` and `<!-- end -->`. `scripts/generate-docs` writes them; tests compare.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import click

import api_page
import options_page
from step_transitions import TRANSITIONS
from tf_executor.contract.states import Status, TaskState
from tf_executor.process import health
from tf_executor.process.ports import CLOSING_SECONDS
from tf_scheduler.api.views.base import SILENCE
from tf_scheduler.cli.main import cli
from tf_scheduler.convert import beta, pod, tfjob, tony
from tf_scheduler.convert.tables import Row
from tf_scheduler.core.plans.status_tables import AGGREGATE, ALREADY, ENDINGS, SITUATIONS
from tf_scheduler.core.recovery import failure_causes, reconcile, recover, replacement, startup_timeout
from tf_scheduler.core.recovery.status import REACTIONS, Report
from tf_scheduler.core.state import reducer, spec_index
from tf_scheduler.mesos.outbox import MAX_CALLS, MAX_UNANSWERED, RESUBSCRIBE_INTERVAL
from tf_scheduler.model.plan import PlanKind, Verb
from tf_scheduler.model.spec import ADDRESS_DEPENDENTS, JobKind
from tf_scheduler.model.task import Cause
from tf_scheduler.options.schema.document import OPTIONS

HOME = Path(__file__).resolve().parent.parent
DOCS = HOME / "docs"
#: A generated part of a page: the marker before it, its name, and the marker after it.
GENERATED_PART = re.compile(r"(<!-- table: ([a-z-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def pages() -> Iterator[tuple[Path, str]]:
    """Yield each page with generated parts, and its text with current parts."""
    for path in sorted(DOCS.rglob("*.md")):
        text = path.read_text()
        if GENERATED_PART.search(text):
            yield path, with_tables(text)


def main() -> None:
    """Write outdated pages."""
    for path, text in pages():
        if path.read_text() != text:
            path.write_text(text)
            print(f"wrote {path.relative_to(HOME)}")


def with_tables(page: str) -> str:
    """Return the page with its generated parts replaced by the current ones."""
    tables = all_tables()
    return GENERATED_PART.sub(lambda match: f"{match[1]}\n{tables[match[2]]}\n\n{match[3]}", page)


def all_tables() -> Mapping[str, str]:
    """Return the generated parts in Markdown by name."""
    own = {**plan_tables(), **recovery_tables(), **command_tables(), **migration_tables()}
    return {**own, **options_page.tables(), **api_page.tables()}


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |".replace("|  |", "| |") for row in (head, ["---"] * len(head), *rows))


# plans


def plan_tables() -> Mapping[str, str]:
    """Return the tables of statuses, transitions and commands by name."""
    dependents = ((strategy.value, _listed(kinds)) for strategy, kinds in ADDRESS_DEPENDENTS.items())
    return {
        "launching-steps": _table(("step", "status"), ((row.value, _of(status)) for row, status in SITUATIONS.items())),
        "launch-states": _table(("state of the launch", "status"), _launched()),
        "ending-steps": _table(("step", "status"), ((row.value, status.value) for row, status in ENDINGS.items())),
        "transition-diagram": _diagram(),
        "transitions": _table(("from", "to", "reason"), _moves()),
        "aggregate": _table(("condition", "status"), ((words, status.value) for status, _, words in AGGREGATE)),
        "verbs": _table(("verb", "already done"), _verbs()),
        "plans": _table(("plan", "purpose"), _kinds()),
        "address-dependents": _table(("strategy", "jobs"), dependents),
    }


def _of(status: Status | None) -> str:
    return "see below" if status is None else status.value


def _launched() -> Iterator[tuple[str, str]]:
    yield "no status yet", Status.STARTING.value
    for state in TaskState:
        if state is TaskState.RUNNING:
            yield f"{state.value}, frozen or paused", Status.STARTED.value
        yield state.value, state.step.value
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


# recovery


def recovery_tables() -> Mapping[str, str]:
    """Return the tables of causes, restart groups, reactions and limits by name."""
    causes = ((row.when, row.cause.value, *_treatment(row.cause)) for row in failure_causes.CAUSE_RULES)
    reactions = ((belief.value, *(row[report].value for report in Report)) for belief, row in REACTIONS.items())
    return {
        "causes": _table(("first condition that applies", "cause", "relaunched", "counted"), causes),
        "restart-groups": _restart_groups(),
        "reactions": _table(("stored", *(report.value for report in Report)), reactions),
        "recovery-limits": _table(("limit", "value"), _recovery_limits()),
    }


def _treatment(cause: Cause) -> list[str]:
    if cause is Cause.FINISHED:
        return ["no: it has finished", "no"]
    if cause is Cause.INVALID_TASK:
        return ["no: the job fails", "no"]
    return ["yes" if cause.is_retryable else "no", "yes" if cause.is_counted else "no"]


def _restart_groups() -> str:
    rows = (
        [
            row.strategy.value if row.strategy else "any",
            row.job.value,
            row.same.value,
            row.same.value,
            row.moved.value,
            row.why,
        ]
        for row in spec_index.RESTART_RULES
    )
    addresses = ["at its previous address", "at a new address with the same name", "at a new address"]
    return _table(["strategy", "lost", *addresses, "reason"], rows)


def _recovery_limits() -> Iterator[tuple[str, str]]:
    yield "a launch that lasts longer resets the back-off of its task", f"{recover.STEADY_SECONDS:g} s"
    yield "time for which a task waits for its previous address", f"{replacement.PREVIOUS_ADDRESS_WAIT:g} s"
    yield "addresses of one task that are avoided because another process listens there", f"{recover.MAX_BAD_ADDRESSES}"
    yield "time after another loss in which a `user error` is collateral", f"{reducer.COLLATERAL_SECONDS:g} s"
    yield "two equal errors within this time fail the job", f"{replacement.EARLY_SECONDS / 60:g} min"
    yield "failures on one agent within this time count once", f"{failure_causes.SAME_INCIDENT_SECONDS:g} s"
    yield "late launches of one task that do not fail the job", f"{startup_timeout.MAX_LATE_LAUNCHES}"
    yield "time after a connection to Mesos in which no launch is late", f"{startup_timeout.RECONNECT_GRACE:g} s"
    yield "shortest time until a launch without a status is lost", f"{reducer.MIN_LAUNCH_SECONDS:g} s"
    yield "time between two checks of a task's processes", f"{health.SAMPLE_INTERVAL:g} s"
    yield "a frozen task is reported after", f"{health.FREEZE_REPORTED_AFTER:g} s"
    yield "a training without progress is reported after", f"{SILENCE:g} s"
    yield "a launch that may still run is remembered for", f"{reconcile.MAX_ABANDONED_AGE / 86400:g} days"
    yield "its status is requested every", f"{reconcile.ABANDONED_INTERVAL:g} s"
    yield "an older program that ends later after the new one is recognised", f"{CLOSING_SECONDS:g} s"
    yield "shortest time between two subscriptions after refused calls", f"{RESUBSCRIBE_INTERVAL:g} s"
    yield "calls in a row without an answer that lead to a new subscription", f"{MAX_UNANSWERED}"
    yield "calls that can wait", f"{MAX_CALLS:,}"


# commands


def command_tables() -> Mapping[str, str]:
    """Return the table of the exit codes that the help of commands describes."""
    names: dict[str, list[str]] = {}
    for words, command in commands(cli):
        if codes := exit_codes(command):
            names.setdefault(codes, []).append(f"`{' '.join(words)}`")
    rows = sorted((", ".join(same), codes) for codes, same in names.items())
    return {"exit-codes": _table(("command", "exit code"), [("every command", exit_codes(cli)), *rows])}


def commands(group: click.Group, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Yield the words and the command, for each command below a group that help shows."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from commands(command, (*words, name))
        if command is not None and not command.hidden:
            yield (*words, name), command


def exit_codes(command: click.Command) -> str:
    """Return the exit codes that the help of a command describes; empty: none."""
    match = re.search(r"Exit code: (.+?)\.(?:\n\n|$)", inspect.cleandoc(command.help or ""), re.DOTALL)
    return " ".join(match[1].split()) if match else ""


# migration


#: Arguments of TonY's command line, which are not in tony.xml.
TONY_ARGUMENTS = (
    Row("--executes, --task_params", ("service.command",), "`convert --command 'python train.py --steps 1000'`"),
    Row("--src_dir", ("service.job_url",), "pack the folder as zip or tgz and set the address of this archive"),
    Row("--python_venv, --python_binary_path", ("service.python",), "a path on the agents, or runtime:NAME"),
    Row("--container_env, --shell_env", ("service.environment",), ""),
    Row("--hdfs_classpath", (), tony.OF_HADOOP),
)
#: Options of beta-tensorflow that have changed; all other options keep name, type and default.
BETA_ROWS = (
    Row("ps", ("parameter_server.count",), "former name of the section, before the first release"),
    *(Row(f"parameter_server.{name}, worker.{name}, gpu_worker.{name}", (), why) for name, why in beta.IGNORED.items()),
)


def migration_tables() -> Mapping[str, str]:
    """Return the tables in Markdown by name."""
    prefixes = (Row(f"{prefix}*", (), why) for prefix, why in tony.PREFIXES.items())
    obsolete = ((f"`{option}`", why) for option in OPTIONS if (why := option.metadata("obsolete")))
    jobs = (Row(f"tony.JOB.{row.source}", row.to, row.note) for row in tony.JOB_ROWS)
    return {
        "tfjob": _mapping(tfjob.ROWS),
        "tfjob-older": _mapping(tfjob.OLDER_ROWS),
        "replica": _mapping(pod.ROWS),
        "tony": _mapping(tony.ROWS),
        "tony-job": _mapping(jobs),
        "tony-rest": _mapping(prefixes),
        "tony-arguments": _mapping(TONY_ARGUMENTS),
        "beta": _mapping(BETA_ROWS),
        "beta-obsolete": _table(("option", "why it has no effect"), obsolete),
    }


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
