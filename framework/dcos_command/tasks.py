"""Commands about jobs, services and tasks: `submit`, `status`, `list`, `cp`, ..."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
import webbrowser
from base64 import b64decode
from dataclasses import dataclass, field, replace
from getpass import getuser
from html import escape
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Callable, Iterable, Iterator, Mapping, Sequence
from urllib.parse import quote, urlsplit

import click

from tf_executor.contract.bodies import MAX_PRIORITY
from tf_executor.contract.reports import Progress, describe_progress, format_step
from tf_executor.contract.states import Activity
from tf_executor.contract.text import UNKNOWN, format_duration, format_loss, format_size, list_names, pluralize

from .client import PACKAGE, URL_VARIABLE, ServiceClient, api_path, installation_of
from .command import CommandCall, IntRange, LocalOption, argument, command, print_error, service_argument, show_json
from .documents import read_document, relative_job_url, with_settings
from .errors import CommandError, NotStartedError, RefusedError, UnreachableError, UsageError, error_document
from .logs import last_line, prefixed
from .output import Line, Renderable, Screen, Table, Word, dim, local_time, status_word
from .plans import TASK, queue_of, show_queue, show_waiting_job, waiting_job
from .service import LINE_SECONDS, follow, result_code, show_result

_BAD_REQUEST, _NOT_FOUND = 400, 404


# --- status, list, open

_EVENTS = 5  # events of `status`
_STALLED = 10  # stalled tasks whose last line `status` shows


def page_address(url: str, token: str) -> str:
    """Return the page's URL; browsers do not send the fragment, so no server logs it."""
    return f"{url}/#token={quote(token)}" if token else f"{url}/"


def page_of(service: ServiceClient) -> str:
    """Return the web page's URL; that of a local service has the user's own token."""
    return page_address(service.url, service.token if service.home else "")


def _overview(service: ServiceClient) -> Any:
    """Fetch the overview; add `activity` and the address of the page."""
    overview = service.get(api_path("tf", "overview"))
    return {**overview, "activity": job_activity(overview), "page": page_of(service)}


def job_activity(overview: Mapping[str, Any]) -> str:
    """Return the activity of the job; `failed` if Mesos refused the framework."""
    return str("failed" if overview["refused"] else overview.get("activity") or overview["verdict"] or "unknown")


def _activity(word: str) -> Word:
    return status_word(word.upper())


