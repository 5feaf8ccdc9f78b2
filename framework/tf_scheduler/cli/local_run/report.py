"""Keep local runs in the history, and draw their pages."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import click

from mesos_local.agents import AgentSpec
from mesos_local.cluster import LocalCluster
from mesos_local.host.process import ProcessId
from mesos_local.libmesos.native import VERSION as MESOS
from tf_scheduler import __version__
from tf_scheduler.api.views.overview import Overview, TaskRow
from tf_scheduler.cli.common.folders import RunFolder, state_home
from tf_scheduler.cli.common.options_file import changed_options
from tf_scheduler.cli.common.output import OutputRedactor
from tf_scheduler.errors import JobError
from tf_scheduler.history.compare import describe_environment
from tf_scheduler.history.database import RunDatabase
from tf_scheduler.history.model import Run
from tf_scheduler.history.record import RUNNING, read_recording, service_run
from tf_scheduler.model.ids import TaskId, name_of
from tf_scheduler.model.spec import ServiceSpec
from tf_scheduler.model.state import Verdict
from tf_scheduler.model.task import TaskState
from tf_scheduler.options.load import resolve
from tf_scheduler.options.schema.document import mask_options
from tf_scheduler.options.schema.jobs import JOBS
from tf_scheduler.report.page import render_page as page_of

from .follow import FollowResult, sandbox_of

#: State of a run that nobody follows any more, though it had no result.
LOST = "lost"
_LOST_REASON = "it ended without a result: its `local run` is gone, killed or with the machine"


def run_database() -> RunDatabase:
    """Of this user."""
    return RunDatabase(state_home() / "history.db", now=_refreshed)


def start_run(document: Mapping[str, Any], folder: RunFolder, agents: Iterable[AgentSpec], submitted: float) -> None:
    """Keep a run that begins, so that it is known whatever becomes of us. What goes wrong is told at its end."""
    with suppress(JobError, OSError):
        run_database().save(_new_run(document, folder, agents, submitted))


def _new_run(document: Mapping[str, Any], folder: RunFolder, agents: Iterable[AgentSpec], submitted: float) -> Run:
    options, me = resolve(document), ProcessId.of(os.getpid())
    shown = mask_options(options)
    return Run(
        id=folder.path.name,
        service=options["service"]["name"],
        state=RUNNING,
        reason="",
        submitted=submitted,
        seconds=0.0,
        folder=str(folder.path),
        options=changed_options(shown, options),
        resolved=shown,
        agents={agent.hostname: _agent_text(agent) for agent in agents},
        process="" if me is None else f"{me.pid}:{me.start_time}",
    )


def _refreshed(run: Run) -> Run:
    """A run that went on when it was kept: what its scheduler has recorded since, and whether it still goes on."""
    if not run.process:
        return run
    pid, _, start_time = run.process.partition(":")
    goes_on = ProcessId(int(pid), int(start_time)).alive()
    run = run if goes_on else replace(run, state=LOST, reason=_LOST_REASON)
    try:
        found = service_run(RunFolder(Path(run.folder)).recording, run.service, run.options)
    except JobError:  # nothing was launched
        return run
    if not goes_on and found.state != RUNNING:
        run = replace(run, state=found.state, reason=found.reason)
    return replace(
        run,
        seconds=round((time.time() if goes_on else found.submitted + found.seconds) - run.submitted, 3),
        launches=found.launches,
        curves=found.curves,
        unit=found.unit,
        warnings=found.warnings,
    )


def finish_run(
    document: Mapping[str, Any],
    found: Mapping[str, Any],
    folder: RunFolder,
    agents: Iterable[AgentSpec],
    submitted: float,
    surroundings: Mapping[str, str],
    page: Path | None,
) -> None:
    """Keep a run; what goes wrong is told, and is no failure of the run.

    `document`: its options; `found`: its report; `submitted`: seconds since the epoch; `surroundings`:
    of `environment_of`; `page`: drawn there.
    """
    recorded = read_recording(folder.recording)
    run = replace(
        _new_run(document, folder, agents, submitted),
        state=found["state"],
        reason=found["reason"],
        seconds=found["seconds"],
        environment=surroundings,
        process="",
        launches=recorded.launches,
        curves=recorded.curves,
        unit=recorded.unit,
        warnings=recorded.warnings,
    )
    try:
        run_database().save(run)
    except (JobError, OSError) as error:
        click.echo(f"the run is not in the history: {error}", err=True)
    try:
        if page is not None:
            write_page(run, page)
    except JobError as error:
        click.echo(f"{error}", err=True)


def write_page(run: Run, page: Path) -> None:
    """Write the page of a run; `-` is standard output. Raise JobError when it cannot be written."""
    text = page_of(run)
    if str(page) == "-":
        click.echo(text, nl=False)
        return
    try:
        page.write_text(text, encoding="utf-8")
    except OSError as error:
        raise JobError(f"--report {page}: the page cannot be written there: {error.strerror}") from error


def environment_of(options: Mapping[str, Any]) -> dict[str, str]:
    """What else the result of a local run with these resolved options depends on, now."""
    return describe_environment(__version__, MESOS, _interpreters(options), _job_files(options))


def _interpreters(options: Mapping[str, Any]) -> Iterator[str]:
    own = options["service"]["python"] or sys.executable
    yield own
    yield from (options[job]["python"] or own for job in JOBS if options[job]["count"])


def _job_files(options: Mapping[str, Any]) -> Iterator[Path]:
    url = options["service"]["job_url"]
    if url.startswith("file://"):
        yield Path(unquote(url.removeprefix("file://")))


def _agent_text(agent: AgentSpec) -> str:
    attributes = "; ".join(f"{name}: {value}" for name, value in agent.attribute_pairs().items())
    resources = ", ".join(f"{name} {value}" for name, value in agent.resource_pairs().items())
    return "; ".join(part for part in (resources, attributes) if part)


# --- report
# The result of a run, for people and as JSON.


#: Most launches before its last one of which a task's output is kept.
_MAX_EARLIER_LOGS = 10
#: Of the error output of a task that failed.
_ERROR_LINES = 5
#: Ends that need no explanation.
_EXPECTED_ENDS = (TaskState.FINISHED.label, TaskState.KILLED.label)

Report = dict[str, Any]


def build_report(
    watched: FollowResult,
    spec: ServiceSpec,
    cluster: LocalCluster,
    folder: RunFolder,
    seconds: float,
    words: OutputRedactor,
) -> Report:
    """Everything worth keeping of a run; keeps the logs of its tasks in its folder. `words`: of tasks."""
    seen = watched.seen
    return {
        "service": spec.name,
        **_outcome(watched),
        "seconds": round(seconds, 1),
        "framework_id": seen.framework_id if seen else None,
        "run": str(folder.path),
        "checkpoints": seen.checkpoint_dir if seen else spec.checkpoint_dir or str(folder.checkpoints),
        "pending": {name: list(reasons) for name, reasons in watched.pending.items()},
        "tasks": [_task(seen, task, cluster, folder, words) for task in seen.tasks] if seen else [],
    }


def check_page(page: Path | None) -> None:
    """Raise JobError when the page of a run cannot be written there: who trains for hours should not hear it last."""
    if page is None:
        return
    if str(page) == "-":
        raise JobError("--report -: a page is a file: standard output has the result")
    new = not page.exists()
    try:
        page.open("ab").close()
        if new:
            page.unlink()
    except OSError as error:
        raise JobError(f"--report {page}: the page cannot be written there: {error.strerror}") from error


def summary(found: Report) -> str:
    """The same in a few lines."""
    return "\n".join(_summary_lines(found))


def _summary_lines(found: Report) -> Iterator[str]:
    yield f"{found['service']} {found['state']} after {found['seconds']} s: {found['reason']}"
    for task in found["tasks"]:
        yield f"  {task['name']}: {task['state']} on {task['agent']}"
        yield from (f"    | {line}" for line in task["last_lines"])
    for name, reasons in found["pending"].items():
        yield f"  {name} was pending:"
        yield from (f"    {reason}" for reason in reasons)
    again = [task["name"] for task in found["tasks"] if task["earlier_logs"]]
    more = f" (of the first launch of {again[0]}: {again[0]}.1)" if again else ""
    yield f"logs: {found['run']}/logs{more}"
    yield f"model and checkpoints: {found['checkpoints']}"


def _outcome(watched: FollowResult) -> dict[str, str]:
    seen, trouble = watched.seen, watched.trouble
    if seen is not None and seen.verdict and (seen.verdict == Verdict.SUCCEEDED.value or not trouble):
        reason = watched.asked if watched.asked and seen.verdict == Verdict.STOPPED.value else seen.reason
        return {"state": seen.verdict, "reason": f"{reason} ({trouble})" if trouble else reason}
    if seen is not None and seen.refused:
        return {"state": "refused", "reason": seen.refused}
    stopped = watched.asked or (seen is not None and seen.verdict)
    return {"state": Verdict.STOPPED.value if stopped else Verdict.FAILED.value, "reason": trouble}


def _task(seen: Overview, task: TaskRow, cluster: LocalCluster, folder: RunFolder, words: OutputRedactor) -> Report:
    sandbox = sandbox_of(cluster, seen, task)
    return {
        "name": task.name,
        "task_id": task.id,
        "state": task.state,
        "message": task.message,
        "agent": task.hostname,
        "address": task.address,
        "generation": task.generation,
        "last_lines": [] if sandbox is None else _last_lines(seen, task, sandbox, words),
        "logs": None if sandbox is None else _keep_logs(task.name, sandbox, folder),
        "earlier_logs": _earlier_logs(seen, task, cluster, folder),
    }


def _last_lines(seen: Overview, task: TaskRow, sandbox: Path, words: OutputRedactor) -> list[str]:
    """Of a task that failed, the end of its error output; of the leader its last line: mostly the result.

    Where the task is not quoted, what its executor says of that output, which masks it.
    """
    if not task.live and task.state not in _EXPECTED_ENDS:
        return words.last(task.name, sandbox / "stderr", _ERROR_LINES) if words.knows(task.name) else [task.message]
    return words.last(task.name, sandbox / "stdout", 1) if task.name == seen.leader else []


def _earlier_logs(seen: Overview, task: TaskRow, cluster: LocalCluster, folder: RunFolder) -> list[str]:
    """Of launches before the last: kept as `worker-0.1` and so on. Of many the first and the latest."""
    every = cluster.sandboxes(seen.framework_id or "none").items()
    found = [sandbox for id_, sandbox in every if id_ != task.executor_id and name_of(TaskId(id_)) == task.name]
    numbered = list(enumerate(found, 1))
    chosen = [*numbered[:1], *numbered[1:][1 - _MAX_EARLIER_LOGS :]]
    kept = (_keep_logs(f"{task.name}.{number}", sandbox, folder) for number, sandbox in chosen)
    return [place for place in kept if place]


def _keep_logs(name: str, sandbox: Path, folder: RunFolder) -> str | None:
    try:
        kept: Path | None = folder.keep_logs(name, sandbox)
    except OSError as error:
        return f"not kept: {error.strerror}"
    return str(kept) if kept else None


def exit_code(found: Mapping[str, Any]) -> int:
    """0 for success, else 1."""
    return 0 if found["state"] == Verdict.SUCCEEDED.value else 1
