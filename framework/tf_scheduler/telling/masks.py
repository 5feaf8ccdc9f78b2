"""Secrets that the scheduler itself was given, kept out of every line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from tf_executor.forms import forms
from tf_scheduler.model.masking import MASK, without_password

#: Characters. Shorter ones are parts of words: to hide them would hide the words.
SHORTEST = 6


class Masks:
    """`values`: secrets, hidden in every form of them. Of one with many lines, each line is one."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        parts = {part for value in values for part in _parts(value) if len(part) >= SHORTEST}
        # The longest first: one may be the beginning of another.
        words = "|".join(re.escape(part) for part in sorted(parts, key=len, reverse=True))
        self._known = re.compile(words) if words else None

    def cover(self, text: str) -> str:
        """The text without them, and without passwords in addresses."""
        return without_password(text if self._known is None else self._known.sub(MASK, text))


def _parts(value: str) -> Iterator[str]:
    for part in (value, *(line.strip() for line in value.splitlines())):
        if len(part) >= SHORTEST:
            yield from forms(part.encode("utf-8", "replace"))
