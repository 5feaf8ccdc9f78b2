"""Parse JSON answers of the scheduler, Cosmos and Marathon, and check their types.

Members that the answer's type does not name may have any value: a newer scheduler may send more members.
"""

import json
import re
from enum import Enum
from typing import (
    Any,
    Dict,
    Iterator,
    List,
    Literal,
    Mapping,
    NoReturn,
    Optional,
    Sequence,
    Tuple,
    TypedDict,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from tf_executor.contract import bodies

from .errors import UnreachableError

#: Deepest nesting of an answer; `json.dumps` with an indent fails at about 300.
_MAX_DEPTH = 100
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
#: Largest number that can be a float, unlike an integer of 400 digits.
_MAX_NUMBER = 1.7e308

# Answers of Cosmos and Marathon (dcos/cosmos, rpc/v1/model; Marathon, REST API), as far as commands read them.


class MismatchBody(TypedDict):
    """One of the problems that Cosmos lists for options."""

    instance: "_Instance"
    message: str


class _Instance(TypedDict):
    pointer: str


class RejectionBody(TypedDict, total=False):
    """One of the problems that Marathon lists for an app."""

    path: str
    errors: List[str]


class _Package(TypedDict):
    name: str
    version: str


class _DescriptionBody(TypedDict):
    package: _Package
    resolvedOptions: Dict[str, Any]


class DescriptionBody(_DescriptionBody, total=False):
    userProvidedOptions: Optional[Dict[str, Any]]


class _Failure(TypedDict, total=False):
    message: Optional[str]
    version: Optional[str]
    taskId: Optional[str]


class _App(TypedDict, total=False):
    version: Optional[str]
    lastTaskFailure: Optional[_Failure]


class AppBody(TypedDict, total=False):
    app: Optional[_App]


class _ListedApp(TypedDict):
    id: str


class ListedApp(_ListedApp, total=False):
    labels: Dict[str, Any]


class AppsBody(TypedDict):
    apps: List[ListedApp]


class _Environment(TypedDict, total=False):
    env: Dict[str, Any]


class RenderedBody(TypedDict):
    marathonJson: _Environment


class InstalledBody(TypedDict):
    appId: str


class UninstalledBody(TypedDict):
    results: List[InstalledBody]


_NAMES, _OBJECT = List[str], Dict[str, Any]
#: Method, or `event` and its name, with the path; type of the answer. The first match counts.
_TYPES: Sequence[Tuple[str, Any]] = (
    ("GET v1/(plans|pod|configurations|configurations/targetId|endpoints)", _NAMES),
    ("GET v1/state/(frameworkId|properties)", _NAMES),
    ("GET v1/plans/[^/]*", bodies.PlanBody),
    ("GET v1/configurations/[^/]*", bodies.ConfigurationBody),
    ("GET v1/endpoints/[^/]*", _OBJECT),
    ("GET v1/pod/status", bodies.PodsBody),
    ("GET v1/pod/[^/]*/status", bodies.PodBody),
    ("POST v1/pod/[^/]*/[^/]*", Union[bodies.PodCommandBody, bodies.MessageBody]),
    ("GET v1/queue", bodies.QueueBody),
    ("(GET|POST) v1/jobs/[^/]*", bodies.QueuedJobBody),
    ("POST v1/jobs(/[^/]*/(move|options|cancel))?", bodies.QueuedJobBody),
    ("GET v1/tasks", bodies.TasksBody),
    ("GET v1/tasks/[^/]*", bodies.TaskBody),
    ("GET v1/tasks/[^/]*/logs", bodies.LogBody),
    ("GET v1/tasks/[^/]*/files", bodies.FilesBody),
    ("POST v1/tasks/[^/]*/exec", bodies.StartedBody),
    ("GET v1/tasks/[^/]*/exec/[^/]*", bodies.ExecutedBody),
    ("event log v1/tasks/[^/]*/logs", bodies.LogEventBody),
    ("event launch v1/tasks/[^/]*/logs", bodies.LaunchedBody),
    ("event end v1/tasks/[^/]*/logs", bodies.EndBody),
    ("event error v1/tasks/[^/]*/logs", bodies.ErrorBody),
    ("event .* v1/tasks/[^/]*/logs", _OBJECT),
    ("GET v1/events", bodies.EventsBody),
    ("event .* v1/events", bodies.EventBody),
    # A scheduler that is starting answers without a body.
    ("GET v1/health", Union[bodies.HealthBody, Dict[str, NoReturn]]),
    ("GET v1/pending", bodies.PendingBody),
    ("GET v1/tf/cluster", bodies.ClusterBody),
    ("GET v1/tf/run", _OBJECT),
    ("GET v1/tf/result", bodies.ResultBody),
    ("GET v1/tf/progress", bodies.TrainingBody),
    ("GET v1/tf/overview", bodies.OverviewBody),
    ("POST v1/tf/update/preview", bodies.PreviewBody),
    ("GET v1/debug/mesos", bodies.MesosBody),
    ("GET v2/debug/offers", bodies.OffersBody),
    ("POST v1/.+", _OBJECT),
    ("POST cosmos/service/describe", DescriptionBody),
    ("POST cosmos/service/update", _OBJECT),
    ("POST package/render", RenderedBody),
    ("POST package/install", InstalledBody),
    ("POST package/uninstall", UninstalledBody),
    ("GET v2/apps", AppsBody),
    ("GET v2/apps/.+", AppBody),
)
_PATTERNS = [(re.compile(pattern), kind) for pattern, kind in _TYPES]


def parse_answer(request: str, url: str, text: str) -> Any:
    """Return the JSON of an answer, `{}` for an empty answer.

    `request`: such as `GET v1/plans`, or `event log v1/tasks/worker-0/logs`. Raise UnreachableError if the answer
    cannot be from a scheduler or DC/OS.
    """
    try:
        answer = parse_json(text) if text else {}
    except ValueError as error:
        raise _wrong(request, url, f"not JSON: {text[:200]!r}") from error
    return check_answer(request, url, answer)


def check_answer(request: str, url: str, answer: Any) -> Any:
    """Return the answer if it has the type for this request; raise as `parse_answer`."""
    if (problem := next(_problems(answer, type_of(request), "answer"), None)) is not None:
        raise _wrong(request, url, problem)
    return answer


def type_of(request: str) -> Any:
    """Return the type of the answer to a request; Any for an unknown request."""
    return next((kind for pattern, kind in _PATTERNS if pattern.fullmatch(request)), Any)


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


def has_type(value: Any, kind: Any) -> bool:
    """Whether a JSON value has the type."""
    return next(_problems(value, kind, ""), None) is None


def _problems(value: Any, kind: Any, place: str) -> Iterator[str]:
    """Yield each difference from the type with its path, as `answer.tasks[0].name`."""
    origin, inner = get_origin(kind), get_args(kind)
    if hasattr(kind, "__total__"):
        yield from _object_problems(value, kind, place) if isinstance(value, dict) else (f"{place}: not an object",)
    elif origin is list:
        if not isinstance(value, list):
            yield f"{place}: not a list"
            return
        for at, item in enumerate(value):
            yield from _problems(item, inner[0], f"{place}[{at}]")
    elif origin is dict:
        if not isinstance(value, dict):
            yield f"{place}: not an object"
            return
        for key, item in value.items():
            yield from _problems(item, inner[1], f"{place}.{key}")
    elif not _is_scalar(value, kind):
        yield f"{place}: unexpected value"


def _is_scalar(value: Any, kind: Any) -> bool:
    if get_origin(kind) is Union:
        return any(has_type(value, each) for each in get_args(kind))
    if get_origin(kind) is Literal or (isinstance(kind, type) and issubclass(kind, Enum)):
        return isinstance(value, str)  # a newer scheduler may know more words
    if kind in (int, float):
        is_number = isinstance(value, (int, kind)) and not isinstance(value, bool)
        return is_number and abs(value) <= _MAX_NUMBER
    return kind is Any or (kind is not NoReturn and isinstance(value, kind))


def _object_problems(value: Mapping[str, Any], kind: Any, place: str) -> Iterator[str]:
    required = bodies.required_names(kind)
    for name, inner in get_type_hints(kind).items():
        if name in value:
            yield from _problems(value[name], inner, f"{place}.{name}")
        elif name in required:
            yield f"{place}.{name}: missing"
