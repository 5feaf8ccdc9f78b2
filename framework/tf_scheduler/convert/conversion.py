"""Read a job file, detect its kind, and convert it to valid options with notes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import chain
from typing import Any
from xml.etree import ElementTree

import yaml

from tf_executor.contract.strategies import Strategy
from tf_scheduler.errors import OptionsError, Problem
from tf_scheduler.options.load import as_lists, parse, program_is_named, resolve
from tf_scheduler.options.schema.jobs import JOBS
from tf_scheduler.options.warnings import TORCHRUN, find_local_warnings

from . import beta, tfjob, tony
from .beta import is_options_document
from .tables import MAX_NODES, Action, Note, TooBigError, collect

#: Maximum size in bytes; job files have a few thousand.
MAX_BYTES = 1_000_000
#: Maximum digits of a number: parsing takes quadratic time, and Python refuses to print longer ones.
_MAX_DIGITS = 100
#: Encoding in the declaration of an XML file.
_ENCODING = re.compile(rb"""encoding\s*=\s*["']([A-Za-z][\w.-]*)""")
#: Job files that can be converted, as a sentence names them.
KINDS = "a TFJob or PyTorchJob of Kubeflow (YAML), a tony.xml of TonY, or an options.json of beta-tensorflow"


class JobFileKind(str, Enum):
    TFJOB = "tfjob"
    PYTORCH = "pytorchjob"
    TONY = "tony"
    BETA = "beta-tensorflow"


@dataclass(frozen=True, slots=True)
class JobFile:
    """A job that was read from a file, before its conversion."""

    kind: JobFileKind
    content: dict[str, Any]
    #: Notes on other content of the file.
    notes: tuple[Note, ...] = ()


def read_job_file(data: bytes, source: str) -> JobFile:
    """Read a job file and detect its kind. Raises OptionsError, which names `source`."""
    if len(data) > MAX_BYTES:
        raise OptionsError(f"{source}: too large for a job file: {len(data)} bytes; maximum: {MAX_BYTES}")
    start = data.lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
    if start == b"<":
        return JobFile(JobFileKind.TONY, _properties(data, source))
    if start == b"{":
        document = parse(data, source)
        if "kind" in document:
            return _of_yaml([document], source)
        if not is_options_document(document):
            raise OptionsError(f"{source} is not {KINDS}")
        return JobFile(JobFileKind.BETA, document)
    return _of_yaml(yaml_documents(data, source), source)


class _DoctypeError(Exception):
    """The XML has a DOCTYPE, the only place where entities can be declared."""


class _NoDoctype(ElementTree.TreeBuilder):
    """XML tree builder that rejects a DOCTYPE before the parser reads it."""

    def doctype(self, *_: str | None) -> None:
        raise _DoctypeError


def _properties(data: bytes, source: str) -> dict[str, Any]:
    """Read a Hadoop configuration; the last value of a name wins, as in Hadoop."""
    try:
        root = ElementTree.fromstring(data, ElementTree.XMLParser(target=_NoDoctype()))  # noqa: S314 - no entities
    except _DoctypeError as error:
        raise OptionsError(
            f"{source}: XML with a DOCTYPE or entities is rejected, because these can make the parser read files"
        ) from error
    except LookupError as error:  # a codec that Python does not have, or one that does not return text, such as zlib
        name = _ENCODING.search(data)
        encoding = name[1].decode() if name else "unknown"
        raise OptionsError(f"{source}: XML encoding `{encoding}`: not supported; save the file as UTF-8") from error
    except (ElementTree.ParseError, ValueError) as error:
        raise OptionsError(f"{source} is not XML: {error}") from error
    if root.tag != "configuration":
        raise OptionsError(f"{source} is not {KINDS}: its root element is <{root.tag}>, expected <configuration>")
    properties = ((entry.findtext("name") or "", entry.findtext("value") or "") for entry in root.iter("property"))
    return {name.strip(): value.strip() for name, value in properties if name.strip()}


def yaml_documents(data: bytes, source: str) -> list[Any]:
    """Return the documents of a YAML file. Raises OptionsError."""
    try:
        if sum(_size(root, {}) for root in list(yaml.compose_all(data, yaml.SafeLoader))) > MAX_NODES:
            raise OptionsError(f"{source}: more than {MAX_NODES} entries")
        return [document for document in yaml.load_all(data, _Loader) if document is not None]
    except yaml.MarkedYAMLError as error:
        raise OptionsError(_yaml_problem(error, source)) from error
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        raise OptionsError(f"{source} is not valid YAML: {' '.join(str(error).split())}") from error


