"""Commands that show service state: `progress`, `health`, `config`, `debug`, ..."""

from __future__ import annotations

import json
import time
from typing import Any, Iterator, Mapping, Sequence

from tf_executor.contract.http import is_loopback
from tf_executor.contract.text import format_duration, format_number, sparkline

from .client import ServiceClient, api_path, installation_of
from .command import (
    SERVICE,
    Command,
    CommandArgument,
    CommandOption,
    Fetch,
    Params,
    Show,
    get,
    show_json,
    show_message,
    show_names,
)
from .errors import CommandError, RefusedError, UnreachableError
from .output import Line, Renderable, Table, Word, dim, local_time, status_word

_NOT_FOUND = 404

# --- progress

_BAR_WIDTH, _CURVE_WIDTH = 24, 20  # characters


def progress_bar(fraction: float | None, width: int = _BAR_WIDTH) -> str:
    """A bar for 0 to 1, in halves of a character; None: unknown."""
    if fraction is None:
        return "╌" * width
    halves = round(min(1.0, max(0.0, fraction)) * width * 2)
    half = "╸" if halves % 2 else ""
    return "━" * (halves // 2) + half + "─" * (width - halves // 2 - len(half))


def show_progress(answer: Mapping[str, Any], _params: Params) -> Renderable:
    """A row per job that reports training progress."""
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
    """Task whose loss represents the job: the leader, else the slowest."""
    tasks = [task for task in answer["tasks"] if task["job"] == job and task["step"] is not None]
    leading = [task for task in tasks if task["name"] == answer["leader"]]
    return min(leading or tasks or [{}], key=lambda task: task.get("step", 0))


def _progress_row(name: str, job: Mapping[str, Any], task: Mapping[str, Any]) -> list[Any]:
    step, total = job["step"], job["total"]
    fraction = step / total if step is not None and total else None
    losses = [point["loss"] for point in task.get("points") or ()]
    return [
        name,
        Word(progress_bar(fraction), "good" if fraction is not None and fraction >= 1 else "busy"),
        f"{format_number(step)}/{format_number(total)}" if step is not None and total else format_number(step),
        format_number(job["steps_per_second"]),
        format_number(job["examples_per_second"]),
        format_duration(task.get("seconds_left")),
        format_number(task.get("loss")),
        Word(sparkline(losses, _CURVE_WIDTH), "good"),
    ]


def _progress_details(task: Mapping[str, Any]) -> str:
    """Return epoch, metrics, and the source unless it is a report of the program."""
    epochs = f" of {task['epochs']}" if task.get("epochs") else ""
    metrics = (f"{name} {format_number(value)}" for name, value in (task.get("metrics") or {}).items())
    source = task.get("source") or "report"
    parts = (
        f"epoch {task['epoch']}{epochs}" if task.get("epoch") is not None else "",
        *metrics,
        "" if source == "report" else f"from {source}",
    )
    return ", ".join(part for part in parts if part)


#: Exit codes of a job's result.
EXIT_CODES = {"succeeded": 0, "failed": 1, "stopped": 4}
#: Exit code without a result.
_UNDECIDED = 5


def result_code(answer: Mapping[str, Any]) -> int:
    """Exit code of a command that shows a job's result."""
    return EXIT_CODES.get(answer["verdict"], _UNDECIDED)


def final_result(service: ServiceClient) -> Any:
    """Result of the job; None while it is not decided."""
    answer = service.get(api_path("tf", "result"))
    return None if answer["verdict"] is None else answer


def show_result(answer: Mapping[str, Any], _params: Params) -> Renderable:
    """How the job has ended, and why."""
    if answer["verdict"] is None:
        return (Line((Word("no result yet", "wait"),)),)
    return (Line((status_word(answer["verdict"]), ": ", str(answer["reason"]))),)


# --- wait

_POLL_SECONDS = 0.5
#: Seconds without an answer after which `wait` gives up; a restarted scheduler usually comes back.
_MAX_SILENCE = 60.0


class _WaitTimeoutError(CommandError):
    """`wait --timeout` has passed; the exit code is that of timeout(1)."""

    kind = "timeout"
    exit_code = 124


def _wait(service: ServiceClient, params: Params) -> Any:
    """The result of the job, or with `--for training` the progress at its first step."""
    started = answered = time.monotonic()
    has_answered, limit = False, params.get("timeout")
    while True:
        try:
            answer = final_result(service) or (_first_step(service) if params.get("for") == "training" else None)
            has_answered, answered = True, time.monotonic()
        except UnreachableError:
            # The scheduler of a local run exits with its job.
            answer = service.run.result() if service.run else None
            if service.run is None and (not has_answered or time.monotonic() > answered + _MAX_SILENCE):
                raise
        if answer is not None:
            return answer
        if limit is not None and time.monotonic() >= started + limit:
            raise _WaitTimeoutError(f"not {'decided' if params.get('for') == 'result' else 'training'} after {limit} s")
        time.sleep(_POLL_SECONDS)


def _first_step(service: ServiceClient) -> Any:
    tasks = service.get(api_path("tf", "progress"))["tasks"]
    first = next((task for task in tasks if task["step"] is not None), None)
    return first and {"verdict": None, "reason": None, "task": first["name"], "step": first["step"]}


def _show_wait(answer: Mapping[str, Any], params: Params) -> Renderable:
    if "step" not in answer:
        return show_result(answer, params)
    return (Line((Word("training", "good"), f": {answer['task']} is at step {format_number(answer['step'])}")),)


# --- config

_MAX_CHANGES = 3  # options
_MAX_VALUE = 24  # characters of a value

Options = Mapping[str, Any]


def _fetch_configurations(service: ServiceClient, _params: Params) -> Any:
    """All configurations with their content, newest first."""
    ids = service.get(api_path("configurations"))
    return [configuration for name in ids for configuration in _fetch_configuration(service, name)]


def _fetch_configuration(service: ServiceClient, name: str) -> Iterator[Mapping[str, Any]]:
    try:
        yield {**service.get(api_path("configurations", name)), "id": name}
    except RefusedError as error:
        if error.http_status != _NOT_FOUND:  # a new configuration evicts the oldest one
            raise


def _show_configurations(answer: Sequence[Mapping[str, Any]], _params: Params) -> Renderable:
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
    """Options that differ from the previous target; None: unknown.

    No changes are stored if the previous options had become invalid; then `older`, these options, are compared.
    """
    if "changed" in configuration:
        changed = configuration["changed"]
        return [f"{item['option']}: {_short(item['old'])} → {_short(item['new'])}" for item in changed]
    if older is None:
        return None
    now, then = dict(_flat(configuration.get("options") or {}, "")), dict(_flat(older, ""))
    return [f"{name}: {_value(then, name)} → {_value(now, name)}" for name in _differing(now, then)]


def changed_options(options: Options, older: Options) -> Sequence[str]:
    """Names of the options that differ."""
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
    """The value of an option: a text unchanged, any other value as JSON."""
    return value if isinstance(value, str) and value else json.dumps(value)


def _short(value: Any) -> str:
    text = value_text(value)
    return text if len(text) <= _MAX_VALUE else text[: _MAX_VALUE - 1] + "…"


# --- endpoints, state, health, debug


def _fetch_endpoints(service: ServiceClient, params: Params) -> Any:
    """The answer; on this machine without names, which only DC/OS resolves."""
    answer = get("endpoints/{endpoint}")(service, params)
    local = service.direct and is_loopback(service.url)
    return {"address": answer.get("address", [])} if local and isinstance(answer, dict) else answer


def _show_endpoints(answer: Any, params: Params) -> Iterator[Any]:
    if not params.get("endpoint"):
        yield from answer
        return
    listed = {kind: places if isinstance(places, list) else [places] for kind, places in answer.items()}
    rows = [(kind, str(place)) for kind, places in listed.items() for place in places]
    yield Table(("", "where"), rows, empty="The endpoint has no address yet.")


#: Statuses of the API's health that are accepted as answers.
_HEALTH_CODES = (203, 205, 206, 207, 317, 318, 319, 320, 321, 500)
#: HTTP allows no body for these.
_HEALTH_WITHOUT_BODY = {204: "deploying: nothing is launched yet", 205: "recovering"}


def _describe(service: ServiceClient, params: Params) -> Any:
    """All options as DC/OS stores them; without DC/OS those that the scheduler got."""
    if service.direct and service.installation is None:
        target = get("configurations/target")(service, params)
        return target.get("options") or target
    return installation_of(service).describe()["resolvedOptions"]


def _health(service: ServiceClient, _params: Params) -> Any:
    status, answer = service.get_with_status(api_path("health"), _HEALTH_CODES, verbose="true")
    return answer or {"value": status, "reasons": [_HEALTH_WITHOUT_BODY.get(status, "")]}


def _is_unhealthy(answer: Mapping[str, Any]) -> bool:
    """Whether the scheduler is unhealthy, or the job has failed."""
    return bool(answer["value"] >= 400 or answer.get("verdict") == "failed")


def _show_health(answer: Any, _params: Params) -> Iterator[Any]:
    yield Line(
        (
            Word(str(answer["value"]), "bad" if _is_unhealthy(answer) else "good"),
            "  ",
            "; ".join(answer.get("reasons") or ()),
        )
    )


_MAX_OFFERS = 20


def _show_offers(answer: Mapping[str, Any], _params: Params) -> Iterator[Any]:
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


_ENDPOINT = CommandArgument("endpoint", "endpoint", required=False, help="Name of an endpoint.", example="worker")
_ID = CommandArgument("id", "config", help="Id of a configuration, see `config list`.", example="ID")
_PROPERTY = CommandArgument("property", "property", help="Name of a property.", example="worker-0:task-status")


def _sdk(
    words: str, help_text: str, fetch: Fetch, show: Show, *arguments: CommandArgument, aliases: Any = (), **more: Any
) -> Command:
    """A command that is also available below `debug`, as in the SDK."""
    below_debug = f"debug {aliases[-1] if aliases else words}"
    return Command(words, help_text, fetch, show, arguments, aliases=(*aliases, below_debug), **more)


_listing: Mapping[str, Any] = {"show": show_names, "sdk_json": True}
COMMANDS = (
    Command(
        "progress",
        "Show the training progress, updated live on a terminal.",
        get("tf/progress", points=str(_CURVE_WIDTH)),
        show_progress,
        poll_until=final_result,
        show_last=show_result,
        exit_code=lambda answer: result_code(answer) if "verdict" in answer else 0,
        exit_codes="on a terminal 0 succeeded, 1 failed, 4 stopped; otherwise 0, whatever the job does",
    ),
    Command(
        "result",
        "Show how the training ended; the exit code tells it.",
        get("tf/result"),
        show_result,
        exit_code=result_code,
        exit_codes="0 succeeded, 1 failed, 4 stopped, 5 not decided yet",
        show_ended=show_result,
    ),
    Command(
        "wait",
        "Wait for the result; the exit code tells it.",
        _wait,
        _show_wait,
        (SERVICE,),
        (
            CommandOption(
                "timeout", "Maximum time to wait; then exit with 124.", "number", metavar="SECONDS", minimum=0
            ),
            CommandOption("for", "Wait for this.", choices=("result", "training"), default="result"),
        ),
        exit_code=lambda answer: 0 if "step" in answer else result_code(answer),
        exit_codes="0 succeeded, or training with --for training; 1 failed, 4 stopped, 124 after --timeout",
        show_ended=show_result,
        examples=("", "mnist --timeout 3600", "--for training"),
    ),
    Command(
        "endpoints",
        "List endpoints, or the addresses of one endpoint.",
        get("endpoints/{endpoint}"),
        _show_endpoints,
        (_ENDPOINT,),
        fetch_for_humans=_fetch_endpoints,
        aliases=("endpoint",),
        sdk_json=True,
    ),
    _sdk(
        "config list",
        "List the configurations and what each of them changed.",
        get("configurations"),
        _show_configurations,
        fetch_for_humans=_fetch_configurations,
        sdk_json=True,
    ),
    _sdk("config show", "Show a configuration.", get("configurations/{id}"), show_json, _ID),
    _sdk("config target", "Show the target configuration.", get("configurations/target"), show_json),
    _sdk(
        "config target-id",
        "Show the id of the target configuration.",
        get("configurations/targetId"),
        aliases=("config target_id",),
        **_listing,
    ),
    _sdk(
        "state framework-id",
        "Show the id of the framework in Mesos.",
        get("state/frameworkId"),
        aliases=("state framework_id",),
        **_listing,
    ),
    _sdk("state properties", "List the stored properties.", get("state/properties"), **_listing),
    _sdk("state property", "Show a stored property.", get("state/properties/{property}"), show_json, _PROPERTY),
    _sdk(
        "state refresh",
        "Not supported: the scheduler has no cache to refresh.",
        lambda service, _: service.put(api_path("state", "refresh")),
        show_message,
        aliases=("state refresh_cache",),
    ),
    Command(
        "secrets refresh",
        "Deliver new values of secrets to running tasks.",
        lambda service, _: service.post(api_path("tf", "secrets", "refresh")),
        show_message,
    ),
    Command(
        "secrets acknowledge",
        "Acknowledge that another process may have taken secrets.",
        lambda service, _: service.post(api_path("tf", "secrets", "acknowledge")),
        show_message,
    ),
    Command("describe", "Show the options of the service.", _describe, show_json),
    Command(
        "health",
        "Show service health.",
        _health,
        _show_health,
        exit_code=lambda answer: int(_is_unhealthy(answer)),
        exit_codes="0 healthy or starting, 1 the job has failed or the scheduler is unhealthy",
    ),
    Command(
        "debug offers",
        "Show the last offer decisions with their reasons.",
        lambda service, _: service.get("v2/debug/offers"),
        _show_offers,
    ),
)
