"""Something is found out while something else is waited for."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Meanwhile(Generic[T]):
    """Calls `find` in a thread, from now on."""

    def __init__(self, find: Callable[[], T]) -> None:
        self._find = find
        self._found: list[T] = []
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="meanwhile", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._found.append(self._find())
        except BaseException as error:  # whoever wants the value gets it
            self._error = error

    def value(self) -> T:
        """What was found; waits for it. Raise what `find` has raised."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._found[0]