def _yaml_problem(error: yaml.MarkedYAMLError, source: str) -> str:
    """Return the problem with its line and column, and the text of the line."""
    is_at_end = "<stream end>" in (error.problem or "")
    mark = (error.context_mark if is_at_end else None) or error.problem_mark
    text = ", ".join(filter(None, (error.context, error.problem)))
    if mark is None:
        return f"{source} is not valid YAML: {text}"
    snippet = mark.get_snippet(indent=0) or ""
    return f"{source}:{mark.line + 1}:{mark.column + 1}: invalid YAML: {text}\n{snippet}".rstrip()


class _Loader(yaml.SafeLoader):
    """Loader that rejects oversized numbers."""

    def construct_yaml_int(self, node: Any) -> Any:
        return super().construct_yaml_int(_number(node))

    def construct_yaml_float(self, node: Any) -> Any:
        return super().construct_yaml_float(_number(node))


_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_yaml_int)
_Loader.add_constructor("tag:yaml.org,2002:float", _Loader.construct_yaml_float)


def _number(node: Any) -> Any:
    if len(node.value) > _MAX_DIGITS:
        where = f"line {node.start_mark.line + 1}, column {node.start_mark.column + 1}"
        raise ValueError(f"{where}: a number has {len(node.value)} characters; up to {_MAX_DIGITS} are allowed")
    return node


def _size(node: yaml.Node, sizes: dict[int, int]) -> int:
    """Count nodes with YAML aliases expanded. Raises RecursionError for a cycle."""
    if id(node) not in sizes:
        inner = node.value if isinstance(node, yaml.CollectionNode) else ()
        parts = chain.from_iterable(inner) if isinstance(node, yaml.MappingNode) else inner
        sizes[id(node)] = 1 + sum(_size(part, sizes) for part in parts)
    return sizes[id(node)]


_JOB_KEYS = {"TFJob": JobFileKind.TFJOB, "TfJob": JobFileKind.TFJOB, "PyTorchJob": JobFileKind.PYTORCH}
#: Unsupported kinds of jobs -> advice.
_OTHER_JOBS = {
    "MPIJob": "not supported; if the program uses Horovod, set the strategy horovod",
    "XGBoostJob": "not supported",
    "PaddleJob": "not supported",
    "JAXJob": "not supported",
    "TrainJob": "not supported; write a TFJob or PyTorchJob, or use `options init`",
    "tensorflow": "convert it to a TFJob first (docs/how-to/migrate)",
}


def _of_yaml(documents: list[Any], source: str) -> JobFile:
    every = [inner for one in documents for inner in _unpacked(one)]
    jobs = [one for one in every if isinstance(one, dict) and str(one.get("kind")) in _JOB_KEYS]
    if len(every) == 1 and not jobs and is_options_document(every[0]):
        raise OptionsError(f"{source} holds options; as JSON: `dcos-tensorflow options init --from {source}`")
    if len(jobs) != 1:
        kinds = [str(one.get("kind")) for one in every if isinstance(one, dict)]
        other = next((f"a job of kind {kind}: {_OTHER_JOBS[kind]}" for kind in kinds if kind in _OTHER_JOBS), "")
        content = f"{len(jobs)} jobs; convert them one at a time" if jobs else other or "no job"
        raise OptionsError(f"{source} must be {KINDS}; it contains {content}")
    others = tuple(Note(_named(one), "omitted: not a job") for one in every if one is not jobs[0])
    return JobFile(_JOB_KEYS[str(jobs[0]["kind"])], jobs[0], others)


def _unpacked(document: Any) -> list[Any]:
    """Return the items of a `kind: List` of kubectl, else the document itself."""
    items = document.get("items") if isinstance(document, dict) and document.get("kind") == "List" else None
    return items if isinstance(items, list) else [document]


def _named(document: Any) -> str:
    if not isinstance(document, dict):
        return "another document"
    metadata = document.get("metadata")
    name = metadata.get("name", "") if isinstance(metadata, dict) else ""
    return f"{document.get('kind', 'document')} {name}".strip()


