"""Commands `logs`, `events` and `exec`: output of tasks, events of the service."""

from __future__ import annotations

import queue
import re
import sys
import threading
import time
from bisect import bisect_right
from dataclasses import dataclass
from typing import Any, Iterator, Mapping, Sequence

import click

from .client import ServiceClient, api_path
from .command import CommandCall, IntRange, LocalOption, argument, command, print_error
from .errors import CommandError, RefusedError, UnreachableError, UsageError
from .output import Line, Raw, Renderable, Screen, Table, Word, dim, local_time, remove_controls
from .plans import TASK, wait_for_start
from .transport import ServerSentEvent

_RETRY_SECONDS = 1.0
_MAX_RETRIES = 60  # a restarted scheduler answers within a minute
#: Bytes of a file that are shown by default, and that are searched for --tail and --since.
_LOG_BYTES, _MAX_LOG_BYTES = 65_536, 16 << 20
#: Suffix of the executor's index of an output file: lines `OFFSET UNIX_TIME`.
TIMES_SUFFIX = ".times"
_MAX_TAIL = 1_000_000
_DURATION = re.compile(r"(\d{1,9})([smhd]?)", re.ASCII)
_TIME = re.compile(r"(\d{1,15}) (\d{1,11}\.\d{1,6})", re.ASCII)
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}
_NOT_FOUND = 404
_DEFAULT_EVENTS, _MAX_EVENTS = 50, 1000  # the API's maximum


def follow_stream(
    service: ServiceClient, path: str, last_events: Sequence[str], **query: str | None
) -> Iterator[ServerSentEvent]:
    """Yield events up to one of `last_events`; resume an interrupted stream.

    Raise UnreachableError if the first request, or too many later requests in a row, get no answer.
    """
    last, failures = "", 0
    started = False
    while failures < _MAX_RETRIES:
        try:
            for event in service.events(path, last, **query):
                started, failures, last = True, 0, event.id or last
                yield event
                if event.name in last_events:
                    return
        except UnreachableError:
            if not started:
                raise
        failures += 1
        time.sleep(_RETRY_SECONDS)
    raise UnreachableError(f"{service.url} stopped answering")


# --- logs

#: A log: the API's answer, with the selected part of the data.
Log = Mapping[str, Any]


@dataclass(frozen=True)
class LogQuery:
    """Request of `logs`. `since`: age in seconds; `tail`: number of lines; None: all."""

    tasks: Sequence[str] = ()
    file: str = "stdout"
    since: float | None = None
    tail: int | None = None


def _seconds(text: str | None) -> float | None:
    """Parse the value of --since. Raise UsageError."""
    if text is None:
        return None
    match = _DURATION.fullmatch(text)
    if match is None:
        raise UsageError(f"--since: `{text}`: expected a number with s, m, h or d, such as 10m")
    return int(match[1]) * _UNITS[match[2]]


def _logs(service: ServiceClient, query: LogQuery) -> Any:
    """Return one task's log; for several tasks `logs`, and reasons in `missing`."""
    if len(query.tasks) == 1:
        return _log(service, query.tasks[0], query)
    logs, missing = [], {}
    for task in query.tasks or TASK.fetch(service, {}):
        try:
            log = _log(service, task, query)
        except RefusedError as error:
            if query.tasks:
                raise
            missing[task] = {"status": error.http_status, "message": str(error)}
        else:
            logs.append({**log, "times": _times(service, task, query.file)})
    return {"logs": logs, "missing": missing}


def _log(service: ServiceClient, task: str, query: LogQuery) -> Log:
    """Return the part of a task's file that --since and --tail select, or its end."""
    path, file, since, tail = api_path("tasks", task, "logs"), query.file, query.since, query.tail
    log: Log = service.get(path, file=file, length=str(_LOG_BYTES))
    if since is not None:
        times = _times(service, task, file)
        if not times and log["size"]:
            raise CommandError(f"--since: the executor has not recorded when it wrote {file} of {task}")
        recent = (offset for offset, written in times if written >= time.time() - since)
        log = _read(service, path, file, max(next(recent, log["size"]), log["size"] - _MAX_LOG_BYTES), log)
    if tail is None:
        return log
    span = log["size"] - log["offset"]
    # The first line may lack its start.
    while since is None and log["offset"] > 0 and log["data"][:-1].count("\n") < tail and span < _MAX_LOG_BYTES:
        span *= 8
        log = _read(service, path, file, max(0, log["size"] - span), log)
    return _last_lines(log, tail)


def last_line(service: ServiceClient, task: str) -> str:
    """Return the last line of a task's output, else of its errors.

    Empty if neither can be read.
    """
    for file in ("stdout", "stderr"):
        try:
            if text := _log(service, task, LogQuery(file=file, tail=1))["data"].strip():
                return str(text)
        except (RefusedError, UnreachableError):  # such as an agent that does not answer
            continue
    return ""


