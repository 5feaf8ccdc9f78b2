"""Parse, validate and resolve an options file; report all problems together."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import replace
from difflib import get_close_matches
from inspect import isfunction
from types import ModuleType
from typing import Any, NoReturn

from marshmallow import Schema, ValidationError, fields

from tf_scheduler.errors import OptionsError, Problem
from tf_scheduler.model.digests import split_data

from .rules import job_rules, service_rules
from .schema.document import Options, is_set
from .schema.fields import RecordList, json_excerpt
from .schema.jobs import JOBS, WorkerSection, add_strategy
from .schema.policies import GangSection
from .schema.service import DataFiles, ServiceSection, is_queue, runs_check_job
from .schema.values import Document

#: Maximum nesting of objects and lists.
_MAX_DEPTH = 64


def parse(data: bytes, source: str) -> dict[str, Any]:
    """Parse a JSON object in UTF-8. Raises OptionsError, also for repeated names."""
    text = _text(data, source)
    repeated: list[str] = []
    try:
        document = json.loads(text, object_pairs_hook=lambda pairs: _object(pairs, repeated), parse_constant=_refuse)
    except json.JSONDecodeError as error:
        if source.endswith(".py"):
            why = f"a program, not options; run `dcos-tensorflow try {source}`, or write options"
            raise OptionsError(f"{source}: {why}: `dcos-tensorflow options init STRATEGY {source}`") from error
        raise OptionsError(_syntax_error(error, source)) from error
    except (ValueError, RecursionError) as error:
        raise OptionsError(f"{source} is not JSON: {error}") from error
    if repeated:
        raise OptionsError([Problem(name, f"is repeated in one object of {source}") for name in repeated])
    if not _fits(document, _MAX_DEPTH):
        raise OptionsError(f"{source} is nested deeper than {_MAX_DEPTH} levels")
    if not isinstance(document, dict):
        raise OptionsError(
            f'{source} must hold a JSON object, such as {{"service": {{...}}}}, not {text.strip()[:20]!r}'
        )
    _check_characters(document, source)
    return document


#: Maximum characters of a quoted line on each side of an error.
_SIDE = 60
_YAML = re.compile(r"---|[A-Za-z_]\w*:(?:\s|$)")


def _syntax_error(error: json.JSONDecodeError, source: str) -> str:
    """Return the problem with its position, the line of text, and a caret below it."""
    text, at = error.doc, error.pos
    if not text.strip():
        return f'{source} is empty; expected a JSON object, such as {{"service": {{...}}}}'
    if text.lstrip().startswith("<"):
        return f"{source} is XML; use `dcos-tensorflow convert {source}`"
    lines = (line for line in text.splitlines() if line.strip() and not line.startswith("#"))
    if source.endswith((".yaml", ".yml")) or _YAML.match(next(lines, "")):
        # A job of Kubernetes has a kind.
        command = "convert" if re.search(r"^kind:", text, re.MULTILINE) else "options init --from"
        return f"{source} is YAML; as JSON: `dcos-tensorflow {command} {source}`"
    at = min(at, len(text.rstrip()))
    begin, end = text.rfind("\n", 0, at) + 1, text.find("\n", at)
    before, after = text[begin:at][-_SIDE:], text[at : len(text) if end < 0 else end][:_SIDE]
    caret = "".join("\t" if character == "\t" else " " for character in before) + "^"
    line, column = len(text[:at].split("\n")), at - begin + 1
    return f"{source}:{line}:{column}: {_syntax_problem(error)}\n{before}{after.rstrip()}\n{caret}"


def _syntax_problem(error: json.JSONDecodeError) -> str:
    """Describe a syntax error; recognize comments, True and '...' of other languages."""
    rest, before = error.doc[error.pos :], error.doc[: error.pos].rstrip()
    if not rest.strip():
        return f"{_missing_end(before)} is missing at the end"
    if rest.startswith(("//", "/*", "#")):
        return "JSON has no comments"
    closing = rest.removeprefix(",").lstrip()[:1]  # Python 3.13 points to the comma
    if closing in tuple("}]") and (before.endswith(",") or rest.startswith(",")):
        return f"remove the comma before {closing}"
    if rest.startswith("'"):
        return "text needs double quotes: \"x\", not 'x'"
    word = re.match(r"(True|False|None)\b", rest)
    if word is not None:
        return f"JSON has {json.dumps(ast.literal_eval(word[0]))}, not {word[0]}"
    if error.msg.startswith("Invalid control character"):
        return r"text has a line break or control character; write \n for a line break, or close the text before it"
    return error.msg[:1].lower() + error.msg[1:].removesuffix(" starting at")


def _missing_end(text: str) -> str:
    """Return the bracket that closes the innermost object or list."""
    brackets = re.sub(r'"(?:\\.|[^"\\])*"|[^][{}]', "", text)
    while (shorter := re.sub(r"\{\}|\[\]", "", brackets)) != brackets:
        brackets = shorter
    return "]" if brackets.endswith("[") else "}"


def _fits(value: Any, depth: int) -> bool:
    """Whether a value is nested at most `depth` deep; Python's own limit varies."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return depth > 0 and all(_fits(one, depth - 1) for one in inner)


