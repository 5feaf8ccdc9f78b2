"""The result of a run, for people and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mesos_local import LocalCluster
from tf_scheduler.api.glance import Overview, TaskRow
from tf_scheduler.errors import JobError
from tf_scheduler.model.ids import TaskId, name_of
from tf_scheduler.model.spec import ServiceSpec
from tf_scheduler.model.state import Verdict
from tf_scheduler.model.task import TaskState

from .folders import RunFolder
from .follow import Watched, sandbox_of
from .words import Words

#: Most launches before its last one of which a task's output is kept.
_EARLIER = 10
#: Of the error output of a task that failed.
_ERROR_LINES = 5
#: Ends that need no explanation.
_WELL = (TaskState.FINISHED.spoken, TaskState.KILLED.spoken)

Report = dict[str, Any]


def report(
    watched: Watched, spec: ServiceSpec, cluster: LocalCluster, folder: RunFolder, seconds: float, words: Words
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
    return "\n".join(_lines(found))


def _lines(found: Report) -> Iterator[str]:
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


def _outcome(watched: Watched) -> dict[str, str]:
    seen, trouble = watched.seen, watched.trouble
    if seen is not None and seen.verdict and (seen.verdict == Verdict.SUCCEEDED.value or not trouble):
        reason = watched.asked if watched.asked and seen.verdict == Verdict.STOPPED.value else seen.reason
        return {"state": seen.verdict, "reason": f"{reason} ({trouble})" if trouble else reason}
    if seen is not None and seen.refused:
        return {"state": "refused", "reason": seen.refused}
    stopped = watched.asked or (seen is not None and seen.verdict)
    return {"state": Verdict.STOPPED.value if stopped else Verdict.FAILED.value, "reason": trouble}


def _task(seen: Overview, task: TaskRow, cluster: LocalCluster, folder: RunFolder, words: Words) -> Report:
    sandbox = sandbox_of(cluster, seen, task)
    return {
        "name": task.name,
        "task_id": task.id,
        "state": task.state,
        "message": task.message,
        "agent": task.hostname,
        "address": task.address,
        "generation": task.generation,
        "last_lines": [] if sandbox is None else _last_words(seen, task, sandbox, words),
        "logs": None if sandbox is None else _kept(task.name, sandbox, folder),
        "earlier_logs": _earlier(seen, task, cluster, folder),
    }


def _last_words(seen: Overview, task: TaskRow, sandbox: Path, words: Words) -> list[str]:
    """Of a task that failed, the end of its error output; of the leader its last line: mostly the result.

    Where the task is not quoted, what its executor says of that output, which masks it.
    """
    if not task.live and task.state not in _WELL:
        return words.last(task.name, sandbox / "stderr", _ERROR_LINES) if words.knows(task.name) else [task.message]
    return words.last(task.name, sandbox / "stdout", 1) if task.name == seen.leader else []


def _earlier(seen: Overview, task: TaskRow, cluster: LocalCluster, folder: RunFolder) -> list[str]:
    """Of launches before the last: kept as `worker-0.1` and so on. Of many the first and the latest."""
    every = cluster.sandboxes(seen.framework_id or "none").items()
    found = [sandbox for id_, sandbox in every if id_ != task.executor_id and name_of(TaskId(id_)) == task.name]
    numbered = list(enumerate(found, 1))
    chosen = [*numbered[:1], *numbered[1:][1 - _EARLIER :]]
    kept = (_kept(f"{task.name}.{number}", sandbox, folder) for number, sandbox in chosen)
    return [place for place in kept if place]


def _kept(name: str, sandbox: Path, folder: RunFolder) -> str | None:
    try:
        kept: Path | None = folder.keep_logs(name, sandbox)
    except OSError as error:
        return f"not kept: {error.strerror}"
    return str(kept) if kept else None


def exit_code(found: Mapping[str, Any]) -> int:
    """0 for success, else 1."""
    return 0 if found["state"] == Verdict.SUCCEEDED.value else 1
