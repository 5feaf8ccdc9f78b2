"""Options of the DC/OS package beta-tensorflow (and its Portworx clone): taken as they are, but for what is unknown."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from tf_scheduler.options.sections.jobs import JOBS
from tf_scheduler.options.tree import OPTIONS

from .mapping import Deed, Put, Row, Say

#: Sections and options of other versions of that package -> ours.
RENAMED = {"ps": "parameter_server"}
_PORTWORX = "volumes of Portworx are not made; put what must outlive the tasks in service.checkpoint_dir"
#: Options that only the Portworx clone has.
LEFT_OUT = {"portworx_volume_name": _PORTWORX, "portworx_volume_options": _PORTWORX}

#: For the page; every other option has the same name, type and default here.
ROWS = (
    Row("ps", ("parameter_server.count",), "the section's name before the first release"),
    *(Row(f"parameter_server.{name}, worker.{name}, gpu_worker.{name}", (), why) for name, why in LEFT_OUT.items()),
)


def obsolete() -> list[tuple[str, str]]:
    """Options of the package that are taken and have no effect, with the reason."""
    return [(str(option), option.said("obsolete")) for option in OPTIONS if option.said("obsolete")]


def convert(document: Mapping[str, Any], _program: str) -> Iterator[Deed]:
    """All of an options.json: the same again, without what would be refused as unknown."""
    known = {option.path: option for option in OPTIONS}
    for path, value in _leaves(document, ()):
        ours = (RENAMED.get(path[0], path[0]), *path[1:])
        name = ".".join(path)
        if ours not in known:
            why = LEFT_OUT.get(path[-1], "is no option, and the package took no notice of it either")
            yield Say(name, f"was left out: {why}")
            continue
        if ours[0] != path[0]:
            yield Say(name, f"is {'.'.join(ours)} now")
        yield Put(ours, value)


def _leaves(node: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    whole = any(option.path == (RENAMED.get(path[0], path[0]), *path[1:]) for option in OPTIONS) if path else False
    if isinstance(node, Mapping) and not whole:
        for name, value in node.items():
            yield from _leaves(value, (*path, name))
    else:
        yield path, node


def looks_like(document: Any) -> bool:
    """Whether it is an options file at all: an object with a section for one of our jobs, or with ours only."""
    if not isinstance(document, Mapping) or not document:
        return False
    jobs = {section for section in document if section in RENAMED or section in JOBS}
    return bool(jobs) or set(document) <= {option.path[0] for option in OPTIONS}


def text(document: Mapping[str, Any]) -> str:
    """As it is written to a file."""
    return json.dumps(document, indent=2) + "\n"