def _check_characters(document: dict[str, Any], source: str) -> None:
    """Reject lone surrogates: JSON can express them, but Mesos requires UTF-8."""
    try:
        json.dumps(document, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        half = error.object[error.start]
        raise OptionsError(
            f"{source} holds {half!r}, an incomplete surrogate pair; write the whole character"
        ) from error


def _text(data: bytes, source: str) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise OptionsError(f"{source} is not UTF-8: invalid byte at offset {error.start}") from error


def _object(pairs: list[tuple[str, Any]], repeated: list[str]) -> dict[str, Any]:
    seen: dict[str, Any] = {}
    for name, value in pairs:
        if name in seen:
            repeated.append(name)
        seen[name] = value
    return seen


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a JSON number")


#: Maximum number of option names in a message.
_MAX_NAMES = 12

#: Names in other systems -> option.
_SYNONYMS = {
    **dict.fromkeys(("ps", "parameter_servers", "server"), "parameter_server"),
    "master": "chief",
    **dict.fromkeys(("env", "envs", "environment"), "environment"),
    **dict.fromkeys(("replicas", "instances", "num_workers", "nodes"), "count"),
    "workers": "worker",
    **dict.fromkeys(("cmd", "args", "entrypoint", "script", "program"), "command"),
    **dict.fromkeys(("memory", "ram"), "mem"),
    **dict.fromkeys(("cpu", "cores", "vcores"), "cpus"),
    **dict.fromkeys(("gpu", "num_gpus"), "gpus"),
}
#: Sections of options that a file may have in another section, the likeliest first.
_LIKELY_SECTIONS = {"service": ServiceSection(), "worker": WorkerSection()}

#: marshmallow's message -> kind and message of the problem.
_KNOWN_MESSAGES = {
    "Field may not be null.": ("null", "must not be null; omit the option to get its default"),
    "Missing data for required field.": ("required", "required"),
}

#: Meaning of the keys of a message level: options of a section, indexes of a list, or neither.
_Level = Schema | RecordList | None


def to_problems(messages: Mapping[str, Any], level: _Level, document: object) -> Iterator[Problem]:
    """Convert marshmallow's nested messages to a flat sequence of problems."""
    for name, content in messages.items():
        field, value = _field(level, name), document.get(name) if isinstance(document, Mapping) else None
        if not isinstance(content, Mapping):
            yield from (_problem(message, name, level) for message in content)
        elif content.keys() == {"_schema"}:
            yield Problem(name, f"must be an object, not {json_excerpt(value)}", "wrong_type")
        else:
            inner = field.schema if isinstance(field, fields.Nested) else field
            inner = inner.records if isinstance(inner, DataFiles) else inner
            below = to_problems(content, inner if isinstance(inner, (Schema, RecordList)) else None, value)
            yield from (replace(problem, path=f"{name}.{problem.path}") for problem in below)


def _field(level: _Level, name: str) -> fields.Field[Any] | None:
    if isinstance(level, RecordList):
        return fields.Nested(level.schema)
    return None if level is None else level.fields.get(name)


#: Options of `gang` with which the scheduler reserved resources for a part of a gang.
_RESERVING = ("mode", "reserve_timeout")
_NO_RESERVATIONS = (
    "nothing is reserved for an incomplete gang: set a Mesos quota for service.role, or give the service its own role"
)


def _problem(message: str, name: str, level: _Level) -> Problem:
    if message == "Unknown field." and isinstance(level, Schema):
        return Problem(name, f"unknown option{_suggestion(name, level)}", "unknown_option")
    kind, text = _KNOWN_MESSAGES.get(message, ("invalid", message))
    return Problem(name, text, kind)


def _suggestion(name: str, schema: Schema) -> str:
    if isinstance(schema, GangSection) and name in _RESERVING:
        return f"; {_NO_RESERVATIONS}"
    word = _SYNONYMS.get(name, name)
    if word not in schema.fields:
        # Kubeflow and Kubernetes have these at the top.
        other = next((f"{section}.{word}" for section, each in _LIKELY_SECTIONS.items() if word in each.fields), "")
        other = other or (f"{word}.count" if word in JOBS else "")
        if other:
            return f"; did you mean `{other}`?"
    close = [word] if word in schema.fields else get_close_matches(name, schema.fields, n=1)
    if close:
        return f"; did you mean `{close[0]}`?"
    return f"; expected one of {', '.join(sorted(schema.fields))}" if len(schema.fields) <= _MAX_NAMES else ""


#: Function from resolved options to problems.
Rule = Callable[[Document], Iterator[Problem]]


def _rules_of(module: ModuleType) -> list[Rule]:
    """Return the public functions of a module of rules, in their order."""
    return [
        value
        for name, value in vars(module).items()
        if isfunction(value) and value.__module__ == module.__name__ and not name.startswith("_")
    ]


#: All rules over several options, in the order of their messages.
RULES = tuple(rule for module in (service_rules, job_rules) for rule in _rules_of(module))


def resolve(
    document: Mapping[str, Any],
    defaults: Mapping[str, Mapping[str, Any]] | None = None,
    more_rules: Iterable[Rule] = (),
) -> dict[str, Any]:
    """Return the document with all options. Raises OptionsError with all problems.

    `defaults` replace omitted options. An option that is set to its empty default counts as omitted, because the DC/OS
    form sends all options. `more_rules`: rules for this kind of service, for example that a file exists.
    """
    if {"apiVersion", "kind"} <= document.keys():
        raise OptionsError(f"a {document['kind']} of Kubernetes, not options; use `dcos-tensorflow convert FILE`")
    merged = {**document}
    for section, values in (defaults or {}).items():
        own = document.get(section, {})
        if isinstance(own, Mapping):
            own = {**values, **{name: value for name, value in own.items() if is_set(f"{section}.{name}", value)}}
        merged[section] = own
    options, wrong = load_fields(merged)
    add_strategy(options)
    # Sections share names, and often defaults: worker.command is only required without service.command.
    seen = {problem.path.rpartition(".")[2] for problem in wrong}
    wrong += [one for rule in (*RULES, *more_rules) for one in rule(options) if one.path.rpartition(".")[2] not in seen]
    if wrong:
        raise OptionsError(wrong)
    return options


def program_is_named(options: Document) -> Iterator[Problem]:
    """Require a program, in services that do not run the check job by default."""
    if runs_check_job(options):
        yield Problem("service.command", "required, because no option names a program")


def data_has_addresses(options: Document) -> Iterator[Problem]:
    """Require URLs in `service.data`: a cluster's agents cannot read the user's paths."""
    for file in () if is_queue(options) else split_data(options["service"]["data"]):
        if "://" not in file.url:
            what = f"{file.url}: agents need a URL, such as https://files.example.com/{file.url.rpartition('/')[2]}"
            yield Problem("service.data", f"{what}; file:///... if each agent has the file; only local runs use a path")


def job_url_has_address(options: Document) -> Iterator[Problem]:
    """Require a URL or an absolute path in `service.job_url`, which agents can read."""
    url = options["service"]["job_url"]
    if url and "://" not in url and not url.startswith("/"):
        message = f"{url}: agents need an address, such as https://...; only local runs use a path"
        yield Problem("service.job_url", message)


def load_fields(document: Mapping[str, Any]) -> tuple[dict[str, Any], list[Problem]]:
    """Return all options, with defaults in place of invalid values, and the problems."""
    schema = Options()
    try:
        return schema.load(document), []
    except ValidationError as error:
        messages: dict[str, Any] = error.normalized_messages()  # type: ignore[no-untyped-call]
        valid: Mapping[str, Any] = error.valid_data  # type: ignore[assignment]
        return merge(schema.load({}), valid), sorted(to_problems(messages, schema, document), key=str)


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Merge objects at every depth; take any other value, also a list, from `over`."""
    merged = dict(base)
    for name, value in over.items():
        below = merged.get(name)
        both = isinstance(below, Mapping) and isinstance(value, Mapping)
        merged[name] = merge(below, value) if both else value  # type: ignore[arg-type]
    return merged


#: Identity of the service, of Mesos and of the store. Without these options another service could be removed.
_SECTIONS = ("mesos", "tls", "scheduler")
_IDENTITY = ("name", "role", "principal", "service_account", "service_account_secret")
_NEEDED = (*_SECTIONS, *(f"service.{name}" for name in _IDENTITY))
#: Removing an option may break a rule over another one.
_ROUNDS = 3
#: A placeholder for the required program, which is never started.
_PROGRAM = {"command": "true"}


def load_lenient(
    document: Document, defaults: Mapping[str, Mapping[str, Any]]
) -> tuple[dict[str, Any], tuple[Problem, ...]]:
    """Resolve options for an uninstall: drop invalid ones and return their problems.

    Raises OptionsError if an invalid option is required for the uninstall.
    """
    valid, dropped = deepcopy(dict(document)), dict[str, Problem]()
    provided = {**defaults, "service": {**_PROGRAM, **defaults.get("service", {})}}
    for _ in range(_ROUNDS):
        try:
            return resolve(valid, provided if dropped else defaults), tuple(dropped.values())
        except OptionsError as error:
            for problem in error.problems:
                dropped.setdefault(problem.path, problem)
                _drop(valid, problem)
    # An uninstall needs these, and the API's access control.
    service = valid.get("service", {})
    sections = {name: valid[name] for name in (*_SECTIONS, "api", "secret_delivery") if name in valid}
    required = {**sections, "service": {name: service[name] for name in _IDENTITY if name in service}}
    return resolve(required, provided), tuple(dropped.values())


def _drop(document: dict[str, Any], problem: Problem) -> None:
    """Drop an invalid option, or the list or section `api` that contains it.

    Raises OptionsError if the uninstall needs the option.
    """
    if any(f"{problem.path}.".startswith(f"{name}.") for name in _NEEDED):
        raise OptionsError([problem])
    section: Any = document
    *above, last = problem.path.split(".")
    if above[:1] == ["api"]:
        above, last = [], "api"
    for name in above:
        below = section.get(name)
        if not isinstance(below, dict):
            last = name
            break
        section = below
    section.pop(last, None)


#: Name of the option with environment variables, in every section.
ENVIRONMENT_OPTION = "environment"


def as_lists(document: Mapping[str, Any]) -> dict[str, Any]:
    """Convert environments to lists, and `service.data` to text, as Cosmos requires."""
    return {name: _as_list(part) if isinstance(part, Mapping) else part for name, part in document.items()}


def _as_list(section: Mapping[str, Any]) -> dict[str, Any]:
    section, variables = dict(section), section.get(ENVIRONMENT_OPTION)
    if isinstance(section.get("data"), list):
        section["data"] = json.dumps(section["data"])
    if not isinstance(variables, Mapping):
        return section
    return {**section, ENVIRONMENT_OPTION: [{"name": key, "value": text} for key, text in variables.items()]}
