"""Commands for progress, result, configurations, secrets, endpoints and health."""

from __future__ import annotations

import json
import math
import time
from typing import Any, Callable, Iterator, Mapping, Sequence

import click

from tf_executor.contract.http import is_loopback
from tf_executor.contract.reports import Progress, format_step
from tf_executor.contract.text import format_duration, format_loss, format_number, format_part, sparkline

from .client import ServiceClient, api_path, installation_of, run_of
from .command import (
    CommandCall,
    IntRange,
    Name,
    argument,
    command,
    group,
    service_argument,
    show_json,
    show_message,
    show_names,
)
from .errors import CommandError, NotStartedError, RefusedError, UnreachableError
from .output import Line, Renderable, Screen, Table, Word, dim, local_time, status_word
from .plans import show_waiting_job, waiting_job

_NOT_FOUND = 404

# --- progress

_BAR_WIDTH, _CURVE_WIDTH = 24, 20  # characters


def progress_bar(fraction: float | None, width: int = _BAR_WIDTH) -> str:
    """Draw a fraction as a bar; only 1 fills it. None: an unknown fraction."""
    if fraction is None:
        return "╌" * width
    halves = int(min(1.0, max(0.0, fraction)) * width * 2)
    half = "╸" if halves % 2 else ""
    return "━" * (halves // 2) + half + "─" * (width - halves // 2 - len(half))


def show_progress(answer: Mapping[str, Any]) -> Renderable:
    """Render a row for each job that reports training progress."""
    jobs = answer["jobs"].items()
    rows = [_progress_row(name, job, _representative(name, answer)) for name, job in jobs if job["reporting"]]
    heading = ("job", "", "step", "steps/s", "examples/s", "left", "loss", "")
    yield Table(heading, rows, "No task has reported training progress yet.", charts=(1, 7))
    for name, _ in jobs if rows else ():
        if details := _progress_details(_representative(name, answer)):
            yield f"{name}: {details}"
    if members := answer.get("members"):
        why = "" if members["confirmed"] else f" ({members['error'] or 'not confirmed yet'})"
        yield f"workers of the chief: {', '.join(members['workers'])}{why}"
    if rows and (silent := [name for name, job in jobs if not job["reporting"]]):
        yield Line((dim(f"No progress reported by: {', '.join(silent)}"),))


def _representative(job: str, answer: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the task whose loss represents the job: the leader, else the slowest."""
    tasks = [task for task in answer["tasks"] if task["job"] == job and Progress.from_json(task).position is not None]
    leading = [task for task in tasks if task["name"] == answer["leader"]]
    return min(leading or tasks or [{}], key=lambda task: Progress.from_json(task).position or 0)


def _progress_row(name: str, job: Mapping[str, Any], task: Mapping[str, Any]) -> list[Any]:
    step, total = job["step"], job["total"]
    fraction = step / total if step is not None and total else None
    losses = [point["loss"] for point in task.get("points") or ()]
    return [
        name,
        Word(progress_bar(fraction), "good" if fraction is not None and fraction >= 1 else "busy"),
        format_step(Progress.from_json({**task, **job})).replace(" of ", "/"),
        format_number(job["steps_per_second"]),
        format_number(job["examples_per_second"]),
        format_duration(task.get("seconds_left")),
        format_loss(task.get("loss"), task.get("nan_since")),
        Word(sparkline(losses, _CURVE_WIDTH), "good"),
    ]


def _progress_details(task: Mapping[str, Any]) -> str:
    """Format epoch, metrics, and the source unless the program itself reported."""
    metrics = (f"{name} {format_number(value)}" for name, value in Progress.from_json(task).metrics.items())
    source = task.get("source") or "report"
    parts = (
        "" if task.get("epoch") is None else f"epoch {format_part(task['epoch'], task.get('epochs'))}",
        *metrics,
        "" if source == "report" else f"from {source}",
    )
    return ", ".join(part for part in parts if part)


#: Exit codes of a job's result.
EXIT_CODES = {"succeeded": 0, "failed": 1, "stopped": 4}
#: Maximum seconds between two lines about the progress of a job.
LINE_SECONDS = 10.0
#: Exit code without a result.
_UNDECIDED = 5


def result_code(answer: Mapping[str, Any]) -> int:
    """Return the exit code of a command that shows a job's result."""
    return EXIT_CODES.get(answer["verdict"], _UNDECIDED)


def final_result(service: ServiceClient) -> Any:
    """Return the result of the job; None while it is not decided."""
    answer = service.get(api_path("tf", "result"))
    return None if answer["verdict"] is None else answer


def show_result(answer: Mapping[str, Any]) -> Renderable:
    """Render the job's verdict and its reason."""
    if answer["verdict"] is None:
        return (Line((Word("no result yet", "wait"), f": {answer['reason']}" if answer["reason"] else "")),)
    return (Line((status_word(answer["verdict"]), ": ", str(answer["reason"]))),)


#: Seconds between two polls.
_POLL_SECONDS = 0.5
#: Seconds without an answer after which a follower gives up; a restarted scheduler usually comes back.
_MAX_SILENCE = 60.0


def follow(
    service: ServiceClient, fetch: Callable[[ServiceClient], Any], *, is_installed: bool = False
) -> Iterator[tuple[Any, Any]]:
    """Yield the job's result and the answer of `fetch` repeatedly, until a result.

    Both are None while the service does not answer, or the job waits in a queue. Raise UnreachableError if the service
    does not answer the first request, or later for a minute. Wait without limit for a local run, and (`is_installed`)
    for a new service.
    """
    answered = -math.inf
    while True:
        answer = None
        try:
            result, answer = final_result(service), fetch(service)
            answered = time.monotonic()
        except UnreachableError as error:
            # The scheduler of a local run exits with its job; a job that waits in a queue has none.
            run = run_of(service)
            result = run.result() if run else None
            answered = time.monotonic() if isinstance(error, NotStartedError) else answered
            if not (service.run or is_installed) and time.monotonic() > answered + _MAX_SILENCE:
                raise
        yield result, answer
        if result is not None:
            return
        time.sleep(_POLL_SECONDS)


def watch_progress(service: ServiceClient, screen: Screen) -> Any:
    """Redraw the progress until the job is decided; return its result."""
    results: list[Any] = []
    screen.show_live(_progress_frames(service, results))
    return results[-1]


def _progress_frames(service: ServiceClient, results: list[Any]) -> Iterator[Renderable]:
    """Yield the progress until the job is decided; append each poll's result."""
    frame: list[Any] = []
    for result, answer in follow(service, fetch_progress):
        results.append(result)
        frame = frame if answer is None else list(show_progress(answer))
        if result is not None:
            yield [*frame, *show_result(result)]
        else:
            yield [*frame, Line((dim("No answer, retrying."),))] if answer is None else frame


def fetch_progress(service: ServiceClient) -> Any:
    """Return the progress with the points of its curves."""
    return service.get(api_path("tf", "progress"), points=str(_CURVE_WIDTH))


@command(
    "progress",
    exit_codes="on a terminal 0 succeeded, 1 failed, 4 stopped; otherwise 0, whatever the job does",
)
def progress(call: CommandCall) -> int:
    """Show the training progress, updated live on a terminal."""
    if (waiting := waiting_job(call.service)) is not None:
        return call.show(waiting, show_waiting_job)
    screen = call.program.screen()
    if screen.is_interactive and not call.as_json:
        return result_code(watch_progress(call.service, screen))
    return call.show(fetch_progress(call.service), show_progress)


@command("result", exit_codes="0 succeeded, 1 failed, 4 stopped, 5 not decided yet")
def result(call: CommandCall) -> int:
    """Show how the training ended; the exit code tells it."""
    try:
        answer = call.ended_run() or call.service.get(api_path("tf", "result"))
    except NotStartedError as error:
        run = run_of(call.service)
        answer = (run.result() if run else None) or {"verdict": None, "reason": str(error)}
    return call.show(answer, show_result, result_code(answer))


# --- wait


class _WaitTimeoutError(CommandError):
    """`wait --timeout` has passed; the exit code is that of timeout(1)."""

    kind = "timeout"
    exit_code = 124


def wait_for_result(service: ServiceClient, limit: float | None = None, *, training: bool = False) -> Any:
    """Wait for the job's result, or with `training` for its first step; return it."""
    answer, deadline = None, math.inf if limit is None else time.monotonic() + limit
    for result, first_step in follow(service, _first_step if training else lambda _: None):
        answer = result or first_step
        if answer is not None:
            break
        if time.monotonic() >= deadline:
            raise _WaitTimeoutError(f"not {'training' if training else 'decided'} after {limit} s")
    return answer


def _first_step(service: ServiceClient) -> Any:
    tasks = service.get(api_path("tf", "progress"))["tasks"]
    first = next((task for task in tasks if Progress.from_json(task).position is not None), None)
    undecided = {"verdict": None, "reason": None}
    return first and {**undecided, "task": first["name"], "step": first["step"], "epoch": first.get("epoch")}


def _show_wait(answer: Mapping[str, Any]) -> Renderable:
    if "step" not in answer:
        return show_result(answer)
    position = format_step(Progress.from_json(answer), has_unit=True)
    return (Line((Word("training", "good"), f": {answer['task']} is at {position}")),)


@command(
    "wait",
    exit_codes="0 succeeded, or training with --for training; 1 failed, 4 stopped, 124 after --timeout",
    examples=("", "mnist --timeout 3600", "--for training"),
)
@service_argument
@click.option(
    "--timeout",
    type=IntRange(0),
    metavar="SECONDS",
    show_default=True,
    help="Maximum time to wait; then exit with 124.",
)
@click.option(
    "--for",
    "event",
    type=click.Choice(("result", "training")),
    default="result",
    show_default=True,
    help="Wait for this.",
)
def wait(call: CommandCall, timeout: int | None, event: str) -> int:
    """Wait for the result; the exit code tells it."""
    answer = call.ended_run() or wait_for_result(call.service, timeout, training=event == "training")
    return call.show(answer, _show_wait, 0 if "step" in answer else result_code(answer))


# --- config

_MAX_CHANGES = 3  # options
_MAX_VALUE = 24  # characters of a value

Options = Mapping[str, Any]


def _fetch_configuration(service: ServiceClient, name: str) -> Iterator[Mapping[str, Any]]:
    try:
        yield {**service.get(api_path("configurations", name)), "id": name}
    except RefusedError as error:
        if error.http_status != _NOT_FOUND:  # a new configuration evicts the oldest one
            raise


def _show_configurations(answer: Sequence[Mapping[str, Any]]) -> Renderable:
    older = [each.get("options") for each in answer[1:]]
    rows = [_configuration_row(each, below, not at) for at, (each, below) in enumerate(zip(answer, [*older, None]))]
    yield Table(("id", "made", "target", "what changed"), rows)


def _configuration_row(configuration: Mapping[str, Any], older: Options | None, is_target: bool) -> Sequence[Any]:
    made = local_time(configuration["at"]) if "at" in configuration else "-"
    changes = _changes(configuration, older)
    text = "-"
    if changes is not None:
        more = f", and {len(changes) - _MAX_CHANGES} more" if len(changes) > _MAX_CHANGES else ""
        text = ", ".join(changes[:_MAX_CHANGES]) + more or "no option"
    return configuration["id"], made, Word("yes", "good") if is_target else "-", text


def _changes(configuration: Mapping[str, Any], older: Options | None) -> list[str] | None:
    """Return the options that differ from the previous target; None if unknown.

    A configuration lacks its changes if the previous options had become invalid. It is then compared with these
    options, `older`.
    """
    if "changed" in configuration:
        changed = configuration["changed"]
        return [f"{item['option']}: {_short(item['old'])} → {_short(item['new'])}" for item in changed]
    if older is None:
        return None
    now, then = dict(_flat(configuration.get("options") or {}, "")), dict(_flat(older, ""))
    return [f"{name}: {_value(then, name)} → {_value(now, name)}" for name in _differing(now, then)]


def changed_options(options: Options, older: Options) -> Sequence[str]:
    """Return the names of the options that differ."""
    return list(_differing(dict(_flat(options, "")), dict(_flat(older, ""))))


def _differing(now: Options, then: Options) -> Iterator[str]:
    names = [*now, *(name for name in then if name not in now)]
    return (name for name in names if name not in now or name not in then or now[name] != then[name])


def _flat(options: Options, above: str) -> Iterator[tuple[str, Any]]:
    for name, value in options.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", value


def _value(options: Options, name: str) -> str:
    return _short(options[name]) if name in options else "default"


def value_text(value: Any) -> str:
    """Format the value of an option: a text unchanged, any other value as JSON."""
    return value if isinstance(value, str) and value else json.dumps(value)


def _short(value: Any) -> str:
    text = value_text(value)
    return text if len(text) <= _MAX_VALUE else text[: _MAX_VALUE - 1] + "…"


# --- endpoints, state, health, debug


def _show_endpoint(answer: Mapping[str, Any]) -> Iterator[Any]:
    listed = {kind: places if isinstance(places, list) else [places] for kind, places in answer.items()}
    rows = [(kind, str(place)) for kind, places in listed.items() for place in places]
    yield Table(("", "where"), rows, empty="The endpoint has no address yet.")


#: Statuses of the API's health that are accepted as answers.
_HEALTH_CODES = (203, 205, 206, 207, 316, 317, 318, 319, 320, 321, 500)


def _is_unhealthy(answer: Mapping[str, Any]) -> bool:
    """Whether the scheduler is unhealthy, or the job has failed."""
    return bool(answer["value"] >= 400 or answer.get("verdict") == "failed")


def _show_health(answer: Any) -> Iterator[Any]:
    yield Line(
        (
            Word(str(answer["value"]), "bad" if _is_unhealthy(answer) else "good"),
            "  ",
            "; ".join(answer.get("reasons") or ()),
        )
    )


_MAX_OFFERS = 20


def _show_offers(answer: Mapping[str, Any]) -> Iterator[Any]:
    yield Line((f"accepted {answer['acceptedCount']}, rejected {answer['rejectedCount']}",))
    rows = [_offer_row(evaluation) for evaluation in answer["offers"][:_MAX_OFFERS]]
    yield Table(("when", "pod", "outcome", "why"), rows, empty="No offer has been evaluated yet.")


def _offer_row(evaluation: Mapping[str, Any]) -> Sequence[Any]:
    when = local_time(evaluation["timestamp"] / 1000)  # the SDK's unit is milliseconds
    reasons = "\n".join(evaluation["explanation"])
    return (
        when,
        evaluation["pod-instance-name"],
        Word(evaluation["outcome"], "good" if evaluation["outcome"] == "pass" else "bad"),
        reasons,
    )


_ENDPOINT = Name("endpoint", "endpoints", lambda service, _: service.get(api_path("endpoints")))
CONFIGURATION = Name("config", "config list", lambda service, _: service.get(api_path("configurations")))
_PROPERTY = Name("property", "state properties", lambda service, _: service.get(api_path("state", "properties")))

group("config", "Show configurations.", "config list", "config show ID")
group("state", "Show the scheduler's stored state.", "state properties", "state property worker-0:task-status")
group("secrets", "Manage secrets of tasks.", "secrets refresh")
group("debug config", "Same as `config`.", hidden=True)
group("debug state", "Same as `state`.", hidden=True)


@command("endpoints", "endpoint", sdk_json=True)
@argument("endpoint", _ENDPOINT, required=False, help="Name of an endpoint.", example="worker")
def endpoints(call: CommandCall, endpoint: str | None) -> int:
    """List endpoints, or the addresses of one endpoint."""
    service = call.service
    if not endpoint:
        return call.show(service.get(api_path("endpoints")), show_names)
    answer = service.get(api_path("endpoints", endpoint))
    if not call.as_json and service.direct and is_loopback(service.url):
        answer = {"address": answer.get("address", [])}  # only DC/OS resolves the names
    return call.show(answer, _show_endpoint)


@command("config list", "debug config list", sdk_json=True)
def list_configurations(call: CommandCall) -> int:
    """List the configurations and what each of them changed."""
    if call.as_json:  # the JSON of the SDK
        return call.show(call.service.get(api_path("configurations")), show_names)
    ids = call.service.get(api_path("configurations"))
    answer = [configuration for name in ids for configuration in _fetch_configuration(call.service, name)]
    return call.show(answer, _show_configurations)


@command("config show", "debug config show")
@argument("id", CONFIGURATION, help="Id of a configuration, see `config list`.", example="ID")
def show_configuration(call: CommandCall, id: str) -> int:  # noqa: A002
    """Show a configuration."""
    return call.show(call.service.get(api_path("configurations", id)), show_json)


@command("config target", "debug config target")
def show_target(call: CommandCall) -> int:
    """Show the target configuration."""
    return call.show(call.service.get(api_path("configurations", "target")), show_json)


@command("config target-id", "config target_id", "debug config target_id", sdk_json=True)
def show_target_id(call: CommandCall) -> int:
    """Show the id of the target configuration."""
    return call.show(call.service.get(api_path("configurations", "targetId")), show_names)


@command("state framework-id", "state framework_id", "debug state framework_id", sdk_json=True)
def show_framework_id(call: CommandCall) -> int:
    """Show the id of the framework in Mesos."""
    return call.show(call.service.get(api_path("state", "frameworkId")), show_names)


@command("state properties", "debug state properties", sdk_json=True)
def list_properties(call: CommandCall) -> int:
    """List the stored properties."""
    return call.show(call.service.get(api_path("state", "properties")), show_names)


@command("state property", "debug state property")
@argument("property", _PROPERTY, help="Name of a property.", example="worker-0:task-status")
def show_property(call: CommandCall, property: str) -> int:  # noqa: A002
    """Show a stored property."""
    return call.show(call.service.get(api_path("state", "properties", property)), show_json)


@command("secrets refresh")
def refresh_secrets(call: CommandCall) -> int:
    """Deliver new values of secrets to running tasks."""
    return call.show(call.service.post(api_path("tf", "secrets", "refresh")), show_message)


@command("secrets acknowledge")
def acknowledge_secrets(call: CommandCall) -> int:
    """Acknowledge that another process may have taken secrets."""
    return call.show(call.service.post(api_path("tf", "secrets", "acknowledge")), show_message)


@command("describe")
def describe(call: CommandCall) -> int:
    """Show the options of the service."""
    service = call.service
    if service.direct and not (service.installation or service.job):  # without DC/OS: those that the scheduler got
        target = service.get(api_path("configurations", "target"))
        return call.show(target.get("options") or target, show_json)
    return call.show(installation_of(service).describe()["resolvedOptions"], show_json)


@command("health", exit_codes="0 healthy or starting, 1 the job has failed or the scheduler is unhealthy")
def health(call: CommandCall) -> int:
    """Show service health."""
    status, body = call.service.get_with_status(api_path("health"), _HEALTH_CODES, verbose="true")
    answer = {"value": status, **body}  # an old scheduler answers some statuses without a body
    return call.show(answer, _show_health, int(_is_unhealthy(answer)))


@command("debug offers")
def show_offers(call: CommandCall) -> int:
    """Show the last offer decisions with their reasons."""
    return call.show(call.service.get("v2/debug/offers"), _show_offers)
