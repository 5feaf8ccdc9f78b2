"""Regular expressions of a library that are only compiled when somebody uses them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

#: Characters of a pattern that is worth it: shorter ones are compiled in no time.
_LONG = 150
_COMPILE: Any = re.compile


class _Later:
    """Stands for a pattern until something of it is asked for."""

    def __init__(self, pattern: str, flags: int) -> None:
        self._given = pattern, flags

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # asked for by Python itself, while the class that has it is made
            raise AttributeError(name)
        return getattr(_COMPILE(*self._given), name)


@contextmanager
def compiled_later() -> Iterator[None]:
    """Within, `re.compile` of a long pattern takes no time. For an import, in a process that has no threads yet."""

    def later(pattern: Any, flags: int = 0) -> Any:
        long = isinstance(pattern, str) and len(pattern) > _LONG
        return _Later(pattern, flags) if long else _COMPILE(pattern, flags)

    re.compile = later
    try:
        yield
    finally:
        re.compile = _COMPILE
