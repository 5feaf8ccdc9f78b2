"""The block of marathon.json.mustache that hands the options to the scheduler: generated, between two comments."""

from __future__ import annotations

import re

from tf_scheduler.options.environment import template_lines

from .errors import PackageError

BEGIN = "{{! options: this block is generated from the options' schema }}"
END = "{{! options: end }}"
_BLOCK = re.compile(rf"(?m)^(?P<indent>[ ]*){re.escape(BEGIN)}\n.*?^[ ]*{re.escape(END)}$", re.DOTALL | re.MULTILINE)


def refreshed(template: str) -> str:
    """The template with the block as the schema has it now. Raise PackageError when it has no place for it."""
    found = _BLOCK.search(template)
    if found is None:
        raise PackageError(f"has no lines {BEGIN} and {END}")
    lines = [BEGIN, *(f"{line}," for line in template_lines()), END]
    block = "\n".join(found["indent"] + line for line in lines)
    return template[: found.start()] + block + template[found.end() :]