def _read(service: ServiceClient, path: str, file: str, offset: int, log: Log) -> Log:
    """Read a file from `offset` to its size in `log`, up to 64 KB per request."""
    data, at = [], offset
    while at < log["size"]:
        piece = service.get(path, file=file, offset=str(at), length=str(_LOG_BYTES))
        if piece["next"] <= at or piece.get("id") != log.get("id"):
            break
        data.append(piece["data"])
        at = piece["next"]
    return {**log, "offset": offset, "data": "".join(data), "next": at}


def _last_lines(log: Log, count: int) -> Log:
    data, start = log["data"], len(log["data"])
    if count:
        start -= data.endswith("\n")
        for _ in range(count):
            start = data.rfind("\n", 0, start)
            if start < 0:
                return log
        start += 1
    return {**log, "offset": log["offset"] + len(data[:start].encode()), "data": data[start:]}


def _times(service: ServiceClient, task: str, file: str) -> list[tuple[int, float]]:
    """Return pairs of file offset and time when it was written; empty if unknown."""
    try:
        index = service.get(api_path("tasks", task, "logs"), file=file + TIMES_SUFFIX, length=str(_LOG_BYTES))
    except RefusedError:  # not an output file
        return []
    lines = index["data"].split("\n")[1 if index["offset"] else 0 :]
    times: list[tuple[int, float]] = []
    for match in filter(None, map(_TIME.fullmatch, lines)):
        offset, written = int(match[1]), float(match[2])
        if not times or offset > times[-1][0]:
            times.append((offset, max(written, times[-1][1]) if times else written))
    return times


def _merged(logs: Sequence[Log]) -> Iterator[tuple[str, str]]:
    """Return (task, text) of all lines by time; at equal times grouped by task."""
    lines = []
    for log in logs:
        offsets, at = [offset for offset, _ in log["times"]], log["offset"]
        for text in log["data"].split("\n")[: -1 if log["data"].endswith("\n") else None] if log["data"] else ():
            number = bisect_right(offsets, at)
            lines.append((log["times"][max(0, number - 1)][1] if offsets else 0.0, log["task"], text))
            at += len(text.encode()) + 1
    lines.sort(key=lambda line: line[0])
    return ((task, text) for _, task, text in lines)


def prefixed(task: str, text: str) -> str:
    """Return a line such as `worker-0 | step 5`, without colours and overwritten text."""
    return f"{task} | {remove_controls(text.rstrip(chr(13)).rpartition(chr(13))[2])}"


def _show_log(answer: Mapping[str, Any]) -> Renderable:
    text = answer["data"]
    return (Raw(text if text.endswith("\n") else text + "\n"),) if text else ()


def _show_logs(answer: Mapping[str, Any]) -> Iterator[Any]:
    yield from (Raw(prefixed(task, text) + "\n") for task, text in _merged(answer["logs"]))
    for task, problem in answer["missing"].items():
        if problem["status"] != _NOT_FOUND:
            yield Line((dim(f"--- {task}: {problem['message']} ---"),))


def _follow_log(service: ServiceClient, query: LogQuery) -> Iterator[Any]:
    if len(query.tasks) == 1:
        yield from _follow_one(service, query)
        return
    answer = _logs(service, query)
    for task, text in _merged(answer["logs"]):
        yield {"event": "log", "task": task, "data": text + "\n"}
    starts = {log["task"]: log["next"] for log in answer["logs"]}
    yield from _follow_all(service, {**dict.fromkeys(answer["missing"], None), **starts}, query.file)


def _follow_one(service: ServiceClient, query: LogQuery) -> Iterator[Any]:
    (task,), start = query.tasks, 0
    try:
        log = _logs(service, query)
    except RefusedError as error:
        if error.http_status != _NOT_FOUND:
            raise
        # A task that has just been launched has no files yet. For a task that does not exist, the stream raises.
    else:
        start = log["next"]
        if log["data"]:
            yield {**log, "task": task, "event": "log"}
    for item in _stream(service, task, query.file, start):
        if item["event"] == "error":
            raise CommandError(item["error"]["message"])
        yield item


def _stream(service: ServiceClient, task: str, file: str, offset: int | None) -> Iterator[Any]:
    """Yield items of a log from `offset`. None: first wait for the task's launch."""
    path = api_path("tasks", task, "logs")
    start = str(offset or 0)
    while True:
        try:
            for event in follow_stream(service, path, ("end", "error"), file=file, follow="true", offset=start):
                yield {**service.event_content(path, event), "event": event.name, "task": task}
        except RefusedError as error:
            if offset is not None or error.http_status != _NOT_FOUND:
                raise
            time.sleep(_RETRY_SECONDS)
        else:
            return


