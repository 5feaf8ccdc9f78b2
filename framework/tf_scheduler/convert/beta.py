"""Converter for options of DC/OS' beta-tensorflow package and its Portworx clone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tf_scheduler.options.schema.document import OPTIONS
from tf_scheduler.options.schema.jobs import JOBS

from .tables import Action, Note, SetOption

#: Sections of other versions of the package -> current names.
RENAMED = {"ps": "parameter_server"}
_PORTWORX = "volumes of Portworx are not supported; store permanent files in service.checkpoint_dir"
#: Options of the Portworx clone.
IGNORED = {"portworx_volume_name": _PORTWORX, "portworx_volume_options": _PORTWORX}


def convert(document: Mapping[str, Any], _program: str) -> Iterator[Action]:
    """Convert options of the original package; omit unknown options with a note."""
    paths = {option.path for option in OPTIONS}
    for path, value in _leaves(document, ()):
        target = (RENAMED.get(path[0], path[0]), *path[1:])
        name = ".".join(path)
        if target not in paths:
            why = IGNORED.get(path[-1], "unknown option; the original package ignored it, too")
            yield Note(name, f"omitted: {why}")
            continue
        if target[0] != path[0]:
            yield Note(name, f"renamed to {'.'.join(target)}")
        yield SetOption(target, value)


def _leaves(node: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    whole = any(option.path == (RENAMED.get(path[0], path[0]), *path[1:]) for option in OPTIONS) if path else False
    if isinstance(node, Mapping) and not whole:
        for name, value in node.items():
            yield from _leaves(value, (*path, name))
    else:
        yield path, node


def is_options_document(document: Any) -> bool:
    """Return whether the document has a job section, or only known sections."""
    if not isinstance(document, Mapping) or not document:
        return False
    jobs = {section for section in document if section in RENAMED or section in JOBS}
    return bool(jobs) or set(document) <= {option.path[0] for option in OPTIONS}
