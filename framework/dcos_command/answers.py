"""Check the JSON of answers, so that commands read only fields that exist.

`_SHAPES` lists what the commands read of each path; other fields may have any value.
"""

from __future__ import annotations

import json
import re
from typing import Any, Callable, Iterator, Mapping, Sequence, Tuple, Union

from .errors import UnreachableError

#: A type; the alternatives of a tuple; a list of one shape; an object with `name` or optional `name?`, where `*` is
#: every name; a predicate.
Shape = Union[type, Tuple[Any, ...], Sequence[Any], Mapping[str, Any], Callable[[Any], bool]]

#: Deepest nesting of an answer; `json.dumps` with an indent fails at about 300.
_MAX_DEPTH = 100
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def _number(value: Any) -> bool:
    """A number that can be a float, unlike an integer of 400 digits."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= 1.7e308


def _time(value: Any) -> bool:
    """Seconds since 1970, up to the year 5138, or milliseconds up to the same year."""
    return _number(value) and 0 <= value <= 1e14


def _unix_time(value: Any) -> bool:
    return _number(value) and 0 <= value <= 1e11


def _empty(value: Any) -> bool:
    """The value of an answer without a body."""
    return bool(value == {})


def _absent(_value: Any) -> bool:
    return False


ANY: tuple[Any, ...] = (object,)
_NAMES, _TEXT, _NUMBER = [str], (str, None), (_number, None)
_TASK = {
    **dict.fromkeys(("name", "status"), str),
    **dict.fromkeys(("hostname", "address", "message"), _TEXT),
    "generation": _NUMBER,
    "healthy": ANY,
    "pending": _NAMES,
    "resources": {"gpus": _number},
}
_PLAN_PART = {"name": str, "status": str}
_STEP = {**_PLAN_PART, "message": _TEXT}
_PHASE = {**_PLAN_PART, "strategy": str, "steps": [_STEP]}
_PLAN = {"status": str, "strategy": str, "phases": [_PHASE], "errors": _NAMES}
_POD = {"name": str, "tasks": [dict.fromkeys(("name", "status", "id"), str)]}
_EVENT = {"message": str, "time": _unix_time, "task": _TEXT, "warning": ANY}
_CHANGE = {"option": str, "old": ANY, "new": ANY}
_CONFIGURATION = {"rejected?": (_NAMES, None), "options?": {}, "at?": _unix_time, "changed?": [_CHANGE]}
_JOB_PROGRESS = dict.fromkeys(("step", "total", "steps_per_second", "examples_per_second"), _NUMBER)
_TASK_PROGRESS = {
    "name": str,
    "job": str,
    "step": _NUMBER,
    "seconds_left?": _NUMBER,
    "loss?": _NUMBER,
    "epoch?": _NUMBER,
    "epochs?": _NUMBER,
    "source?": (_TEXT, None),
    "metrics?": {"*": _NUMBER},
    "points?": ([{"loss": _NUMBER}], None),
}
_OVERVIEW_TASK = {
    **dict.fromkeys(("name", "hostname", "state", "message"), str),
    **dict.fromkeys(
        ("step?", "total?", "loss?", "steps_per_second?", "examples_per_second?", "seconds_left?"), _NUMBER
    ),
    "activity?": str,
}
_OVERVIEW = {
    **dict.fromkeys(("service", "verdict", "reason", "refused"), str),
    **dict.fromkeys(("activity?", "detail?", "last_restart?"), str),
    "restarts?": _NUMBER,
    "leader": _TEXT,
    "tasks": [_OVERVIEW_TASK],
    "notices": _NAMES,
}
_OFFER = {"timestamp": _time, "explanation": _NAMES, "pod-instance-name": str, "outcome": str}
_PENDING_TASK = {"name": str, "plan": _TEXT, "status": str, "reasons": _NAMES}
_CLUSTER_TASK = {"name": str, "address": _TEXT, "hostname": _TEXT, "generation": _NUMBER, "tf_config": ANY}
_PREVIEW = {
    "refused": [{"option": str, "reason": str}],
    "changed": [_CHANGE],
    "restarted": [{"task": str, "reason": str, "step?": _NUMBER, "saved_step?": _NUMBER}],
    **dict.fromkeys(("added", "removed"), _NAMES),
    "requested?": _NUMBER,
}
_MESOS = {
    "refused_calls": ({"cause": str}, None),
    "clock_drift": _number,
    "may_still_run": _NAMES,
    "failing_agents": [{"hostname": str, "failures": [_number], "avoided_until": _number}],
}
_DESCRIPTION: Mapping[str, Any] = {
    "package": {"name": str, "version": str},
    "userProvidedOptions?": ({}, None),
    "resolvedOptions": {},
}
_APP = {"version?": _TEXT, "lastTaskFailure?": ({"message?": _TEXT, "version?": _TEXT, "taskId?": _TEXT}, None)}
#: Method, or `event` and its name, with the path; shape. The first match counts.
_SHAPES: Sequence[tuple[str, Shape]] = (
    ("GET v1/(plans|pod|configurations|configurations/targetId|endpoints)", _NAMES),
    ("GET v1/state/(frameworkId|properties)", _NAMES),
    ("GET v1/plans/[^/]+", _PLAN),
    ("GET v1/configurations/[^/]+", _CONFIGURATION),
    ("GET v1/endpoints/[^/]+", {}),
    ("GET v1/pod/status", {"pods": [{"instances": [_POD]}]}),
    ("GET v1/pod/[^/]+/status", _POD),
    ("POST v1/pod/[^/]+/[^/]+", ({"pod": str, "tasks": _NAMES}, {"pod?": _absent, "message": str})),
    ("GET v1/tasks", {"tasks": [_TASK], "may_still_run?": _NAMES}),
    ("GET v1/tasks/[^/]+", _TASK),
    ("GET v1/tasks/[^/]+/logs", {"data": str, **dict.fromkeys(("offset", "size", "next"), int)}),
    ("GET v1/tasks/[^/]+/files", {"id": str, "files": [{"name": str, "mode": str, "size": int}]}),
    ("event log v1/tasks/[^/]+/logs", {"data": str}),
    ("event launch v1/tasks/[^/]+/logs", {"id": str}),
    ("event end v1/tasks/[^/]+/logs", {"state": _TEXT}),
    ("event error v1/tasks/[^/]+/logs", {"error": {"message": str}}),
    ("event .* v1/tasks/[^/]+/logs", {}),
    ("GET v1/events", {"events": [_EVENT], "next": _number, "journal?": _TEXT}),
    ("event .* v1/events", _EVENT),
    ("GET v1/health", ({"value": _number, "reasons?": (_NAMES, None), "verdict?": _TEXT}, _empty)),
    (
        "GET v1/pending",
        {"tasks": [_PENDING_TASK], "evaluated_at": _NUMBER, **dict.fromkeys(("offers", "agents"), _number)},
    ),
    ("GET v1/tf/cluster", {"generation": _number, "strategy": str, "tasks": [_CLUSTER_TASK]}),
    ("GET v1/tf/result", {"verdict": _TEXT, "reason": _TEXT}),
    (
        "GET v1/tf/progress",
        {"leader": _TEXT, "jobs": {"*": {"reporting": ANY, **_JOB_PROGRESS}}, "tasks": [_TASK_PROGRESS]},
    ),
    ("POST v1/tf/update/preview", _PREVIEW),
    ("GET v1/debug/mesos", _MESOS),
    ("GET v2/debug/offers", {"acceptedCount": _number, "rejectedCount": _number, "offers": [_OFFER]}),
    ("(POST|PUT) v1/.+", {}),
    ("POST cosmos/service/describe", _DESCRIPTION),
    ("POST cosmos/service/update", {}),
    ("POST package/render", {"marathonJson": {"env?": {}}}),
    ("POST package/install", {"appId": str}),
    ("POST package/uninstall", {"results": [{"appId": str}]}),
    ("GET v1/tf/overview", _OVERVIEW),
    ("GET v2/apps", {"apps": [{"id": str, "labels?": {}}]}),
    ("GET v2/apps/.+", {"app?": (_APP, None)}),
)
_PATTERNS = [(re.compile(pattern), shape) for pattern, shape in _SHAPES]


def parse_answer(request: str, url: str, text: str) -> Any:
    """Return the JSON of an answer, `{}` for an empty one.

    `request`: such as `GET v1/plans`, or `event log v1/tasks/worker-0/logs`. Raise UnreachableError if neither a
    scheduler nor DC/OS answers like this.
    """
    try:
        answer = parse_json(text) if text else {}
    except ValueError as error:
        raise _wrong(request, url, f"not JSON: {text[:200]!r}") from error
    return check_answer(request, url, answer)


def check_answer(request: str, url: str, answer: Any) -> Any:
    """Return the answer if it has the fields that commands read, see `parse_answer`."""
    for pattern, shape in _PATTERNS:
        if pattern.fullmatch(request):
            if (problem := next(_problems(answer, shape, "answer"), None)) is not None:
                raise _wrong(request, url, problem)
            break
    return answer


def parse_json(text: str) -> Any:
    """Parse JSON from a server. Raise ValueError, also if it is nested too deeply."""
    try:
        value = json.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if _SURROGATE.search(text):  # half a character cannot be printed; the encoder replaces it by `?`
        value = json.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))
    level = [value]
    for _ in range(_MAX_DEPTH):
        level = [part for each in level for part in _parts(each)]
        if not level:
            return value
    raise ValueError("nested too deeply")


def _parts(value: Any) -> Any:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def _wrong(request: str, url: str, why: str) -> UnreachableError:
    server = "a scheduler" if re.search(r" v1/| v2/debug/", request) else "DC/OS"
    return UnreachableError(f"{url} does not answer as {server}: {why}")


def has_shape(value: Any, shape: Shape) -> bool:
    """Whether the value has the shape."""
    return next(_problems(value, shape, ""), None) is None


def _problems(value: Any, shape: Any, place: str) -> Iterator[str]:
    """What differs from the shape, with its place, such as `answer.tasks[0].name`."""
    if isinstance(shape, tuple):
        if not any(value is each if each is None else has_shape(value, each) for each in shape):
            yield f"{place}: unexpected value"
    elif isinstance(shape, list):
        if not isinstance(value, list):
            yield f"{place}: not a list"
            return
        for at, item in enumerate(value):
            yield from _problems(item, shape[0], f"{place}[{at}]")
    elif isinstance(shape, dict):
        yield from _object_problems(value, shape, place) if isinstance(value, dict) else (f"{place}: not an object",)
    elif not (isinstance(value, shape) if isinstance(shape, type) else shape(value)):
        yield f"{place}: unexpected value"


def _object_problems(value: Mapping[str, Any], shape: Mapping[str, Any], place: str) -> Iterator[str]:
    for field, inner in shape.items():
        name = field.rstrip("?")
        if field == "*":
            for key, item in value.items():
                yield from _problems(item, inner, f"{place}.{key}")
        elif name in value:
            yield from _problems(value[name], inner, f"{place}.{name}")
        elif name == field:
            yield f"{place}.{name}: missing"
