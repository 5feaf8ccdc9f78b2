"""Bytes -> what kind of file it is, and its content as plain data. Files of strangers: nothing in them is run."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from itertools import chain
from typing import Any

import yaml
from defusedxml import ElementTree
from defusedxml.common import DefusedXmlException

from tf_scheduler.errors import OptionsError, Problem
from tf_scheduler.options.parse import parse

from .beta import looks_like
from .mapping import MOST_NODES, Say

#: Bytes. Job files have a few thousand.
MOST_BYTES = 1_000_000
#: Characters of a number. To read one takes the square of them, and to write it is refused by Python.
_LONGEST = 100
_KINDS = "a TFJob or PyTorchJob of Kubeflow (YAML), a tony.xml of TonY, or an options.json of beta-tensorflow"


class Kind(str, Enum):
    TFJOB = "tfjob"
    PYTORCH = "pytorchjob"
    OPERATOR = "tensorflow-operator"
    TONY = "tony"
    BETA = "beta-tensorflow"


@dataclass(frozen=True, slots=True)
class Job:
    """One job of a foreign file."""

    kind: Kind
    content: dict[str, Any]
    #: What else the file holds.
    said: tuple[Say, ...] = field(default=())


def read(data: bytes, source: str) -> Job:
    """Raise OptionsError, naming `source`, unless it is one of the files that can be converted."""
    if len(data) > MOST_BYTES:
        raise _refused(f"{source} has {len(data)} bytes; a job file has at most {MOST_BYTES}")
    start = data.lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
    if start == b"<":
        return Job(Kind.TONY, _properties(data, source))
    if start == b"{":
        document = parse(data, source)
        return _of_yaml([document], source) if "kind" in document else _options(document, source)
    return _of_yaml(_documents(data, source), source)


def _options(document: dict[str, Any], source: str) -> Job:
    if not looks_like(document):
        raise _refused(f"{source} is not {_KINDS}")
    return Job(Kind.BETA, document)


def _properties(data: bytes, source: str) -> dict[str, Any]:
    """Of a Hadoop configuration: name -> value; the last of two with one name counts, as in Hadoop."""
    try:
        root = ElementTree.fromstring(data, forbid_dtd=True)
    except DefusedXmlException as error:
        raise _refused(f"{source} is XML with a DOCTYPE or entities, which is refused: they can read files") from error
    except (ElementTree.ParseError, ValueError) as error:
        raise _refused(f"{source} is not XML: {error}") from error
    if root.tag != "configuration":
        raise _refused(f"{source} is not {_KINDS}: its outermost element is <{root.tag}>, not <configuration>")
    found = ((entry.findtext("name") or "", entry.findtext("value") or "") for entry in root.iter("property"))
    return {name.strip(): value.strip() for name, value in found if name.strip()}


def _documents(data: bytes, source: str) -> list[Any]:
    try:
        if sum(_size(root, {}) for root in list(yaml.compose_all(data, yaml.SafeLoader))) > MOST_NODES:
            raise _refused(f"{source}: it has more than {MOST_NODES} entries")
        return [document for document in yaml.load_all(data, _Loader) if document is not None]
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        told = " ".join(str(error).split())
        raise _refused(f"{source} is not YAML that we accept: {told}") from error


class _Loader(yaml.SafeLoader):
    """Without numbers that have no end."""

    def construct_yaml_int(self, node: Any) -> Any:
        return super().construct_yaml_int(_number(node))

    def construct_yaml_float(self, node: Any) -> Any:
        return super().construct_yaml_float(_number(node))


_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_yaml_int)
_Loader.add_constructor("tag:yaml.org,2002:float", _Loader.construct_yaml_float)


def _number(node: Any) -> Any:
    if len(node.value) > _LONGEST:
        where = f"line {node.start_mark.line + 1}, column {node.start_mark.column + 1}"
        raise ValueError(f"{where}: a number of {len(node.value)} characters")
    return node


def _size(node: yaml.Node, known: dict[int, int]) -> int:
    """Values that it has when every alias is written out: so many does a merge (`<<`) make. RecursionError: no end."""
    if id(node) not in known:
        inner = node.value if isinstance(node, yaml.CollectionNode) else ()
        parts = chain.from_iterable(inner) if isinstance(node, yaml.MappingNode) else inner
        known[id(node)] = 1 + sum(_size(part, known) for part in parts)
    return known[id(node)]


_JOBS = {"TFJob": Kind.TFJOB, "TfJob": Kind.TFJOB, "PyTorchJob": Kind.PYTORCH, "tensorflow": Kind.OPERATOR}
#: Jobs that are none of these -> what to do.
_OTHER_JOBS = {
    "MPIJob": "it starts its processes from one of them, by mpirun; with Horovod use the strategy horovod",
    "XGBoostJob": "no strategy here is for it",
    "PaddleJob": "no strategy here is for it",
    "JAXJob": "no strategy here is for it",
}


def _of_yaml(documents: list[Any], source: str) -> Job:
    every = [inner for one in documents for inner in _unpacked(one)]
    jobs = [one for one in every if isinstance(one, dict) and str(one.get("kind")) in _JOBS]
    if len(jobs) != 1:
        kinds = [str(one.get("kind")) for one in every if isinstance(one, dict)]
        other = next((f"another job, {kind}: {_OTHER_JOBS[kind]}" for kind in kinds if kind in _OTHER_JOBS), "")
        count = f"holds {len(jobs)} jobs: convert them one at a time" if jobs else f"holds {other or 'none of them'}"
        raise _refused(f"{source} must be {_KINDS}; it {count}")
    others = tuple(Say(_named(one), "was left out: it is no job") for one in every if one is not jobs[0])
    return Job(_JOBS[str(jobs[0]["kind"])], jobs[0], others)


def _unpacked(document: Any) -> list[Any]:
    """The items of a `kind: List`, which kubectl writes."""
    items = document.get("items") if isinstance(document, dict) and document.get("kind") == "List" else None
    return items if isinstance(items, list) else [document]


def _named(document: Any) -> str:
    if not isinstance(document, dict):
        return "another document"
    metadata = document.get("metadata")
    name = metadata.get("name", "") if isinstance(metadata, dict) else ""
    return f"{document.get('kind', 'document')} {name}".strip()


def _refused(message: str) -> OptionsError:
    return OptionsError([Problem("", message)])