@dataclass
class _Feed:
    """Function of a thread: puts a log's items into a queue, any error, then None."""

    service: ServiceClient
    items: queue.Queue[tuple[str, Any]]
    task: str
    file: str
    offset: int | None

    def __call__(self) -> None:
        try:
            for item in _stream(self.service, self.task, self.file, self.offset):
                self.items.put((self.task, item))
        except CommandError as error:
            self.items.put((self.task, {"event": "error", "task": self.task, "error": {"message": str(error)}}))
        self.items.put((self.task, None))


def _follow_all(service: ServiceClient, starts: Mapping[str, int | None], file: str) -> Iterator[Any]:
    """Follow several logs at once; yield complete lines and other items on arrival."""
    items: queue.Queue[tuple[str, Any]] = queue.Queue()
    for task, offset in starts.items():
        threading.Thread(target=_Feed(service, items, task, file, offset), daemon=True).start()
    partial, failures, left = dict.fromkeys(starts, ""), "", len(starts)
    while left:
        task, item = items.get()
        text = partial[task]
        if item is not None and item["event"] == "log":
            whole, newline, partial[task] = (text + item["data"]).rpartition("\n")
            if len(partial[task]) <= _LOG_BYTES:
                if newline:
                    yield {"event": "log", "task": task, "data": whole + newline}
                continue
            text, item = whole + newline + partial[task], {}
        if text:
            yield {"event": "log", "task": task, "data": text + "\n"}
        partial[task] = ""
        if item is None:
            left -= 1
        elif item:
            failures = item["error"]["message"] if item["event"] == "error" else failures
            yield item
    if failures:
        raise CommandError(failures)


def _show_log_item(item: Mapping[str, Any], *, prefix: bool) -> Renderable:
    if item["event"] == "log" and not prefix:
        yield Raw(item["data"])
    elif item["event"] == "log":
        yield from (Raw(prefixed(item["task"], text) + "\n") for text in item["data"][:-1].split("\n"))
    elif item["event"] == "launch":
        yield Line((dim(f"--- {item['task']} was relaunched as {item['id']} ---"),))
    elif item["event"] == "end":
        yield Line((dim(f"--- {item['task']} has ended: {item['state']} ---"),))
    elif item["event"] == "error":
        yield Line((dim(f"--- {item['task']}: {item['error']['message']} ---"),))


@command(
    "logs",
    exit_codes="0 also for output of a failed task, 1 unknown task or file",
    examples=("worker-0 -f", "--since 10m", "worker-0 worker-1 --tail 20 --stderr", "--run last"),
)
@argument("task", TASK, required=False, nargs=-1, help="Names of tasks. Default: all tasks.", example="worker-0")
@click.option("--follow", "-f", is_flag=True, help="Print new output until the tasks have ended.")
@click.option(
    "--tail",
    "-n",
    type=IntRange(0, _MAX_TAIL),
    metavar="N",
    show_default=True,
    help="Show the last N lines of each task.",
)
@click.option("--since", metavar="TIME", help="Show output of this time, such as 30s, 10m, 2h.")
@click.option("--run", cls=LocalOption, metavar="RUN", help="Show output of a past local run: an id, name or `last`.")
@click.option("--stderr", is_flag=True, help="Show standard error instead of standard output.")
@click.option("--file", metavar="NAME", help="Show this file of the task's working directory.")
def logs(
    call: CommandCall,
    task: Sequence[str],
    follow: bool,
    tail: int | None,
    since: str | None,
    run: str | None,
    stderr: bool,
    file: str | None,
) -> int:
    """Show the output of tasks, of all tasks by time."""
    service = call.service
    if follow and run:
        raise UsageError("--follow and --run: cannot be combined")
    if file and stderr:
        raise UsageError("--stderr and --file: cannot be combined; --stderr is the same as --file stderr")
    query = LogQuery(task, file or ("stderr" if stderr else "stdout"), _seconds(since), tail)
    if follow:
        wait_for_start(service, print_error)
        return call.follow(_follow_log(service, query), lambda item: _show_log_item(item, prefix=len(query.tasks) != 1))
    return call.show(_logs(service, query), _show_log if len(task) == 1 else _show_logs)


# --- events


def _events(service: ServiceClient, task: str | None, limit: int) -> Any:
    answer = service.get(api_path("events"), limit=str(limit), task=task)
    if task and not answer["events"]:
        service.get(api_path("tasks", task))  # raises, with the valid names, if the task does not exist
    return answer


def _show_events(answer: Mapping[str, Any]) -> Renderable:
    yield Table(("when", "task", "what"), [_row(event) for event in answer["events"]], empty="No events yet.")


def _row(event: Mapping[str, Any]) -> Sequence[Any]:
    message = event["message"]
    return local_time(event["time"]), event["task"] or "-", Word(message, "wait") if event["warning"] else message


