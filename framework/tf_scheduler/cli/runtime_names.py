"""`runtime:NAME` in options, which stands for the interpreter of a runtime on this machine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tf_scheduler.errors import JobError, OptionsError, Problem

_PREFIX = "runtime:"


def with_runtimes(document: Mapping[str, Any]) -> dict[str, Any]:
    """The document with the path in place of each name. Raise OptionsError for runtimes that there are not."""
    found, wrong = dict(document), []
    for name, section in document.items():
        python = section.get("python") if isinstance(section, Mapping) else None
        if isinstance(python, str) and python.startswith(_PREFIX):
            from tf_scheduler.runtimes.making import find  # slow to load, and few options name one

            try:
                found[name] = {**section, "python": find(python.removeprefix(_PREFIX)).python}
            except JobError as error:
                wrong.append(Problem(f"{name}.python", f"{error}; `dcos-tensorflow runtime create` makes one"))
    if wrong:
        raise OptionsError(wrong)
    return found