_CONVERTERS: Mapping[JobFileKind, Callable[[Mapping[str, Any], str], Iterator[Action]]] = {
    JobFileKind.TFJOB: tfjob.convert,
    JobFileKind.PYTORCH: tfjob.convert,
    JobFileKind.TONY: tony.convert,
    JobFileKind.BETA: beta.convert,
}
#: Sections with a default count above 0.
_COUNTED = ("parameter_server", "worker")


class InvalidConversionError(OptionsError):
    """The result is not a valid options file. `warnings` often contain the cause."""

    def __init__(self, problems: Sequence[Problem], warnings: Sequence[Note]) -> None:
        super().__init__(problems)
        self.warnings = tuple(warnings)


@dataclass(frozen=True, slots=True)
class Conversion:
    kind: JobFileKind
    #: Content of the options file.
    options: dict[str, Any]
    #: Fields omitted, changed or guessed, by their path in the file.
    warnings: tuple[Note, ...]


def convert_job_file(
    data: bytes,
    source: str,
    program: str = "",
    strategy: str = "",
    adapt: Callable[[dict[str, Any]], Sequence[Note]] = lambda _: (),
) -> Conversion:
    """Convert a job file to options.

    `program`: command line, if the file has none. `strategy`: distribution strategy; empty: guessed from the jobs.
    `adapt`: changes the options before they are checked, and returns notes.
    Raises OptionsError for an invalid file, InvalidConversionError if the result is invalid.
    """
    job = read_job_file(data, source)
    try:
        options, notes = collect(_CONVERTERS[job.kind](job.content, program))
    except TooBigError as error:
        raise OptionsError(f"{source}: {error}") from error
    for section in JOBS:
        rows = options.get(section, {}).get("placement_constraint")
        if isinstance(rows, list):
            options[section]["placement_constraint"] = json.dumps(rows)
    if job.kind is not JobFileKind.BETA:
        for section in _COUNTED:
            options.setdefault(section, {}).setdefault("count", 0)
        if not any(options.get(section, {}).get("count", 0) for section in JOBS):
            raise InvalidConversionError([Problem("", f"{source} starts no tasks")], (*job.notes, *notes))
        notes += _chosen_strategy(options, strategy)
    notes += adapt(options)
    if job.kind is not JobFileKind.BETA:
        notes += _guessed_strategy(options)
    options = as_lists(options)
    _check(job.kind, options, source, (*job.notes, *notes))
    effects = [Note(notice.path, notice.message) for notice in find_local_warnings(options, resolve(options))]
    return Conversion(job.kind, options, (*job.notes, *notes, *effects))


def _chosen_strategy(options: dict[str, Any], strategy: str) -> list[Note]:
    """Set the requested strategy, or PyTorch's by default if a command uses torchrun."""
    service = options.setdefault("service", {})
    if strategy:
        service["strategy"] = strategy
    commands = [options.get(section, {}).get("command") or "" for section in ("service", *JOBS)]
    if service.get("strategy") or not any(map(TORCHRUN.search, commands)):
        return []
    service["strategy"] = Strategy.PYTORCH_DDP.value
    return [Note("service.strategy", f"{Strategy.PYTORCH_DDP.value}, because a command starts torchrun")]


def _guessed_strategy(options: dict[str, Any]) -> list[Note]:
    service = options.setdefault("service", {})
    if service.get("strategy"):
        return []
    counts = {section: options.get(section, {}).get("count", 0) for section in JOBS}
    workers = counts["worker"] + counts["gpu_worker"]
    mirrored = workers > 0 and not counts["parameter_server"] and workers + counts["chief"] > 1
    guess = Strategy.MULTI_WORKER_MIRRORED if mirrored else Strategy.BETWEEN_GRAPH
    service["strategy"] = guess.value
    why = "there are no parameter servers" if mirrored else "it suits every program that reads TF_CONFIG or flags"
    others = ", ".join(one.value for one in Strategy if one is not guess)
    return [
        Note("service.strategy", f"{guess.value} was guessed, because {why}; choose another with --strategy ({others})")
    ]


def _check(kind: JobFileKind, options: Mapping[str, Any], source: str, notes: Sequence[Note]) -> None:
    try:
        # Without a program, the original package ran its check job, too.
        resolve(options, more_rules=() if kind is JobFileKind.BETA else (program_is_named,))
    except OptionsError as error:
        missing = any(problem.path.endswith(".command") for problem in error.problems)
        hint = Problem("", f"{source}: the file contains no command; add one with convert --command 'python train.py'")
        raise InvalidConversionError([*error.problems, *([hint] if missing else [])], notes) from error