def _trainer(overview: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the task whose progress counts, or {}."""
    name = overview.get("reporter") or overview.get("leader")
    return next((task for task in overview["tasks"] if task["name"] == name), {})


@command("status", exit_codes="0 the scheduler answers, whatever the job does; 3 no answer")
@service_argument
def status(call: CommandCall) -> int:
    """Show training, tasks, reasons for waiting and events."""
    service = call.service
    if (waiting := waiting_job(service)) is not None:
        return call.show(waiting, show_waiting_job)
    try:
        overview = _overview(service)
    except RefusedError:
        if (queue := queue_of(service)) is None:
            raise
        return call.show(queue, show_queue)
    events = service.get(api_path("events"), limit=str(_EVENTS))
    pending = service.get(api_path("pending"))["tasks"]
    stalled = [task["name"] for task in overview["tasks"] if task.get("activity") == Activity.STALLED]
    lines = {name: last_line(service, name) for name in stalled[:_STALLED]}
    more = {"pending": pending, "events": events["events"], "stalled": lines}
    return call.show({**overview, **more}, _show_status)


def _show_status(answer: Mapping[str, Any]) -> Iterator[Any]:
    yield Line((Word(answer["service"], "strong"), "  ", _activity(answer["activity"]), "  ", dim(answer["page"])))
    if why := answer["refused"] or answer["reason"] or answer.get("detail"):
        yield Line((f"  {why}",))
    if last := answer.get("last_restart"):
        count = answer.get("restarts") or 0
        yield Line((f"  {count} restart{'s, the last' * (count != 1)}: {last}",))
    if progress := _training(answer):
        yield Line((f"  {progress}",))
    rows = [
        (
            task["name"],
            _activity(task.get("activity") or task["state"]),
            format_step(replace(Progress.from_json(task), total=None, epochs=None)),
            task["hostname"] or "-",
            dim(task["message"]),
        )
        for task in answer["tasks"]
    ]
    yield Table(("task", "doing", "step", "agent", "what"), rows, empty="No task has been launched yet.")
    yield from (prefixed(name, text) for name, text in answer["stalled"].items())
    for name in list(answer["stalled"])[:1]:
        yield Line((dim(f"To see where {name} is: `stacks {name}`"),))
    for entry in answer["pending"]:
        yield Line(
            (Word(f"{entry['name']} waits", "wait"), f": {'; '.join(entry['reasons']) or 'no reason known yet'}")
        )
    yield from _warnings(answer["notices"])
    yield from (Line((dim(local_time(event["time"])), "  ", event["message"])) for event in answer["events"])


def _warnings(texts: Iterable[str]) -> Iterator[Line]:
    return (Line((Word(text, "wait"),)) for text in texts)


def _training(overview: Mapping[str, Any]) -> str:
    return describe_progress(Progress.from_json(_trainer(overview)), overview.get("examples_per_second"))


@command("list", exit_codes="0 also for services that do not answer; 3 the attached DC/OS does not answer")
def list_services(call: CommandCall) -> int:
    """List the services with their state and progress."""
    services: list[ServiceClient] = []
    problem = None
    try:
        for service in call.program.find_all(call.options, call.program.environment):
            services.append(service)
    except CommandError as error:
        if not services:
            raise
        problem = error
    answer = {"services": [entry for service in services for entry in _list_entries(service)]}
    more = error_document(problem) if problem is not None and call.as_json else {}
    call.show({**answer, **more}, lambda answer: _show_list(answer, call.options.name))
    if problem is None:
        return 0
    print_error(f"{call.program.prefix}{problem}")
    return problem.exit_code


def _list_entries(service: ServiceClient) -> Iterator[Mapping[str, Any]]:
    """Yield the row of a service; of a queue service also those of its active jobs."""
    entry = _list_entry(service)
    try:
        queue = queue_of(service) if entry.get("status") == _NOT_FOUND else None
    except CommandError:
        queue = None
    if queue is None:
        yield entry
        return
    yield {"name": queue["name"], "activity": Activity.RUNNING.value, "page": page_of(service), "age": None}
    yield from (_list_entry(service.of_job(job["id"])) for job in queue["jobs"] if job["state"] != "queued")


def _list_entry(service: ServiceClient) -> Mapping[str, Any]:
    try:
        overview = _overview(service)
        oldest = service.get(api_path("configurations"))[-1:]
        made = [service.get(api_path("configurations", name)).get("at") for name in oldest]
    except CommandError as error:
        status = {"status": error.http_status} if isinstance(error, RefusedError) else {}
        return {"name": service.name, "activity": None, "error": str(error), "page": page_of(service), **status}
    trainer, age = _trainer(overview), time.time() - made[0] if made and made[0] else None
    values = {name: trainer.get(name) for name in ("step", "total", "epoch", "epochs", "loss", "nan_since")}
    return {"name": overview["service"], **{n: overview[n] for n in ("activity", "page")}, **values, "age": age}


def _show_list(answer: Mapping[str, Any], name: str) -> Renderable:
    empty = f"No service runs with the name `{name}`." if name else "No service runs."
    rows = [
        (
            entry["name"] or "-",
            _activity(entry["activity"]) if entry["activity"] else Word("NO ANSWER", "bad"),
            format_step(Progress.from_json(entry)).replace(UNKNOWN, "-").replace(" of ", "/"),
            format_loss(entry.get("loss"), entry.get("nan_since")),
            format_duration(entry.get("age")),
            entry["page"],
        )
        for entry in answer["services"]
    ]
    yield Table(("name", "doing", "step", "loss", "age", "page"), rows, empty=empty)
    for entry in answer["services"]:
        if not entry["activity"]:
            yield from _warnings(f"{entry['name']}: {entry['error']}".splitlines())


@command("open", exit_codes="0 the page was shown, with or without a browser; 3 no answer, and no past run")
@service_argument
@click.option("--print", "print_only", is_flag=True, help="Print the address of a running service, for scripts.")
@click.option(
    "--store",
    cls=LocalOption,
    type=click.Path(path_type=Path),
    envvar="DCOS_TENSORFLOW_HISTORY",
    metavar="DIR",
    help="Show also the past runs in this folder of a team.",
)
def open_(call: CommandCall, print_only: bool, store: Path | None) -> int:
    """Open the web page of the service, else of past runs.

    The page opens in a browser. Past runs are those of this machine, and those of --store. SERVICE may also be a run,
    such as `last`. The page of past runs ends with Ctrl-C, or when no tab shows it.
    """

    def show(service: ServiceClient) -> int:
        answer = {"page": page_of(service), "ssh": _tunnel(service.url, os.environ)}
        return call.show(answer, lambda answer: _open_page(answer, service.home, print_only=print_only))

    try:
        call.service.get(api_path("tf", "overview"))
    except NotStartedError:  # the queue's page shows it
        return show(call.service.queue)
    except RefusedError:
        if queue_of(call.service) is None:
            raise
    except UnreachableError:
        # A script waits for the end of the output, so a page that this command serves is of no use to it.
        is_for_script = print_only or call.as_json
        is_named = call.options.url or call.program.environment.get(URL_VARIABLE)
        if is_for_script or is_named or not call.program.serve_runs(call.options.name.strip("/"), store, show):
            raise
        return 0
    return show(call.service)


def _tunnel(url: str, environment: Mapping[str, str]) -> str:
    """Return the SSH tunnel's command for a user who is logged in by SSH, else empty."""
    address, connection = urlsplit(url), environment.get("SSH_CONNECTION", "").split()
    if address.hostname not in ("127.0.0.1", "localhost") or len(connection) != 4:
        return ""
    return f"ssh -N -L {address.port}:{address.hostname}:{address.port} {getuser()}@{connection[2]}"


def _redirection(page: str, home: Path) -> str:
    """Return a private file that leads to the page: arguments of a browser are public."""
    file = home / "page.html"
    file.touch(0o600)
    file.write_text(f'<meta http-equiv="refresh" content="0; url={escape(page)}">')
    return file.as_uri()


def _open_page(answer: Mapping[str, Any], home: Path | None, *, print_only: bool) -> Renderable:
    """Show the address, and open it where a window can appear."""
    graphical = sys.platform == "darwin" or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")))
    tunnel = f"on your own machine, run: {answer['ssh']}"
    if print_only:
        yield answer["page"]
        Screen(sys.stderr).show((tunnel,) if answer["ssh"] else ())
    elif answer["ssh"]:
        yield tunnel
        yield f"and open: {answer['page']}"
    else:
        yield f"page: {answer['page']}"
        if graphical and not webbrowser.open(_redirection(answer["page"], home) if home else answer["page"]):
            yield "no browser can be started; open the address yourself"


# --- submit


def _check_program(document: Mapping[str, Any], file: str) -> None:
    """Raise CommandError if the program is a file of this machine."""
    if url := relative_job_url(document):
        raise CommandError(
            f"service.job_url: `{url}`: agents cannot read files of this machine; copy it to a web server "
            f"or a shared folder and use its URL, or run it here: dcos-tensorflow local run {file}"
        )


def submit_document(call: CommandCall, document: Mapping[str, Any], file: str, *, detach: bool) -> int:
    """Install the service through Cosmos; unless detached, follow it to its result."""
    service = call.service
    _check_program(document, file)
    if "job" in document:
        Screen(sys.stderr).show(["notice: job: has no effect: only a queue service uses it"])
    options = {name: section for name, section in document.items() if name != "job"}
    client, body = replace(service, direct=False), {"packageName": PACKAGE, "options": options}
    try:
        installed = client.cosmos("package.install", "package/install", body, "v2")
    except RefusedError as error:
        if error.http_status != _NOT_FOUND:
            raise
        hint = f"a scheduler runs one job, which `{service.program} update start` changes"
        raise CommandError(f"{client.cluster.url} is not the address of a DC/OS; {hint}") from error
    client = replace(client, name=installed["appId"].strip("/"))
    answer = {"service": client.name, "page": page_of(client)}
    if detach:
        return call.show(answer, show_submitted)
    Screen(sys.stderr).show(show_submitted(answer))
    result = _print_progress(client)
    if client.keep is not None:
        client.keep(client)
    return call.show(
        {**answer, "verdict": result["verdict"], "reason": result["reason"]},
        lambda answer: (
            *show_result(answer),
            f"to remove the service: {service.program} --name {answer['service']} uninstall",
        ),
        result_code(result),
    )


#: Options of `submit` that set the section `job` of a job file.
JOB_OPTIONS = (
    click.Option(["--to"], metavar="SERVICE", help="Queue service that runs the job."),
    click.Option(["--queue"], metavar="QUEUE", help="Queue of the job."),
    click.Option(
        ["--priority"], type=IntRange(0, MAX_PRIORITY), metavar="NUMBER", help=f"Priority, 0 to {MAX_PRIORITY}."
    ),
    click.Option(["--after"], multiple=True, metavar="ID", help="Start after this job has succeeded."),
    click.Option(["--id"], metavar="ID", help="Id of the job. Default: chosen by the service."),
)


def with_job_options(document: Mapping[str, Any], params: Mapping[str, Any]) -> Mapping[str, Any]:
    """Set the section `job` of a job file. Raise UsageError without a service."""
    given = {name: params[name] for name in ("queue", "priority", "after", "id") if params[name] not in (None, ())}
    if given and not params["to"]:
        raise UsageError(f"--{next(iter(given))}: only a queue service uses it; pass --to")
    given = {**given, **({"after": list(given["after"])} if "after" in given else {})}
    return {**document, "job": {**document.get("job", {}), **given}} if given else document


#: Number of requests for the place of a new job, and seconds between them.
_PLACE_CHECKS, _PLACE_SECONDS = 10, 0.1


def submit_to(
    call: CommandCall, service: ServiceClient, document: Mapping[str, Any], file: str, *, detach: bool
) -> int:
    """Submit a job file to a queue service; unless detached, follow it to its result."""
    _check_program(document, file)
    service = service.queue
    try:
        body = service.post(api_path("jobs"), document)
    except RefusedError as error:
        if error.http_status != _NOT_FOUND:
            raise
        raise CommandError(f"`{service.url}` is not a queue service: it accepts no jobs") from error
    for _ in range(_PLACE_CHECKS):  # the queue finds it after its answer
        if body["position"] or body["state"] != "queued":
            break
        time.sleep(_PLACE_SECONDS)
        body = service.get(api_path("jobs", body["id"]))
    if detach:
        return call.show(body, show_waiting_job)
    Screen(sys.stderr).show(show_waiting_job(body))
    client = replace(service.of_job(body["id"]), name=body["name"])
    result = _print_progress(client)
    answer = {"service": client.name, "page": page_of(client), "verdict": result["verdict"], "reason": result["reason"]}
    return call.show(answer, show_result, result_code(result))


@command(
    "submit",
    exit_codes="0 succeeded, or submitted with --detach; 1 failed or refused, 4 stopped",
    examples=("options.json", "options.json --detach --set worker.count=4"),
)
@argument("file", help="Options file.", example="options.json")
@click.option("--detach", is_flag=True, help="Return when the job is submitted.")
@click.option(
    "--set", "settings", multiple=True, metavar="PATH=VALUE", help="Change an option, such as worker.count=4."
)
def submit(call: CommandCall, file: str, detach: bool, settings: Sequence[str], **params: Any) -> int:
    """Submit a job, and follow it to its end.

    FILE is an options file. The job runs on the DC/OS of --url or of `dcos cluster setup`, with --to as a job of a
    queue service. With --detach, the command prints name and page of the job, which continues. Ctrl-C ends the command,
    not the job.
    """
    name, to = call.options.name, params["to"]
    if to:
        call = replace(call, options=call.options.of_queue(to, call.program.environment))
    call.find()
    names = [f"service.name={json.dumps(name)}"] if name else []
    document, problems = with_settings(read_document(file), [*settings, *names])
    if problems:
        raise CommandError("\n".join(f"{setting}: {why}" for setting, why in problems))
    document = dict(with_job_options(document, params))
    if to:
        return submit_to(call, call.service, document, file, detach=detach)
    return submit_document(call, document, file, detach=detach)


submit.params += JOB_OPTIONS


def show_submitted(answer: Mapping[str, Any]) -> Renderable:
    """Render the name and the page of a submitted job."""
    yield f"submitted {answer['service']}"
    yield f"page: {answer['page']}"


class ProgressLines:
    """Prints a line about a job at each change, and at least every `every` seconds."""

    def __init__(self, echo: Callable[[str], None], every: float = LINE_SECONDS) -> None:
        self._echo, self._every, self._due = echo, every, 0.0
        self._before: tuple[str, ...] = ()
        self._notices: Sequence[str] = ()
        self._restarts = 0
        self._has_trained = False

    def show(self, overview: Mapping[str, Any], seconds: float) -> None:
        """Print what is new in an overview. `seconds`: time since the job's start."""
        activity = job_activity(overview)
        notices, restarts = overview.get("notices", self._notices), overview.get("restarts", self._restarts)
        for notice in notices:
            if notice not in self._notices:
                self._echo(notice)
        if restarts > self._restarts and Activity.RESTARTING.value not in self._before:
            self._echo(f"restarting: {overview.get('last_restart')}")  # between two overviews
        self._notices, self._restarts = notices, restarts
        state = (activity, overview["reason"], overview.get("detail", "") if activity == Activity.RESTARTING else "")
        if state != self._before or seconds >= self._due:
            text = self._changed(overview, seconds) if state != self._before else ""
            self._before, self._due = state, seconds + self._every
            self._echo(f"{activity}{text or _state_text(overview)}")

    def _changed(self, overview: Mapping[str, Any], seconds: float) -> str:
        """Return what a line about this change adds: the agents of tasks, or the step."""
        progress = Progress.from_json(_trainer(overview))
        if overview["activity"] in (Activity.FETCHING, Activity.IMPORTING):
            tasks = (task for task in overview["tasks"] if task.get("live") and task["hostname"])
            places = [f"{task['name']} on {task['hostname']}" for task in tasks]
            return f": {list_names(places)}" if places else ""
        if overview["activity"] == Activity.TRAINING and progress.position is not None:
            is_first, self._has_trained = not self._has_trained, True
            first = f": first step after {format_duration(round(seconds))}"
            position = format_step(replace(progress, total=None, epochs=None), has_unit=True)
            return first if is_first else f" again: {position}"
        return ""


def _state_text(overview: Mapping[str, Any]) -> str:
    """Return the reason, else the progress, else the tasks that the activity concerns."""
    progress = "" if overview["activity"] == Activity.RESTARTING else _training(overview)
    text = overview["reason"] or progress or overview.get("detail")
    return f": {text}" if text else ""


def _print_progress(service: ServiceClient) -> Any:
    """Print lines about the job until it is decided; return its result.

    Raise CommandError if the service is removed meanwhile.
    """
    screen, started, result = Screen(sys.stderr), time.monotonic(), None
    lines = ProgressLines(lambda line: screen.show((line,)))
    for result, overview in follow(service, _overview, is_installed=True):
        if overview is None:  # the scheduler is starting or restarting
            why = installation_of(service).last_failure(finished=False)
            if why is None:
                raise CommandError(f"{service.name} was removed before its job has ended")
            overview = {"activity": "waiting", "refused": "", "reason": why, "tasks": ()}
        if result is None:
            lines.show(overview, time.monotonic() - started)
    return result


# --- tasks, why, cluster


@command("tasks")
def tasks(call: CommandCall) -> int:
    """List the tasks with state, agent and last message."""
    return call.show(call.service.get(api_path("tasks")), _show_tasks)


def _show_tasks(answer: Mapping[str, Any]) -> Renderable:
    rows = [_row(task) for task in answer["tasks"]]
    yield Table(("task", "status", "agent", "address", "gpus", "gen", "what"), rows, empty="There are no tasks.")
    yield from _warnings(answer.get("reasons", answer.get("may_still_run", ())))


def _row(task: Mapping[str, Any]) -> Sequence[Any]:
    gpus = task["resources"]["gpus"]
    place = (task["hostname"] or "-", task["address"] or "-", str(gpus) if gpus else "-")
    return task["name"], _state(task), *place, str(task["generation"] or "-"), dim(_note(task))


def _state(task: Mapping[str, Any]) -> Word:
    if task["status"] == "RUNNING" and task["healthy"] is False:
        return Word("RUNNING, not healthy", "wait")
    return status_word(task["status"])


def _note(task: Mapping[str, Any]) -> str:
    """Return the first reason why the task is pending, else its last message."""
    pending = task["pending"]
    more = f" (and {len(pending) - 1} more; see `why {task['name']}`)" if len(pending) > 1 else ""
    return f"{pending[0]}{more}" if pending else str(task["message"] or "")


_any_task = argument("task", TASK, required=False, help="Name of a task.", example="worker-0")


@command("why")
@_any_task
def why(call: CommandCall, task: str | None) -> int:
    """Show why tasks are pending."""
    if (waiting := waiting_job(call.service)) is not None:
        return call.show(waiting, show_waiting_job)
    pending = call.service.get(api_path("pending"))
    if not task:
        return call.show(pending, _show_why)
    entries = [entry for entry in pending["tasks"] if entry["name"] == task]
    answer = {**pending, "tasks": entries, "task": call.service.get(api_path("tasks", task))}
    return call.show(answer, _show_why)


def _show_why(answer: Mapping[str, Any]) -> Iterator[Any]:
    for entry in answer["tasks"]:
        step = f" in plan {entry['plan']}" if entry["plan"] else ""
        yield Line((Word(entry["name"], "strong"), " is ", status_word(entry["status"]), step))
        yield from (Line((f"  - {reason}",)) for reason in entry["reasons"] or ("no reason known yet",))
    if answer["tasks"]:
        if answer["evaluated_at"] is not None:
            yield Line((dim(f"Last evaluation: {answer['offers']} offers of {answer['agents']} agents."),))
    elif task := answer.get("task"):
        place = f" on {task['hostname']} at {task['address']}" if task["hostname"] else ""
        yield Line((Word(task["name"], "strong"), " is not pending: it is ", _state(task), place))
        if task["message"]:
            yield Line((f"  {task['message']}",))
    else:
        yield "No task is pending."
    yield from _warnings(answer.get("reasons", ()))


@command("cluster")
@_any_task
def cluster(call: CommandCall, task: str | None) -> int:
    """Show the ClusterSpec, or the TF_CONFIG of a task."""
    answer = call.service.get(api_path("tf", "cluster"))
    if not task:
        return call.show(answer, _show_cluster)
    for entry in answer["tasks"]:
        if entry["name"] == task:
            return call.show(entry["tf_config"], show_json)
    raise RefusedError(f"task `{task}` is not in the ClusterSpec", _NOT_FOUND)


def _show_cluster(answer: Mapping[str, Any]) -> Iterator[Any]:
    yield Line((f"generation {answer['generation']}, {answer['strategy']}",))
    rows = [
        (task["name"], task["address"] or "-", task["hostname"] or "-", str(task["generation"] or "-"))
        for task in answer["tasks"]
    ]
    yield Table(("task", "address", "agent", "generation"), rows, empty="No task has been launched yet.")


# --- cp

_PART = 1 << 20  # bytes of a request, the API's maximum
#: Maximum number of files and folders of one copy, against links that lead back.
_MAX_COPIED = 100_000
_WORKING_DIRECTORY = ("", ".")


@dataclass(frozen=True)
class _SandboxCopy:
    """Copies files of one launch of a task."""

    service: ServiceClient
    task: str
    launch: str
    #: Links that lead out of the working directory; the agent does not follow them.
    skipped: list[str] = field(default_factory=list)

    def entries(self, folder: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Yield the path of each file and folder with its entry; skip pipes and devices."""
        answer = self.service.get(api_path("tasks", self.task, "files"), folder=folder or None)
        self._check(answer)
        for entry in answer["files"]:
            name = entry["name"]
            if name in ("", ".", "..") or "/" in name or "\0" in name:
                raise CommandError(f"{self.task}:{folder}: invalid name of a file: {name!a}")
            if entry["mode"][:1] in ("-", "d"):
                yield f"{folder}/{name}".lstrip("/"), entry

    def copy(self, path: str, entry: Mapping[str, Any], target: Path) -> Iterator[int]:
        """Copy a file or folder to a new `target`; yield the size of each file."""
        if not entry["mode"].startswith("d"):
            self._copy_file(path, entry, target)
            yield target.stat().st_size
            return
        entries = list(self.entries(path))
        target.mkdir()
        for below, each in entries:
            place = target / below.rpartition("/")[2]
            try:
                yield from self.copy(below, each, place)
            except RefusedError as error:
                if error.http_status != _BAD_REQUEST:
                    raise
                place.unlink(missing_ok=True)
                self.skipped.append(below)

    def _copy_file(self, path: str, entry: Mapping[str, Any], target: Path) -> None:
        with target.open("xb") as file:
            at, size = 0, entry["size"]
            while at < size:
                log, length = api_path("tasks", self.task, "logs"), str(min(_PART, size - at))
                part = self.service.get(log, file=path, offset=str(at), length=length, binary="true")
                self._check(part)
                try:
                    data = b64decode(part["data"], validate=True)
                except ValueError:
                    raise UnreachableError(f"{self.service.url} does not answer as a scheduler: not base64") from None
                if not data:
                    raise CommandError(f"{self.task}:{path} became shorter while it was copied; try again")
                file.write(data[: size - at])
                at += len(data)
        if entry["mode"][3:4] == "x":
            target.chmod(0o755)

    def _check(self, answer: Mapping[str, Any]) -> None:
        if answer["id"] != self.launch:
            raise CommandError(f"{self.task} was relaunched while it was copied; try again")


@command("cp", exit_codes="1 unknown task or file, or the task was relaunched meanwhile")
@argument("source", help="TASK:PATH, in the task's working directory.", example="worker-0:model")
@argument("here", help="New file or folder, or folder to copy into.", example=".")
def cp(call: CommandCall, source: str, here: str) -> int:
    """Copy a file or folder of a task to this machine."""
    return call.show(_copy(call.service, source, here), _show_copy)


def _copy(service: ServiceClient, source: str, here: str) -> Any:
    """Copy to a folder next to the target, and rename the complete copy."""
    task, colon, path = source.partition(":")
    if not colon or not task or path.startswith("/"):
        expected = "expected TASK:PATH, with a path relative to the task's working directory"
        raise UsageError(f"`{source}`: {expected}, such as worker-0:checkpoints")
    path = path[2:] if path.startswith("./") else path
    path = path.rstrip("/")
    is_all = path in _WORKING_DIRECTORY
    folder = "" if is_all else path.rpartition("/")[0]
    copy = _SandboxCopy(service, task, service.get(api_path("tasks", task, "files"), folder=folder or None)["id"])
    entry = {"mode": "d", "size": 0} if is_all else dict(copy.entries(folder)).get(path)
    if entry is None:
        raise CommandError(f"{task}:{path}: no such file or folder")
    target = Path(here)
    if target.is_dir():
        target /= task if is_all else path.rpartition("/")[2]
    if target.is_dir():
        raise CommandError(f"{target}: already exists")
    try:
        sizes = _copy_whole(copy, "" if is_all else path, entry, target)
    except OSError as error:
        raise CommandError(f"{target}: {error.strerror or error}") from error
    return {"path": str(target), "files": len(sizes), "bytes": sum(sizes), "skipped": copy.skipped}


def _copy_whole(copy: _SandboxCopy, path: str, entry: Mapping[str, Any], target: Path) -> list[int]:
    draft = Path(mkdtemp(prefix=".cp-", dir=str(target.parent)))
    try:
        sizes = []
        for size in copy.copy(path, entry, draft / "content"):
            sizes.append(size)
            if len(sizes) > _MAX_COPIED:
                raise CommandError(f"{copy.task}:{path} has more than {_MAX_COPIED} files")
        (draft / "content").replace(target)
        return sizes
    finally:
        shutil.rmtree(str(draft), ignore_errors=True)


def _show_copy(answer: Mapping[str, Any]) -> Renderable:
    yield f"{answer['path']}: {pluralize(answer['files'], 'file')}, {format_size(answer['bytes'])}"
    if answer["skipped"]:
        yield f"skipped, because it leads out of the working directory: {list_names(answer['skipped'])}"