def follow_events(service: ServiceClient, task: str | None = None, limit: int = _DEFAULT_EVENTS) -> Iterator[Any]:
    """Yield the newest events of the past, then each event as it happens."""
    newest = _events(service, task, limit)
    yield from newest["events"]
    start = {"after": str(newest["next"]), "journal": newest.get("journal"), "task": task}
    path = api_path("events")
    for event in follow_stream(service, path, (), follow="true", **start):
        yield service.event_content(path, event)


def _show_event(event: Mapping[str, Any]) -> Renderable:
    when, task, message = _row(event)
    yield Line((dim(when), "  ", f"{task:<12}  ", message))


@command("events", examples=("-f", "--task worker-0 -n 200"))
@click.option("--follow", "-f", is_flag=True, help="Print new events until Ctrl-C.")
@click.option("--task", "-t", type=TASK, metavar="TASK", help="Show events of TASK only.")
@click.option(
    "--limit",
    "-n",
    type=IntRange(1, _MAX_EVENTS),
    metavar="N",
    default=_DEFAULT_EVENTS,
    show_default=True,
    help="Number of events to show.",
)
def events(call: CommandCall, follow: bool, task: str | None, limit: int) -> int:
    """Show the events of the service with their reasons."""
    if follow:
        return call.follow(follow_events(call.service, task, limit), _show_event)
    return call.show(_events(call.service, task, limit), _show_events)


# --- exec

#: Seconds after a command's timeout in which its result must come.
_RESULT_DELAY = 30.0
_FIRST_POLL, _MAX_POLL = 0.1, 1.0
_STACKS_TIMEOUT = 60
_TIMED_OUT, _SIGNAL_BASE = 124, 128  # exit codes, as of timeout(1) and of a shell


def _run_in_task(service: ServiceClient, task: str, words: Sequence[str], timeout: int) -> Any:
    """Start a command in a task, and wait for its result. Raise CommandError."""
    started = service.post(api_path("tasks", task, "exec"), {"command": list(words), "timeout": timeout})
    path, end, delay = api_path("tasks", task, "exec", started["id"]), time.monotonic() + timeout, _FIRST_POLL
    while True:
        answer = service.get(path, launch=started["launch"])
        if answer["state"] != "running":
            break
        if time.monotonic() > end + _RESULT_DELAY:
            raise CommandError(f"{task}: no result of the command: its executor has not received it; try again")
        time.sleep(delay)
        delay = min(2 * delay, _MAX_POLL)
    if answer["error"]:
        raise CommandError(f"{task}: {answer['error']}")
    return answer


def _show_exec(answer: Mapping[str, Any], timeout: int) -> Renderable:
    """Print output and errors to the streams that the command has written to."""
    notes = ["The output is longer: only its first part is shown."] if answer["cut"] else []
    notes += [f"The command was killed after {timeout} s (--timeout)."] if answer["timed_out"] else []
    yield Raw(answer["stdout"])
    Screen(sys.stderr).show([Raw(answer["stderr"]), *notes])


def _exec_code(answer: Mapping[str, Any]) -> int:
    if answer["timed_out"]:
        return _TIMED_OUT
    return int(answer["exit_code"] or 0 if answer["signal"] is None else _SIGNAL_BASE + answer["signal"])


@command(
    "exec",
    exit_codes="that of the command; 128 + N killed by signal N, 124 after --timeout, 1 refused",
    examples=("worker-0 -- nvidia-smi", "worker-0 -- sh -c 'ls -l checkpoints | tail'"),
)
@argument("task", TASK, help="Name of the task.", example="worker-0")
@argument("command", nargs=-1, required=True, help="Program and its arguments.", example="-- nvidia-smi")
@click.option(
    "--timeout",
    type=IntRange(1, 3600),
    metavar="SECONDS",
    default=60,
    show_default=True,
    help="Seconds until the command is killed.",
)
def exec_(call: CommandCall, task: str, command: Sequence[str], timeout: int) -> int:
    """Run a command in a task, without a terminal."""
    answer = _run_in_task(call.service, task, command, timeout)
    call.show(answer, lambda answer: _show_exec(answer, timeout))
    return _exec_code(answer)


@command("stacks", exit_codes="0 stacks were read, 1 none: no py-spy in the task's Python, or ptrace is forbidden")
@argument("task", TASK, help="Name of the task.", example="worker-1")
def stacks(call: CommandCall, task: str) -> int:
    """Show where the Python processes of a task are."""
    answer = _run_in_task(call.service, task, ["python", "-m", "tf_executor.stacks"], _STACKS_TIMEOUT)
    call.show(answer, lambda answer: _show_exec(answer, _STACKS_TIMEOUT))
    return _exec_code(answer)
