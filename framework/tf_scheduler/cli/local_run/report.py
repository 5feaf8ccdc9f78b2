"""Report of a local run, its entry in the history, and its HTML page."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

from dcos_command.command import echo
from mesos_local.agents import AgentSpec
from mesos_local.cluster import LocalCluster
from mesos_local.host import ProcessId
from tf_executor.contract.reports import Progress, describe_progress
from tf_executor.contract.states import TaskState, Tone, Verdict, warning_of
from tf_executor.contract.text import format_duration, format_memory_use, format_number, format_rate
from tf_executor.user import storage
from tf_scheduler.api.views.overview import Overview, TaskRow
from tf_scheduler.cli.common.folders import (
    LOG_FILES,
    RunFolder,
    checkpoints_in,
    folder_size,
    kept_files,
    name_and_size,
    short_path,
)
from tf_scheduler.cli.common.output import LAUNCHER_LINES, write_page
from tf_scheduler.cli.common.past_runs import environment_of, run_database, share_run
from tf_scheduler.errors import JobError
from tf_scheduler.history.compare import run_results
from tf_scheduler.history.model import RUNNING, RecordedLaunch, Run
from tf_scheduler.history.record import read_recording, service_run
from tf_scheduler.model.ids import TaskId, name_of
from tf_scheduler.model.spec import ServiceSpec
from tf_scheduler.model.task import is_own_cause
from tf_scheduler.options.load import resolve
from tf_scheduler.options.schema.document import changed_options, mask_options
from tf_scheduler.report import render_page

from .follow import FollowResult, OutputRedactor, sandbox_of

#: Maximum number of launches before the last one whose output is kept.
_MAX_EARLIER_LOGS = 10
#: Seconds in which a program that ends without a step, a server or a file has apparently trained nothing.
_AT_ONCE = 5.0
_DOUBT = f"apparently nothing was trained (no step, no server and no file in {_AT_ONCE:g} s)"
#: Lines of the error output of a failed task.
_ERROR_LINES = 5
#: Lines of the error output in which a traceback is searched.
_TRACEBACK_LINES = 1000
#: Between a failure and its remedy in messages of the executor, and a place in a program.
#: Of the executor's message about a task that did not stop in time.
_KILLED = " it was killed after "
_HINT, _PLACE = "; hint: ", re.compile(r"\((\S+):(\d+)\)")
#: Names in one line of the summary.
_MAX_LISTED = 5
#: States of launches that count as failures.
_FAILED_STATES = tuple(state.label for state in TaskState if state.has_ended and state.tone is Tone.BAD)
#: States that need no explanation.
_EXPECTED_STATES = (TaskState.FINISHED.label, TaskState.KILLED.label)

Report = dict[str, Any]


# --- history


def start_run(
    document: Mapping[str, Any], folder: RunFolder, agents: Iterable[AgentSpec], submitted: float, note: str
) -> Run:
    """Store a starting run, so that it is listed even if this process is killed."""
    options, process = resolve(document), ProcessId.current()
    masked = mask_options(options)
    run = Run(
        id=folder.path.name,
        service=options["service"]["name"],
        state=RUNNING,
        reason="",
        submitted=submitted,
        seconds=0.0,
        folder=str(folder.path),
        options=changed_options(masked, options),
        resolved=masked,
        agents={agent.hostname: _agent_text(agent) for agent in agents},
        note=note,
        process=f"{process.pid}:{process.start_time}",
    )
    with suppress(JobError, OSError):
        run_database().runs()  # stores the ends of killed runs, for the page of this one
        run_database().save(run)
    return replace(run, environment=environment_of(masked))


def finish_run(run: Run, report: Report, page: Path | None) -> None:
    """Store a finished run and write its page; print errors instead of raising them."""
    run = read_recording(RunFolder(Path(run.folder)).recording, run)
    result = {name: report[name] for name in ("state", "reason", "seconds")}
    run = replace(run, process="", **result)
    share_run(run)
    try:
        run_database().save(run)
    except (JobError, OSError) as error:
        echo(f"the run cannot be added to the history: {error}", err=True)
    try:
        if page is not None:
            write_page(render_page(run), page)
    except JobError as error:
        echo(f"{error}", err=True)


def _agent_text(agent: AgentSpec) -> str:
    attributes = "; ".join(f"{name}: {value}" for name, value in agent.attribute_pairs().items())
    resources = ", ".join(f"{name} {value}" for name, value in agent.resource_pairs().items())
    return "; ".join(part for part in (resources, attributes) if part)


# --- report


def build_report(
    result: FollowResult,
    spec: ServiceSpec,
    cluster: LocalCluster,
    folder: RunFolder,
    seconds: float,
    redactor: OutputRedactor,
) -> Report:
    """Return the report of a run, and keep the logs of its tasks in its folder."""
    overview, outcome, recorded = result.overview, _outcome(result), read_recording(folder.recording)
    written_to = overview.checkpoint_dir if overview else str(folder.checkpoints)
    # A task has a folder of its own whose files the executor stores in a URL.
    boxes = [sandbox_of(cluster, overview, task) for task in overview.tasks] if overview and "://" in written_to else []
    written = [{"name": path.name, "bytes": folder_size(path)} for path in checkpoints_in(written_to)]
    launches = {each.id for each in recorded.launches}
    return {
        "service": spec.name,
        **outcome,
        "warning": warning_of(outcome["reason"]),
        "failure": _failure(overview, outcome, cluster, recorded, redactor) if overview else None,
        "seconds": round(seconds, 1),
        "framework_id": overview.framework_id if overview else None,
        "run": str(folder.path),
        "checkpoints": overview.checkpoint_dir if overview else spec.checkpoint_dir or str(folder.checkpoints),
        "pending": {name: list(reasons) for name, reasons in result.pending.items()},
        "progress": overview.trainer.progress if overview is not None and overview.trainer is not None else "",
        **_numbers(folder, spec.name),
        "leader": overview.leader if overview is not None else None,
        "total": overview.trainer.total if overview is not None and overview.trainer is not None else None,
        "epochs": overview.trainer.epochs if overview is not None and overview.trainer is not None else None,
        "written": written,
        "files": kept_files([Path(written_to), *(box / storage.LOCAL for box in boxes if box)], launches),
        "memory_enforced": spec.executor.enforces_memory or cluster.has_containers,
        "notices": list(overview.notices) if overview else [],
        "untrained": not written and _seems_untrained(overview, cluster, recorded, folder.recording),
        "tasks": [_task(overview, task, cluster, folder, redactor) for task in overview.tasks] if overview else [],
    }


def _numbers(folder: RunFolder, service: str) -> Report:
    """Return last and best values as in the history, and why tasks restarted."""
    try:
        run = service_run(folder.recording, service, {})
    except JobError:  # nothing was launched
        return {"results": {}, "restarts": []}
    own = ("state", "warning", "seconds")
    return {
        "results": {name: value for name, value in run_results(run).items() if name not in own},
        "restarts": [_restart(run, each) for each in run.restarted],
    }


def _restart(run: Run, launch: RecordedLaunch) -> Report:
    """Return why a launch was replaced, its last step, and where it continued."""
    last, task = _last_report(run, launch), launch.task if launch.task in run.curves else run.leader
    # With parameter servers, the leader continues while a worker restarts.
    ended = launch.ended or launch.launched
    again = next((each for each in run.launches if each.task == task and each.launched > ended), None)
    after = (item for item in run.curves.get(task or "", ()) if again and item.time >= again.launched)
    now = next((item for item in after if item.first_step is not None), Progress())
    return {
        "task": launch.task,
        "why": launch.replaced,
        "step": last.step,
        "continuation": now.describe_continuation(last.saved_step),
        "is_lost": bool(last.step and again and (now.first_step or 0) < last.step),
        "has_begun_again": now.has_begun_again(last.saved_step),
    }


def _seems_untrained(overview: Overview | None, cluster: LocalCluster, recorded: Run, recording: Path) -> bool:
    """Whether the leader soon ended with code 0, without progress, server or files."""
    leader = overview.task(overview.leader) if overview is not None else None
    if overview is None or leader is None or overview.verdict != Verdict.SUCCEEDED.value or overview.trainer != leader:
        return False
    launch = next((launch for launch in recorded.launches if launch.id == leader.id), None)
    if launch is None or launch.running is None or launch.ended is None or leader.progress:
        return False
    has_server = '"healthy":true' in recording.read_text(errors="replace")
    sandbox = sandbox_of(cluster, overview, leader)
    is_short = launch.ended - launch.running < _AT_ONCE
    return is_short and not has_server and not (sandbox is not None and _has_files(sandbox, launch.running))


def _has_files(sandbox: Path, since: float) -> bool:
    """Whether the program has written a file; libraries write into hidden folders."""
    # The executor writes its package just before the program starts; the status RUNNING arrives later.
    package = next(sandbox.rglob("tf_executor/__init__.py"), None)
    since = since if package is None else package.stat().st_mtime
    files = (path for path in sandbox.rglob("*") if path.is_file() and path.name not in LOG_FILES)
    return any(
        path.stat().st_mtime > since and path.suffix != ".pyc" and "/." not in str(path.relative_to(sandbox.parent))
        for path in files
    )


def _outcome(result: FollowResult) -> dict[str, str]:
    overview, trouble = result.overview, result.trouble
    if overview is not None and overview.verdict and (overview.verdict == Verdict.SUCCEEDED.value or not trouble):
        reason = overview.reason
        if result.stop_reason and overview.verdict == Verdict.STOPPED.value:
            reason = result.stop_reason
        return {"state": overview.verdict, "reason": f"{reason} ({trouble})" if trouble else reason}
    if overview is not None and overview.refused:
        return {"state": "refused", "reason": overview.refused}
    stopped = result.stop_reason or (overview is not None and overview.verdict)
    return {"state": Verdict.STOPPED.value if stopped else Verdict.FAILED.value, "reason": trouble}


def _failure(
    overview: Overview, outcome: Mapping[str, str], cluster: LocalCluster, recorded: Run, redactor: OutputRedactor
) -> Report | None:
    """Return the task failure that has ended the job; None if no failure has."""
    reason = outcome["reason"]
    for task in overview.tasks if outcome["state"] == Verdict.FAILED.value else ():
        starts = (f"{task.name}: {task.message}", f"{task.name} on {task.hostname} failed: {task.message}")
        start = next((start for start in starts if reason.startswith(start)), "")
        if not start or not task.message:
            continue
        cause, _, hint = start.partition(_HINT)
        sandbox = sandbox_of(cluster, overview, task)
        lines = [] if sandbox is None else redactor.last(task.name, sandbox / "stderr", _TRACEBACK_LINES)
        return {
            "task": task.name,
            "cause": cause,
            "hint": hint,
            "steps": _failed_steps(task.name, recorded),
            "why": reason[len(start) :].removeprefix("; "),
            "where": _where(cause, lines),
        }
    return None


def _failed_steps(task: str, recorded: Run) -> list[int | None]:
    """Return the last step of each launch that failed by itself; None: unknown."""
    failed = [each for each in recorded.launches if each.task == task and each.state in _FAILED_STATES]
    return [_last_report(recorded, each).step for each in failed if not each.replaced or is_own_cause(each.replaced)]


def _last_report(recorded: Run, launch: RecordedLaunch) -> Progress:
    """Return the last report during a launch: its own, else that of the leading task."""
    points = recorded.curves.get(launch.task) or recorded.curves.get(recorded.leader or "", ())
    during = (item for item in reversed(points) if launch.launched <= item.time <= (launch.ended or 0.0))
    return next(during, Progress())


def _where(cause: str, lines: Sequence[str]) -> str:
    """Return a line such as `train.py:31 in step: raise ValueError()`."""
    place = _PLACE.search(cause)
    if place is None:
        return ""
    frame = re.compile(rf'  File ".*{re.escape(place[1])}", line {place[2]}, in (.+)')
    number, match = next(((n, match) for n, line in enumerate(lines) if (match := frame.match(line))), (0, None))
    source = lines[number + 1].strip() if match and number + 1 < len(lines) else ""
    return f"{place[1]}:{place[2]} in {match[1]}: {source}" if match and source else ""


def _task(
    overview: Overview, task: TaskRow, cluster: LocalCluster, folder: RunFolder, redactor: OutputRedactor
) -> Report:
    sandbox = sandbox_of(cluster, overview, task)
    return {
        "name": task.name,
        "task_id": task.id,
        "state": task.state,
        "message": task.message,
        "agent": task.hostname,
        "address": task.address,
        "memory_mb": task.memory_mb,
        "memory_peak_mb": task.memory_peak_mb,
        "generation": task.generation,
        "last_lines": [] if sandbox is None else _last_lines(overview, task, sandbox, redactor),
        "logs": None if sandbox is None else _keep_logs(task.name, sandbox, folder),
        "earlier_logs": _earlier_logs(overview, task, cluster, folder),
    }


def _last_lines(overview: Overview, task: TaskRow, sandbox: Path, redactor: OutputRedactor) -> list[str]:
    """Return a failed task's last error output, or the leader's last line.

    For a task with unknown secrets, return the message of its executor, which redacts them.
    """
    if not task.live and task.state not in _EXPECTED_STATES:
        known = redactor.knows(task.name)
        lines = redactor.last(task.name, sandbox / "stderr", _ERROR_LINES) if known else [task.message]
        return [line.replace(f"{sandbox.resolve()}/", "") for line in lines if not line.startswith(LAUNCHER_LINES)]
    return redactor.last(task.name, sandbox / "stdout", 1) if task.name == overview.leader else []


def _earlier_logs(overview: Overview, task: TaskRow, cluster: LocalCluster, folder: RunFolder) -> list[str]:
    """Keep logs of the first and latest earlier launches as `worker-0.1` and so on."""
    every = cluster.sandboxes(overview.framework_id or "none").items()
    earlier = [sandbox for id_, sandbox in every if id_ != task.executor_id and name_of(TaskId(id_)) == task.name]
    numbered = list(enumerate(earlier, 1))
    selected = [*numbered[:1], *numbered[1:][1 - _MAX_EARLIER_LOGS :]]
    paths = (_keep_logs(f"{task.name}.{number}", sandbox, folder) for number, sandbox in selected)
    return [path for path in paths if path]


def _keep_logs(name: str, sandbox: Path, folder: RunFolder) -> str | None:
    try:
        path = folder.keep_logs(name, sandbox)
    except OSError as error:
        return f"not kept: {error.strerror}"
    return str(path) if path else None


def summary_lines(report: Report) -> Iterator[str]:
    """Yield the report as a few lines for people."""
    failure = report["failure"]
    when = f"{'after' if report['state'] == Verdict.STOPPED.value else 'in'} {format_duration(report['seconds'])}"
    cause = failure["cause"] if failure else report["reason"]
    yield f"{report['service']} {report['state']} {when}{', but ' + _DOUBT if report['untrained'] else ''}: {cause}"
    yield from _failure_lines(failure) if failure else ()
    yield from _training_lines(report)
    for task in report["tasks"]:
        if failure and failure["where"] and f"{failure['task']}: {task['message']}".startswith(failure["cause"]):
            continue  # the failed task, and peers that have failed in the same way
        if task["state"] not in _EXPECTED_STATES:
            yield f"  {task['name']}: {task['state']} on {task['agent']}"
        yield from (f"    {task['name']} | {line}" for line in task["last_lines"])
    for name, reasons in report["pending"].items():
        yield from (f"  {name} was pending:", *(f"    {reason}" for reason in reasons))
    peaks = [(task["name"], task["memory_peak_mb"], task["memory_mb"]) for task in report["tasks"]]
    if used := [f"{name} {format_memory_use(peak, mem)}" for name, peak, mem in peaks if peak is not None]:
        enforced = report["memory_enforced"]
        yield f"  memory    {_listed(used)} at most{'' if enforced else ' (not enforced on this machine)'}"
        if (over := [name for name, peak, mem in peaks if (peak or 0.0) > mem]) and not enforced:
            yield f"  hint      {_listed(over)}: a cluster kills tasks above mem, as does local run --enforce-memory"
    if stopped := [task["name"] for task in report["tasks"] if task["state"] == TaskState.KILLED.label]:
        yield f"  stopped   {_listed(stopped)}{' (no longer needed)' * (report['state'] == Verdict.SUCCEEDED.value)}"
    kills = ((task["name"], task["message"].partition(_KILLED)) for task in report["tasks"])
    yield from (f"  killed    {name}:{how}{rest}" for name, (_, how, rest) in kills if "wrote" in rest)
    yield from (f"  warning   {notice}" for notice in report["notices"])
    names = [*map(name_and_size, report["written"])]
    is_url, folder = "://" in report["checkpoints"], short_path(report["checkpoints"])
    written = f"written   {_listed(names) or 'nothing'} in CHECKPOINT_DIR, {folder}"
    yield f"  storage   CHECKPOINT_DIR is {folder}" if is_url else f"  {written}"
    for (task, place), found in groupby(report["files"]["kept"], key=lambda item: (item["task"], item["folder"])):
        yield f"  files     {_listed([*map(name_and_size, found)])} of {task} in {short_path(place)}"
    for (task, why), found in groupby(report["files"]["left"], key=lambda item: (item["task"], item["why"])):
        yield f"  not kept  {_listed([*map(name_and_size, found)])} of {task}: {why}"
    lost = [item for item in report["restarts"] if item["is_lost"]]
    has_saved = names or is_url
    if lost and (not has_saved or any(item["has_begun_again"] for item in lost)):
        page = "docs/how-to/recipes.md#save-and-resume-checkpoints"
        yield f"  hint      restarts lost all steps: {'restore' if has_saved else 'save'} checkpoints, {page}"
    yield from _places(report)


def _training_lines(report: Report) -> Iterator[str]:
    """Yield the last values with the median speed, and why tasks restarted."""
    results = report["results"]
    if results.get("last_step", results.get("last_epoch")) is not None:
        last = {name.removeprefix("last_"): value for name, value in results.items() if name.startswith("last_")}
        own = {name: last.pop(name) for name in ("step", "epoch", "loss") if name in last}
        totals = {name: report[name] for name in ("total", "epochs")}
        task = {**own, **totals, "metrics": last, "nan_since": results.get("loss_nan_since")}
        speeds = ((results.get(f"median_{unit}_per_second"), unit) for unit in ("examples", "steps"))
        medians = [f"; {format_rate(speed, unit)} (median)" for speed, unit in speeds if speed is not None]
        yield f"  last      {describe_progress(Progress.from_json(task))}{''.join(medians)}"
    elif report["progress"]:
        yield f"  last      {report['progress']}"
    restarts, causes = report["restarts"], [(report["failure"] or {}).get("cause", "")]
    for number, restart in enumerate(restarts[:_MAX_LISTED], 1):
        why, of = restart["why"], f" of {len(restarts)}" if len(restarts) > 1 else ""
        name = "" if why.startswith(restart["task"]) else f"{restart['task']}: "
        text = f"{restart['task']}: the same" if any(why in one or one in why for one in causes if one) else name + why
        causes.append(why)
        at = "" if restart["step"] is None else f", at step {format_number(restart['step'])}"
        continuation = f"; {restart['continuation']}" if restart["continuation"] else ""
        yield f"  restart   {number}{of}: {text}{at}{continuation}"


def _places(report: Report) -> Iterator[str]:
    """Yield where the output is, and what to do next."""
    failure, run = report["failure"], Path(report["run"]).name
    names = [failure["task"]] if failure else [task["name"] for task in report["tasks"]]
    earlier = [f"{task['name']}.1" for task in report["tasks"] if task["name"] in names and task["earlier_logs"]]
    first = f" (first launch: {_listed(earlier)})" if earlier else ""
    yield f"  logs      {short_path(report['run'])}/logs{'/' + names[0] if failure else ''}{first}"
    yield f"next: dcos-tensorflow history show {run} --report page.html"
    if name := names[0] if failure else report["leader"]:
        yield f"      dcos-tensorflow logs --run {run} {name}"


def _failure_lines(failure: Report) -> Iterator[str]:
    if failure["hint"]:
        yield f"  hint      {failure['hint']}"
    count, steps = len(failure["steps"]), [format_number(step) for step in failure["steps"] if step is not None]
    at = f", at step{'s' * (len(steps) > 1)} {_listed(steps)}" if steps else ""
    yield f"  failed    {count} time{'s' * (count != 1)}{at}{'; ' * bool(failure['why'])}{failure['why']}"
    if failure["where"]:
        yield f"  where     {failure['where']}"


def _listed(names: list[str]) -> str:
    few = ", ".join(names[:_MAX_LISTED])
    return few if len(names) <= _MAX_LISTED else f"{few} and {len(names) - _MAX_LISTED} more"
